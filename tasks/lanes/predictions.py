"""Runs a lane network on pictures: on a few at hand, or on all of a split."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from engine.distributed import gather_objects, rank, world_size
from readers.lane_index import ImageLanesIndex
from tasks.lanes.config import DecodeConfig, UfldModelConfig
from tasks.lanes.decoding import DecodedLane, decode, decode_tta
from tasks.lanes.transform import normalise, to_input
from tasks.loading import in_groups, read_ahead
from tasks.pictures import read_picture

OUTPUTS = ("loc_row", "loc_col", "exist_row", "exist_col")


@dataclass(frozen=True)
class LaneReader:
    """Everything between a network and its lanes.

    Args:
        model: the experiment's `model` section.
        decode: its `decode` section.
        frame: width and height that lanes are given in, px.
        compat: reference defects to keep.
    """

    model: UfldModelConfig
    decode: DecodeConfig
    frame: tuple[int, int]
    compat: Collection[str] = ()

    @torch.no_grad()
    def lanes_of(
        self, network: nn.Module, inputs: np.ndarray, *, device: torch.device
    ) -> list[list[DecodedLane]]:
        """Return the lanes of a batch.

        Args:
            network: in eval mode, on the device.
            inputs: (N, h, w, 3) uint8 RGB at the network's input size; see `transform.to_input`.
            device: where the network is.

        Returns:
            Per picture its lanes, points in px of the frame.
        """
        images = normalise(torch.from_numpy(inputs).to(device))
        # a network in eval mode has this; the loop's wrappers are not evaluated
        outputs = network.forward_tta(images) if self.decode.tta else network(images)  # type: ignore[operator]
        arrays = {name: outputs[name].float().cpu().numpy() for name in OUTPUTS}
        if self.decode.tta:
            return decode_tta(
                arrays, model=self.model, decode=self.decode, frame=self.frame, compat=self.compat
            )
        return decode(arrays, model=self.model, decode=self.decode, frame=self.frame)


def predict_lanes(
    network: nn.Module, pictures: Sequence[np.ndarray], *, reader: LaneReader, device: torch.device
) -> list[list[DecodedLane]]:
    """Return the lanes of pictures of any sizes, in px of the reader's frame.

    Args:
        network: in eval mode, on the device.
        pictures: (H, W, 3) uint8 RGB, upright.
        reader: how lanes are read off.
        device: where the network is.
    """
    if not pictures:
        return []
    inputs = np.stack([to_input(picture, model=reader.model) for picture in pictures])
    return reader.lanes_of(network, inputs, device=device)


def predict_split(
    network: nn.Module,
    index: ImageLanesIndex,
    *,
    reader: LaneReader,
    device: torch.device,
    batch_size: int,
) -> list[list[DecodedLane]]:
    """Return the lanes of every picture of a split, in index order, in px of the frame.

    A collective call: ranks share the pictures and every rank gets all results.

    Raises:
        DatasetError: naming the file, when a picture cannot be read.
    """

    def load(position: int) -> np.ndarray:
        return to_input(read_picture(index[position]), model=reader.model)

    mine = range(rank(), len(index), world_size())
    found = [
        lanes
        for few in in_groups(read_ahead(load, mine), batch_size)
        for lanes in reader.lanes_of(network, np.stack(few), device=device)
    ]
    if world_size() == 1:
        return found
    merged: list[list[DecodedLane]] = [[] for _ in range(len(index))]
    for other_rank, share in enumerate(gather_objects(found)):
        merged[other_rank :: world_size()] = share
    return merged
