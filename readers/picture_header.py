"""What a picture's header says: format, size, orientation; and that it may be decoded at all.

A PNG of 50 kB can stand for 400 million pixels, which take gigabytes. So the size is looked at
before a decoder is let near the bytes.
"""

from __future__ import annotations

import io
import re
import struct
from dataclasses import dataclass

from PIL import Image

from readers.records import DatasetError

# OpenCV's warps count in 16 bits.
LARGEST_SIDE = 32_767
# 400 MB as RGB; the largest phone and aerial cameras stay below.
LARGEST_PIXELS = 2**27


@dataclass(frozen=True, slots=True)
class PictureHeader:
    """A header that could be read.

    Args:
        format: Pillow's name of the format.
        width: px of the stored pixels, before any turn.
        height: px of the stored pixels, before any turn.
        orientation: EXIF orientation, 1 to 8; 1 where there is none, or the decoder turns itself.
        is_deep: more than 8 bits a channel.
    """

    format: str
    width: int
    height: int
    orientation: int
    is_deep: bool


def read_header(data: bytes, *, name: str) -> PictureHeader | None:
    """Return a picture's header, or None for bytes that no picture begins with.

    Args:
        data: a whole picture file.
        name: what messages call it.

    Raises:
        DatasetError: if the picture is larger than LARGEST_SIDE or LARGEST_PIXELS.
    """
    try:
        header = _parsed(data)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        count = re.search(r"\d+", str(error))
        raise DatasetError(_too_large(name, f"{count[0] if count else 'many'} px")) from error
    except (OSError, ValueError, SyntaxError, KeyError, IndexError, struct.error):
        return None
    check_size(header.width, header.height, name=name)
    return header


def check_size(width: int, height: int, *, name: str) -> None:
    """Refuse a size that is not decoded.

    Raises:
        DatasetError: if it is larger than LARGEST_SIDE or LARGEST_PIXELS.
    """
    if max(width, height) > LARGEST_SIDE or width * height > LARGEST_PIXELS:
        raise DatasetError(_too_large(name, f"{width}x{height} px"))


def _too_large(name: str, size: str) -> str:
    return (
        f"{name}: too large to be decoded ({size}): at most {LARGEST_SIDE} px a side and "
        f"{LARGEST_PIXELS // 10**6} million in all are taken; cut it into parts"
    )


def _parsed(data: bytes) -> PictureHeader:
    with Image.open(io.BytesIO(data)) as picture:
        exif = picture.info.get("exif", b"")
        # OpenCV turns TIFF itself, whatever the flags, and the parser gives that size.
        is_turned = picture.format == "TIFF" or not isinstance(exif, bytes)
        return PictureHeader(
            format=str(picture.format),
            width=picture.width,
            height=picture.height,
            orientation=1 if is_turned else _exif_orientation(exif),
            is_deep=picture.format in ("PNG", "TIFF") and _is_deep(data, picture),
        )


def _is_deep(data: bytes, picture: Image.Image) -> bool:
    if picture.format == "PNG":
        return len(data) > 24 and data[24] == 16  # bit depth in IHDR
    bits = getattr(picture, "tag_v2", {}).get(258, 8)  # BitsPerSample
    return max(bits if isinstance(bits, tuple) else (bits,)) > 8


def _exif_orientation(exif: bytes) -> int:
    """Return tag 0x0112 of the first directory; 1 where it is absent, broken or meaningless."""
    tiff = exif.removeprefix(b"Exif\x00\x00")
    order = {b"II": "<", b"MM": ">"}.get(tiff[:2])
    if order is None:
        return 1
    try:
        (start,) = struct.unpack_from(order + "I", tiff, 4)
        (entries,) = struct.unpack_from(order + "H", tiff, start)
        for entry in range(entries):
            at = start + 2 + 12 * entry
            tag, kind, _ = struct.unpack_from(order + "HHI", tiff, at)
            if tag == 0x0112:
                (value,) = struct.unpack_from(order + ("I" if kind == 4 else "H"), tiff, at + 8)
                return value if value in range(1, 9) else 1
    except struct.error:
        return 1
    return 1
