"""Pictures from files: decoding to RGB, and what their headers say.

Every reader and every sample goes through here, so that each format means the same everywhere.
The library's own handling of EXIF is off: labels say whether they were made on the stored or on
the turned picture, and `turn` does just that. H and W are height and width.
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from readers.picture_header import PictureHeader, read_header
from readers.records import DatasetError
from readers.regular_files import LARGEST_PICTURE, read_regular

# Names by which a file is taken for a picture when a folder is searched.
IMAGE_ENDINGS = frozenset(
    {".jpg", ".jpeg", ".jfif", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".jp2", ".avif"}
)
# What both header parser and decoder surely read; anything else is decoded once when probed.
SURE_FORMATS = frozenset({"JPEG", "MPO", "PNG", "BMP", "WEBP"})
DECODE_FLAGS = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
MASK_FLAGS = cv2.IMREAD_GRAYSCALE | cv2.IMREAD_IGNORE_ORIENTATION
JPEG_START, JPEG_END = b"\xff\xd8", b"\xff\xd9"
PNG_START = b"\x89PNG\r\n\x1a\n"
# Brightest 8-bit value that counts as nearly black: 12-bit sensor data kept in 16 bits reaches 15.
DARK_LIMIT = 15


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """What is known of a picture without looking at it.

    Args:
        width: px of the stored pixels, before any turn.
        height: px of the stored pixels, before any turn.
        orientation: EXIF orientation, 1 to 8; 1 where there is none or a value of no meaning.
        content: SHA-256 of the file, hex.
        is_truncated: the file ends early; the decoder fills the rest.
        is_dark: 16 bits a channel, of which the 8 that are kept are nearly all black.
    """

    width: int
    height: int
    orientation: int = 1
    content: str = ""
    is_truncated: bool = False
    is_dark: bool = False

    @property
    def upright_size(self) -> tuple[int, int]:
        """Width and height after the turn that EXIF asks for, px."""
        swap = self.orientation >= 5
        return (self.height, self.width) if swap else (self.width, self.height)


def read_image(path: str | Path, *, turn: int = 1) -> np.ndarray:
    """Return a picture file as RGB.

    Args:
        path: any name the file system takes.
        turn: EXIF orientation (1 to 8) to apply to the stored pixels; 1 leaves them.

    Returns:
        (H, W, 3) uint8. Grey is repeated; palettes are looked up; transparency is dropped (the
        colours under it show); CMYK is converted; of 16 bits the upper 8 are kept; of several
        frames the first is taken.

    Raises:
        DatasetError: if the file cannot be read, is no picture or is too large to be decoded.
    """
    return decode_image(_bytes_of(Path(path)), turn=turn, name=str(path))


def read_mask(path: str | Path) -> np.ndarray:
    """Return a picture of numbers as it is stored.

    Args:
        path: a grey picture without loss, PNG mostly.

    Returns:
        (H, W) uint8; of 16 bits the upper 8 are kept, colours become their luminance.

    Raises:
        DatasetError: if the file cannot be read, is no picture or is too large to be decoded.
    """
    data = _bytes_of(Path(path))
    _header(data, name=str(path))
    mask = _decode(data, MASK_FLAGS)
    if mask is None:
        raise _no_picture(data, str(path))
    return mask


def decode_image(data: bytes, *, turn: int | None = None, name: str = "picture") -> np.ndarray:
    """Return encoded bytes as RGB, as `read_image` does.

    Args:
        data: a whole picture file.
        turn: EXIF orientation to apply; None takes the one in the bytes.
        name: what messages call it.

    Returns:
        (H, W, 3) uint8.

    Raises:
        DatasetError: if the bytes are no picture, or one that is too large to be decoded.
    """
    header = _header(data, name=name)
    pixels = _decode(data)
    if pixels is None and data.startswith(JPEG_START):
        # From memory the decoder refuses a JPEG without its end mark; given one, it pads with
        # grey as it does for files.
        pixels = _decode(data + JPEG_END)
    if pixels is None:
        raise _no_picture(data, name)
    return turn_pixels(pixels, header.orientation if turn is None else turn)


def turn_pixels(pixels: np.ndarray, turn: int) -> np.ndarray:
    """Return the stored pixels turned as an EXIF orientation asks.

    Args:
        pixels: (H, W, 3) uint8.
        turn: 1 to 8; other values mean nothing and leave the picture as it is.

    Returns:
        (H, W, 3) or, for 5 to 8, (W, H, 3) uint8, contiguous.

    Source: Exif 2.32, tag 0x0112.
    """
    if turn not in range(2, 9):
        return pixels
    if turn >= 5:
        pixels = cv2.transpose(pixels)
    if turn in (2, 6):
        return cv2.flip(pixels, 1)
    if turn in (4, 8):
        return cv2.flip(pixels, 0)
    return cv2.flip(pixels, -1) if turn in (3, 7) else pixels


def probe_image(path: str | Path) -> ImageInfo:
    """Return a picture's size, orientation and content digest without decoding its pixels.

    Only what header and decoder may disagree on (rare formats, 16 bits, truncated files) is
    decoded, to be sure that it can be.

    Raises:
        DatasetError: if the file cannot be read, is no picture or is too large to be decoded.
    """
    data = _bytes_of(Path(path))
    content = hashlib.sha256(data).hexdigest()
    header = _header(data, name=str(path))
    is_truncated = _ends_early(data, header.format)
    is_sure = header.format in SURE_FORMATS
    if header.format == "PNG" and not _png_is_intact(data):
        is_sure = False  # such a file ends a training hours later
    if is_sure and not header.is_deep and not is_truncated:
        return ImageInfo(header.width, header.height, header.orientation, content)
    pixels = decode_image(data, turn=1, name=str(path))
    return ImageInfo(
        width=pixels.shape[1],
        height=pixels.shape[0],
        orientation=header.orientation,
        content=content,
        is_truncated=is_truncated,
        is_dark=header.is_deep and int(pixels.max()) <= DARK_LIMIT,
    )


def _header(data: bytes, *, name: str) -> PictureHeader:
    """Return the header; a picture whose size nobody can tell beforehand is not decoded."""
    header = read_header(data, name=name)
    if header is None:
        raise _no_picture(data, name)
    return header


def _no_picture(data: bytes, name: str) -> DatasetError:
    found = f"{len(data)} bytes, first ones {data[:8]!r}" if data else "the file is empty"
    return DatasetError(f"{name}: not a picture that can be decoded ({found})")


def _bytes_of(path: Path) -> bytes:
    try:
        return read_regular(path, largest=LARGEST_PICTURE)
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # a null byte in the name
        raise DatasetError(f"{str(path)!r}: cannot be read: {error}") from error


def _decode(data: bytes, flags: int = DECODE_FLAGS) -> np.ndarray | None:
    try:
        return cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error:  # more pixels than the library takes, for one
        return None


def _ends_early(data: bytes, kind: str) -> bool:
    """Tell whether a file lacks its format's end."""
    if kind in ("JPEG", "MPO"):
        return data.rfind(JPEG_END) < _jpeg_scan_start(data)
    if kind == "PNG":
        return b"IEND" not in data[-4096:]
    if kind == "WEBP":
        return len(data) < int.from_bytes(data[4:8], "little") + 8
    return False


def _png_is_intact(data: bytes) -> bool:
    """Tell whether every chunk matches its checksum. Source: PNG specification, section 5.3."""
    at, view = len(PNG_START), memoryview(data)
    while at + 12 <= len(data):
        end = at + 8 + int.from_bytes(view[at : at + 4])
        if end + 4 > len(data) or zlib.crc32(view[at + 4 : end]) != int.from_bytes(
            view[end : end + 4]
        ):
            return False
        if data[at + 4 : at + 8] == b"IEND":
            return True
        at = end + 4
    return False


def _jpeg_scan_start(data: bytes) -> int:
    """Return where the first scan begins: a thumbnail before it has an end mark of its own."""
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF and data[at + 1] != 0xDA:
        if data[at + 1] == 0xFF:  # a fill byte
            at += 1
            continue
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return min(at, len(data))
