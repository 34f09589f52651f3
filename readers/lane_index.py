"""The prepared lanes on disk: one Arrow file, a row per picture, read through the page cache.

L is the number of slots, G the number of heights of the experiment's grid, S the number of scenes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pyarrow as pa

from readers.arrow_index import (
    PICTURE_FIELDS,
    ArrowIndex,
    check_ids,
    joined_tables,
    table_of,
    with_list_values,
)
from readers.lane_records import ImageLanes
from readers.records import DatasetError
from readers.regular_files import read_regular

FORMAT = "sightflow-image-lanes-1"


class ImageLanesIndex(ArrowIndex[ImageLanes]):
    """Pictures and lanes by number, as `ImageLanes` whose arrays are views of the table.

    Args:
        table: columns of `SCHEMA`; its metadata holds what is the same for all pictures.
        rows: which rows of the table, in which order; None: all of them.
        file: the file that the table is mapped from, if it is.

    Attributes:
        num_lanes: L.
        frame: width and height that the grids count in, px.
        grid_y: (G,) float32, heights of the grids, px of the frame.
        scenes: names of the scenes, in the benchmark's order; may be empty.
    """

    SCHEMA = pa.schema(
        [
            *PICTURE_FIELDS,
            ("points", pa.large_list(pa.float64())),  # x and y of all lanes, one after the other
            ("lengths", pa.large_list(pa.int64())),  # points of each lane
            ("h_samples", pa.large_list(pa.int64())),
            ("scenes", pa.large_list(pa.int64())),  # numbers of the scenes in the metadata
            ("mask", pa.large_string()),
            ("mask_content", pa.large_string()),
            ("slots", pa.large_list(pa.int64())),
            ("grid", pa.large_list(pa.float32())),  # L x G x 2 values
        ]
    )
    LIST_COLUMNS = ("points", "lengths", "h_samples", "scenes", "slots", "grid")
    FORMAT = FORMAT

    def __init__(
        self, table: pa.Table, *, rows: np.ndarray | None = None, file: Path | None = None
    ) -> None:
        super().__init__(table, rows=rows, file=file)
        metadata = self._metadata
        width, height = json.loads(metadata[b"frame"])
        self.num_lanes: int = json.loads(metadata[b"num_lanes"])
        self.frame: tuple[int, int] = (width, height)
        self.grid_y = np.array(json.loads(metadata[b"grid_y"]), np.float32)
        self.scenes: tuple[str, ...] = tuple(json.loads(metadata[b"scenes"]))

    def all_grids(self) -> np.ndarray:
        """Return the grids of all pictures, (len, L, G, 2) float32, px of the frame."""
        lists = self._lists["grid"]
        shape = (len(lists.offsets) - 1, self.num_lanes, len(self.grid_y), 2)
        values = lists.values[lists.offsets[0] : lists.offsets[-1]].reshape(shape)
        is_whole = np.array_equal(self._rows, np.arange(shape[0]))
        return values if is_whole else values[self._rows]

    def lane_counts(self) -> np.ndarray:
        """Return how many lanes each picture has, with a slot or without, (len,) int64."""
        return self._lists["lengths"].lengths[self._rows]

    def in_scenes(self) -> np.ndarray:
        """Return which scene lists hold each picture, (len, S) bool."""
        lists = self._lists["scenes"]
        num_rows = len(lists.offsets) - 1
        table = np.zeros((num_rows, len(self.scenes)), np.bool_)
        rows = np.repeat(np.arange(num_rows), lists.lengths)
        table[rows, lists.values[lists.offsets[0] : lists.offsets[-1]]] = True
        return table[self._rows]

    def counts(self) -> dict[str, Any]:
        """Return how much there is.

        Returns:
            `pictures`, `lanes`, `without_lanes` (pictures), `without_slot` (lanes), `per_slot`
            (pictures that have a lane in each slot, in order), `per_scene` (pictures by name).
        """
        lanes = self.lane_counts()
        slots = self._lists["slots"]
        chosen = slots.values[slots.mask(self._rows)]
        per_slot = np.bincount(chosen[chosen >= 0], minlength=self.num_lanes)
        per_scene = self.in_scenes().sum(0)
        return {
            "pictures": len(self),
            "lanes": int(lanes.sum()),
            "without_lanes": int((lanes == 0).sum()),
            "without_slot": int((chosen < 0).sum()),
            "per_slot": per_slot.tolist(),
            "per_scene": dict(zip(self.scenes, per_scene.tolist(), strict=True)),
        }

    def _record(self, row: int) -> ImageLanes:
        mask = self._table["mask"][row].as_py()
        return ImageLanes(
            **self._picture(row),
            lanes=_cut(self._lists["points"].of(row), self._lists["lengths"].of(row)),
            h_samples=self._lists["h_samples"].of(row),
            scenes=tuple(self.scenes[number] for number in self._lists["scenes"].of(row).tolist()),
            mask=None if mask is None else Path(mask),
            slots=self._lists["slots"].of(row),
            grid=self._lists["grid"].of(row).reshape(self.num_lanes, -1, 2),
        )

    def _computed_digest(self) -> str:
        """Hash the columns one after the other, each row with its lengths."""
        shared = [FORMAT, self.num_lanes, self.frame, self.grid_y.tolist(), self.scenes]
        digest = hashlib.sha256(json.dumps(shared).encode())
        columns = ("lengths", "points", "h_samples", "scenes", "slots", "grid")
        masks = self._table["mask_content"]
        for row in self._rows.tolist():
            picture = self._picture(row) | {"path": "", "mask": masks[row].as_py()}
            parts = [self._lists[name].of(row) for name in columns]
            picture["sizes"] = [len(part) for part in parts]
            digest.update(json.dumps(picture).encode())
            for part in parts:
                digest.update(part.astype(part.dtype.newbyteorder("<"), copy=False).tobytes())
        return digest.hexdigest()


def build_lane_index(
    records: Iterable[ImageLanes],
    *,
    num_lanes: int,
    frame: tuple[int, int],
    grid_y: np.ndarray,
    scenes: Sequence[str] = (),
    jobs: int = 1,
) -> ImageLanesIndex:
    """Return prepared records as an index in memory; walks through them once.

    Args:
        records: with slots and grids, (num_lanes, G, 2).
        num_lanes: slots.
        frame: width and height that the grids count in, px.
        grid_y: (G,), heights of the grids, px of the frame.
        scenes: names of all scenes of the records.
        jobs: threads that read the masks, whose content is part of the digest.

    Raises:
        DatasetError: if two pictures have one id, or a mask cannot be read.
        ValueError: if a record's grid or slots have another shape.
    """
    numbers = {name: number for number, name in enumerate(scenes)}
    rows: dict[str, list[Any]] = {name: [] for name in ImageLanesIndex.SCHEMA.names}
    for record in records:
        shape = (num_lanes, len(grid_y), 2)
        if record.grid.shape != shape or len(record.slots) != len(record.lanes):
            raise ValueError(f"{record.image_id}: a grid {shape} and a slot a lane are needed")
        for name, value in _row(record, numbers).items():
            rows[name].append(value)
    rows["mask_content"] = _contents_of(rows["mask"], jobs=jobs)
    check_ids(rows["image_id"], None)
    table = table_of(
        rows, ImageLanesIndex.SCHEMA, list_columns=ImageLanesIndex.LIST_COLUMNS
    ).replace_schema_metadata(_metadata(num_lanes, frame, grid_y=grid_y, scenes=scenes))
    return ImageLanesIndex(table)


def concat(indexes: Sequence[ImageLanesIndex]) -> ImageLanesIndex:
    """Return several indexes of one frame as one, in memory; its scenes are those of all.

    An image id that an earlier index holds as well gets its index's number put before it.

    Raises:
        DatasetError: if slots, frames or grids differ.
    """
    first = indexes[0]
    for index in indexes[1:]:
        same = index.num_lanes == first.num_lanes and index.frame == first.frame
        if not same or not np.array_equal(index.grid_y, first.grid_y):
            raise DatasetError("lane data of different slots, frames or grids cannot be joined")
    scenes = list(dict.fromkeys(name for index in indexes for name in index.scenes))
    metadata = _metadata(first.num_lanes, first.frame, grid_y=first.grid_y, scenes=scenes)
    tables = []
    for index, table in zip(indexes, joined_tables(indexes), strict=True):
        moved = np.array([scenes.index(name) for name in index.scenes], np.int64)
        values = moved[table["scenes"].combine_chunks().flatten().to_numpy()]
        table = with_list_values(table, "scenes", values)
        tables.append(table.replace_schema_metadata(metadata))
    return ImageLanesIndex(pa.concat_tables(tables))


def _row(record: ImageLanes, scene_numbers: Mapping[str, int]) -> dict[str, Any]:
    points = [np.asarray(lane, np.float64).reshape(-1, 2) for lane in record.lanes]
    return {
        "image_id": record.image_id,
        "path": str(record.path),
        "width": record.width,
        "height": record.height,
        "turn": record.turn,
        "content": record.content,
        "points": np.concatenate([np.zeros((0, 2)), *points]),
        "lengths": np.array([len(lane) for lane in points], np.int64),
        "h_samples": record.h_samples,
        "scenes": np.array([scene_numbers[name] for name in record.scenes], np.int64),
        "mask": None if record.mask is None else str(record.mask),
        "slots": record.slots,
        "grid": record.grid,
    }


def _cut(points: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, ...]:
    ends = np.cumsum(lengths).tolist()
    points = points.reshape(-1, 2)
    return tuple(points[start:end] for start, end in zip([0, *ends], ends, strict=False))


def _contents_of(masks: Sequence[str | None], *, jobs: int) -> list[str]:
    """Return the SHA-256 of each mask's file, hex; empty where there is none."""
    if jobs == 1:
        return [_content_of(mask) for mask in masks]
    work = (joblib.delayed(_content_of)(mask) for mask in masks)
    return list(joblib.Parallel(n_jobs=jobs, prefer="threads", batch_size=64)(work))


def _content_of(mask: str | None) -> str:
    if mask is None:
        return ""
    try:
        return hashlib.sha256(read_regular(Path(mask))).hexdigest()
    except OSError as error:
        raise DatasetError(f"{mask}: cannot be read: {error.strerror or error}") from error


def _metadata(
    num_lanes: int, frame: tuple[int, int], *, grid_y: np.ndarray, scenes: Sequence[str]
) -> dict[str, str]:
    return {
        "format": FORMAT,
        "num_lanes": json.dumps(num_lanes),
        "frame": json.dumps([int(side) for side in frame]),
        "grid_y": json.dumps(np.asarray(grid_y, np.float32).tolist()),
        "scenes": json.dumps(list(scenes)),
    }
