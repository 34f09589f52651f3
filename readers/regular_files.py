"""Bytes of files that other people named: a pipe, a device or a file without end is refused."""

from __future__ import annotations

import errno
import stat
from pathlib import Path

# The largest label file in public use has 6 GB; a sparse file of any size costs its maker nothing.
LARGEST_LABELS = 8 * 1024**3
LARGEST_PICTURE = 1024**3


def read_regular(path: Path, *, largest: int = LARGEST_LABELS) -> bytes:
    """Return the content of a file.

    An unpacked data set may hold named pipes, whose reader waits for ever, and links to devices
    such as /dev/zero, which never end.

    Args:
        path: the file; links are followed.
        largest: bytes that it may have.

    Raises:
        OSError: if it cannot be read, is a pipe, a socket or a device, or is larger.
        ValueError: for a null byte in the name.
    """
    about = path.stat()
    if not stat.S_ISREG(about.st_mode) and not stat.S_ISDIR(about.st_mode):
        raise OSError(errno.EINVAL, "Not a file but a pipe or a device", str(path))
    if about.st_size > largest:
        text = f"Larger than the {largest / 1024**3:.0f} GiB that such a file may have"
        raise OSError(errno.EFBIG, text, str(path))
    return path.read_bytes()


def read_regular_text(path: Path) -> str:
    """Return a UTF-8 file's text without a byte order mark, with Unix line ends.

    Raises:
        OSError: as `read_regular`.
        ValueError: for a null byte in the name; a UnicodeDecodeError, if it is no such text.
    """
    text = read_regular(path).decode("utf-8-sig")
    return text.replace("\r\n", "\n").replace("\r", "\n")
