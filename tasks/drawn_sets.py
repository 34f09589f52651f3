"""Data sets that a task draws itself: written whole or not at all, and once."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Collection
from pathlib import Path

import cv2
import numpy as np

from readers.records import DatasetError

_JPEG_QUALITY = 95


def write_once(
    folder: Path,
    *,
    parts: Collection[str],
    is_whole: Callable[[Path], bool],
    write: Callable[[Path], None],
) -> None:
    """Write a set into `folder`, unless it already holds that very set.

    The folder appears whole or not at all; an older or damaged set is replaced.

    Args:
        folder: where the set goes; its parents are made.
        parts: names of all files and folders that the set has directly in `folder`.
        is_whole: tells whether a folder holds the very set; the folder may be missing or damaged.
        write: writes the set into an empty folder.

    Raises:
        DatasetError: if the folder holds something else than a set of this kind.
    """
    if is_whole(folder):
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    drawn = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        write(drawn)
        _clear(folder, parts)
        try:
            drawn.rename(folder)
        except OSError:
            # another process may have been faster
            if not is_whole(folder):
                raise
    finally:
        shutil.rmtree(drawn, ignore_errors=True)


def write_jpeg(path: Path, picture: np.ndarray) -> None:
    """Write a picture, (H, W, 3) uint8 RGB, as a JPEG file."""
    bgr = cv2.cvtColor(picture, cv2.COLOR_RGB2BGR)
    _, content = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])
    # not cv2.imwrite: on some systems it cannot write to a path with letters beyond ASCII
    path.write_bytes(content.tobytes())


def num_written(folder: Path) -> int:
    """Return how many files of some bytes lie in a folder.

    Raises:
        OSError: if there is no such folder.
    """
    with os.scandir(folder) as entries:
        return sum(entry.stat().st_size > 0 for entry in entries)


def _clear(folder: Path, parts: Collection[str]) -> None:
    """Remove an older or damaged set, but nothing that is not ours."""
    if not folder.exists():
        return
    strange = sorted({entry.name for entry in folder.iterdir()} - set(parts))
    if strange:
        raise DatasetError(
            f"{folder}: holds {strange[0]!r}, which is no part of a synthetic set; give a folder "
            "that is empty or does not exist"
        )
    shutil.rmtree(folder)
