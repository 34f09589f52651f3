"""Pictures and boxes loaded as torchvision's documentation does it, for the comparisons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from readers.index import ImageBoxesIndex


class TorchvisionDataset(torch.utils.data.Dataset):
    """Decodes with torchvision.io, wraps as tv_tensors, transforms with transforms.v2.

    Args:
        index: the same pictures and boxes as ours.
        transform: of (picture, target).
    """

    def __init__(self, index: ImageBoxesIndex, transform: Callable[..., Any]) -> None:
        self.records = [index[i] for i in range(len(index))]
        self.transform = transform

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, item: int) -> Any:
        from torchvision import tv_tensors
        from torchvision.io import ImageReadMode, decode_image

        record = self.records[item]
        picture = tv_tensors.Image(decode_image(str(record.path), mode=ImageReadMode.RGB))
        boxes = tv_tensors.BoundingBoxes(
            torch.from_numpy(np.array(record.boxes_xyxy, dtype=np.float32)),
            format="XYXY",
            canvas_size=(record.height, record.width),
        )
        labels = torch.from_numpy(np.array(record.labels) + 1)
        return self.transform(picture, {"boxes": boxes, "labels": labels})


def torchvision_loader(dataset: TorchvisionDataset, batch_size: int) -> Any:
    """Return a shuffling loader in this process, without an incomplete last batch."""
    return torch.utils.data.DataLoader(
        dataset,
        batch_size=batch_size,
        shuffle=True,
        drop_last=True,
        collate_fn=lambda items: tuple(zip(*items, strict=True)),
    )
