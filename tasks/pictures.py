"""The pictures that index records of any task name."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np

from readers.images import read_image
from readers.records import DatasetError


class PictureRecord(Protocol):
    """What records of all tasks say of their pictures."""

    @property
    def path(self) -> Path:
        """The picture's file."""

    @property
    def width(self) -> int:
        """Px of the picture as its labels see it; `height` likewise."""

    @property
    def height(self) -> int:
        """See `width`."""

    @property
    def turn(self) -> int:
        """EXIF orientation to apply to the stored pixels."""


def read_picture(record: PictureRecord) -> np.ndarray:
    """Return a record's picture as its labels see it: (H, W, 3) uint8 RGB.

    Raises:
        DatasetError: naming the file, when it cannot be read or its size has changed.
    """
    image = read_image(record.path, turn=record.turn)
    height, width = image.shape[:2]
    if (width, height) != (record.width, record.height):
        raise DatasetError(
            f"{record.path}: is {width}x{height} px, its labels were prepared for "
            f"{record.width}x{record.height}; run prepare again"
        )
    return image
