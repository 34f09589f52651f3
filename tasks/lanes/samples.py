"""Makes training items of index records, and batches of items.

Pictures leave the worker as bytes at the size of the network's input, lanes as points; the floats
and the labels are made of them on the device, by `unpack`.

Shapes: N pictures, h and w px of the network's input, L slots, G points of a slot.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from engine.contract import Batch
from readers.images import read_mask
from readers.lane_index import ImageLanesIndex
from readers.lane_records import ImageLanes
from readers.records import DatasetError
from tasks.lanes import geometry
from tasks.lanes.augment import Variation, draw_variation, vary_light
from tasks.lanes.config import LaneDataConfig, UfldModelConfig
from tasks.lanes.labels import LabelMaker, LaneLabels
from tasks.lanes.transform import mask_to_input, normalise, to_input, warped_to_input
from tasks.loading import Generators
from tasks.pictures import read_picture


@dataclass(frozen=True, slots=True)
class LaneSample:
    """One training item.

    Args:
        image: (h, w, 3) uint8 RGB.
        points: (L, G, 2) float32, px of the frame.
        mask: (h, w) uint8, 0 ground, 1 to L lanes; None: not asked for.
        name: the picture's path, for messages.
    """

    image: np.ndarray
    points: np.ndarray
    mask: np.ndarray | None
    name: str


class LaneSamples:
    """The training items of a split: pictures read, varied and made the network's size.

    Args:
        index: the split's records; never changed.
        data: frame and augmentation.
        model: size of the input, crop and number of slots.
        wants_masks: whether items have masks.
        compat: reference defects to keep; `file_centre` zooms and turns a picture of another
            size than the frame about the middle of its own size.
    """

    def __init__(
        self,
        index: ImageLanesIndex,
        *,
        data: LaneDataConfig,
        model: UfldModelConfig,
        wants_masks: bool,
        compat: Collection[str] = (),
    ) -> None:
        self._index = index
        self._frame = data.frame
        self._augment = data.augment
        self._model = model
        self._wants_masks = wants_masks
        mirror = geometry.slots_from_right if _is_by_mask(data) else geometry.slots_of_other_side
        self._mirrored_slots = mirror(model.lanes)
        self._has_file_centre = "file_centre" in compat

    def __len__(self) -> int:
        return len(self._index)

    def sample(self, index: int, generators: Generators) -> LaneSample:
        """Return item `index` as the generators vary it.

        Raises:
            DatasetError: naming the file, when it cannot be read or has another size than its
                record says, or when a mask is missing.
        """
        draw, _ = generators
        variation = Variation() if self._augment is None else draw_variation(self._augment, draw)
        return self.varied(self._index[index], variation)

    def varied(self, record: ImageLanes, variation: Variation) -> LaneSample:
        """Return a record as an item, varied in one given way; raises as `sample` does."""
        picture, mask = read_picture(record), self._mask(record)
        points = record.grid
        if variation.moves:
            matrix = variation.matrix(self._centre(record), width=self._frame[0])
            image = warped_to_input(picture, matrix, model=self._model, frame=self._frame)
            points = geometry.move_points(points, matrix)
        else:
            matrix = None
            image = to_input(picture, model=self._model)
        if mask is not None:
            mask = mask_to_input(mask, matrix, model=self._model, frame=self._frame)
        if variation.is_mirrored:
            points = geometry.swap_points(points, self._mirrored_slots)
            mask = None if mask is None else geometry.swap_mask(mask, self._mirrored_slots)
        return LaneSample(vary_light(image, variation), points, mask, str(record.path))

    def _centre(self, record: ImageLanes) -> tuple[float, float]:
        width, height = self._frame
        if self._has_file_centre:
            width, height = record.width, record.height
        return width / 2, height / 2

    def _mask(self, record: ImageLanes) -> np.ndarray | None:
        if not self._wants_masks:
            return None
        if record.mask is None:
            raise DatasetError(f"{record.path}: has no lane mask, which this model trains with")
        return read_mask(record.mask)


def collate(samples: Sequence[LaneSample]) -> Batch:
    """Return a batch of items.

    Returns:
        inputs `images` (N, h, w, 3) uint8 RGB, `points` (N, L, G, 2) float32 in px of the frame
        and, where the items have masks, `masks` (N, h, w) uint8. ids: the pictures' paths.
    """
    inputs = {
        "images": _stacked([sample.image for sample in samples]),
        "points": _stacked([sample.points for sample in samples]),
    }
    masks = [sample.mask for sample in samples if sample.mask is not None]
    if masks:
        inputs["masks"] = _stacked(masks)
    return Batch(inputs=inputs, ids=[sample.name for sample in samples])


def unpack(
    inputs: Mapping[str, torch.Tensor], *, labels: LabelMaker
) -> tuple[torch.Tensor, LaneLabels]:
    """Return the inputs of `collate` as what network and losses take, on their device.

    Args:
        inputs: as `collate` made them.
        labels: makes labels of points.

    Returns:
        Pictures (N, 3, h, w) float32, normalised, and the labels.
    """
    return normalise(inputs["images"]), labels(inputs["points"], inputs.get("masks"))


def _is_by_mask(data: LaneDataConfig) -> bool:
    """Tell whether slots are the mask's numbers; by the other rules each belongs to a side."""
    if data.slots.rule != "by_format":
        return data.slots.rule == "mask"
    source = data.splits.source if data.splits is not None else data.train
    return source is not None and "culane" in (source.format, getattr(source, "layout", ""))


def _stacked(arrays: Sequence[np.ndarray]) -> torch.Tensor:
    return torch.from_numpy(np.stack(arrays))
