from __future__ import annotations

import io
import struct
import zlib

import cv2
import numpy as np
import pytest
from PIL import Image, ImageOps

from readers.images import decode_image, probe_image, read_image, read_mask, turn_pixels
from readers.records import DatasetError
from tests.shared import shared_data

# top row red, blue; bottom row green, black; blocks of 16 px
CORNERS = np.kron(
    np.array([[[255, 0, 0], [0, 0, 255]], [[0, 255, 0], [0, 0, 0]]], np.uint8),
    np.ones((16, 24, 1), np.uint8),
)


def encoded(picture, kind, **options) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, kind, **options)
    return buffer.getvalue()


def exif(orientation: int) -> bytes:
    return b"Exif\x00\x00II*\x00\x08\x00\x00\x00" + struct.pack(
        "<HHHIII", 1, 0x0112, 4, 1, orientation, 0
    )


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("PNG", {}),
        ("WEBP", {"lossless": True}),
        ("BMP", {}),
        ("TIFF", {}),
        ("GIF", {}),
        ("JPEG", {"quality": 100, "subsampling": 0}),
    ],
)
def test_each_format_gives_rgb(tmp_path, kind, options):
    path = tmp_path / f"picture.{kind.lower()}"
    path.write_bytes(encoded(CORNERS, kind, **options))
    assert np.abs(read_image(path).astype(int) - CORNERS).max() <= 2
    assert (probe_image(path).width, probe_image(path).height) == (48, 32)


def test_grey_palette_and_alpha_give_three_channels():
    grey = decode_image(encoded(np.full((4, 6), 90, np.uint8), "PNG"))
    assert (grey == 90).all()
    assert grey.shape == (4, 6, 3)
    transparent = np.dstack([CORNERS, np.zeros(CORNERS.shape[:2], np.uint8)])
    assert (decode_image(encoded(transparent, "PNG")) == CORNERS).all()
    buffer = io.BytesIO()
    Image.fromarray(CORNERS).convert("P", palette=Image.Palette.ADAPTIVE).save(buffer, "PNG")
    assert (decode_image(buffer.getvalue()) == CORNERS).all()


def test_cmyk_is_converted():
    ink = np.zeros((8, 8, 4), np.uint8)
    ink[..., 0] = 255  # cyan ink takes the red away
    buffer = io.BytesIO()
    Image.fromarray(ink, "CMYK").save(buffer, "TIFF")
    red, green, blue = decode_image(buffer.getvalue())[0, 0]
    assert red < 20
    assert min(green, blue) > 235


def test_sixteen_bits_keep_the_upper_eight(tmp_path):
    values = np.full((4, 4), 40000, np.uint16)  # 40000 // 256 = 156
    cv2.imwrite(str(tmp_path / "deep.png"), values)
    assert (read_image(tmp_path / "deep.png") == 156).all()
    assert not probe_image(tmp_path / "deep.png").is_dark
    cv2.imwrite(str(tmp_path / "dark.png"), np.full((4, 4), 700, np.uint16))
    assert probe_image(tmp_path / "dark.png").is_dark


@pytest.mark.parametrize("turn", range(1, 9))
def test_turn_is_what_exif_means(turn):
    picture = Image.fromarray(CORNERS)
    picture.getexif()[0x0112] = turn
    expected = np.asarray(ImageOps.exif_transpose(picture))
    turned = turn_pixels(CORNERS, turn)
    assert (turned == expected).all()
    assert turned.flags.c_contiguous


@pytest.mark.parametrize("orientation", [0, 9, 65537])
def test_orientation_without_meaning_leaves_the_picture(tmp_path, orientation):
    path = tmp_path / "odd.jpg"
    path.write_bytes(encoded(CORNERS, "JPEG", exif=exif(orientation)))
    assert probe_image(path).orientation == 1
    assert decode_image(path.read_bytes()).shape == CORNERS.shape


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_reader_turns_only_when_told(tmp_path, kind):
    path = tmp_path / "turned.bin"
    path.write_bytes(encoded(CORNERS, kind, exif=exif(6)))
    info = probe_image(path)
    assert (info.orientation, info.upright_size) == (6, (32, 48))
    assert read_image(path).shape == (32, 48, 3)
    assert read_image(path, turn=6).shape == (48, 32, 3)
    assert decode_image(path.read_bytes()).shape == (48, 32, 3)


def test_names_may_hold_blanks_and_any_letters(tmp_path):
    path = tmp_path / "zwei B\u00e4ume \u6728.png"
    path.write_bytes(encoded(CORNERS, "PNG"))
    assert (read_image(path) == CORNERS).all()


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", b"\xff\xd8\xff"])
def test_what_is_no_picture_is_told_by_name(tmp_path, content):
    path = tmp_path / "broken.jpg"
    path.write_bytes(content)
    for read in (read_image, probe_image):
        with pytest.raises(DatasetError, match=r"broken\.jpg: not a picture"):
            read(path)


def test_missing_file_is_told_by_name(tmp_path):
    with pytest.raises(DatasetError, match=r"gone\.jpg: cannot be read: No such file"):
        read_image(tmp_path / "gone.jpg")


def test_truncated_jpeg_is_filled_and_noted(tmp_path):
    noise = np.random.RandomState(0).randint(0, 256, (64, 64, 3)).astype(np.uint8)
    whole = encoded(noise, "JPEG", exif=exif(1))
    path = tmp_path / "cut.jpg"
    path.write_bytes(whole[: len(whole) // 2])
    assert probe_image(path).is_truncated
    assert read_image(path).shape == (64, 64, 3)
    path.write_bytes(whole + b"trailer of some phone")
    assert not probe_image(path).is_truncated


def test_truncated_png_cannot_be_used(tmp_path):
    whole = encoded(np.random.RandomState(0).randint(0, 256, (64, 64, 3)).astype(np.uint8), "PNG")
    path = tmp_path / "cut.png"
    path.write_bytes(whole[: len(whole) // 8])
    with pytest.raises(DatasetError, match=r"cut\.png"):
        probe_image(path)


def test_damage_within_a_png_is_found_when_it_is_probed(tmp_path):
    path = tmp_path / "a.png"
    noise = np.random.RandomState(0).randint(0, 256, (32, 32, 3), np.uint8)
    data = bytearray(cv2.imencode(".png", noise)[1])
    path.write_bytes(data)
    assert probe_image(path).width == 32
    data[len(data) // 2] ^= 0x5A
    path.write_bytes(data)
    with pytest.raises(DatasetError, match=r"a\.png: not a picture that can be decoded"):
        probe_image(path)


def test_probe_believes_the_header_without_decoding(tmp_path):
    """A PNG whose pixels are rubbish has a size all the same."""

    def chunk(kind, body):
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = struct.pack(">IIBBBBB", 640, 480, 8, 2, 0, 0, 0)
    parts = [chunk(b"IHDR", header), chunk(b"IDAT", b"rubbish"), chunk(b"IEND", b"")]
    path = tmp_path / "header.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))
    info = probe_image(path)
    assert (info.width, info.height) == (640, 480)


def test_content_decides_the_digest(tmp_path):
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(encoded(CORNERS, "PNG"))
    (tmp_path / "c.png").write_bytes(encoded(CORNERS[::-1], "PNG"))
    first, second, third = (probe_image(tmp_path / f"{name}.png").content for name in "abc")
    assert first == second != third


# width, height and EXIF orientation as the files' own documentation says
ODD = {
    "bmp.bmp": (128, 128, 1),
    "cmyk.jpg": (100, 100, 1),
    "exif6_small.jpg": (128, 128, 6),
    "exif_landscape_1.jpg": (1800, 1200, 1),
    "exif_landscape_3.jpg": (1800, 1200, 3),
    "exif_landscape_6.jpg": (1200, 1800, 6),
    "exif_landscape_8.jpg": (1200, 1800, 8),
    "flower.webp": (480, 360, 1),
    "gray_jpeg.jpg": (128, 128, 1),
    "gray_trns.png": (64, 64, 1),
    "palette.gif": (128, 128, 1),
    "png16.png": (128, 64, 1),
    "rgba.png": (200, 150, 1),
    "tiff16.tif": (64, 64, 1),
    "truncated.jpg": (100, 100, 1),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_real_pictures_decode_to_their_size(name):
    path = shared_data(f"detection/odd_images/{name}")
    info = probe_image(path)
    assert (info.width, info.height, info.orientation) == ODD[name]
    assert read_image(path, turn=info.orientation).shape == (*info.upright_size[::-1], 3)
    assert info.is_truncated == (name == "truncated.jpg")


def test_turned_landscapes_show_the_same_scene():
    """The example files hold one scene stored in four turns."""
    folder = shared_data("detection/odd_images")
    upright, *others = (
        cv2.resize(read_image(folder / f"exif_landscape_{turn}.jpg", turn=turn), (180, 120))
        for turn in (1, 3, 6, 8)
    )
    for other in others:
        assert np.abs(upright.astype(int) - other).mean() < 6


@pytest.mark.parametrize("channels", [1, 3])
def test_masks_keep_their_numbers(tmp_path, channels):
    numbers = np.arange(256, dtype=np.uint8).reshape(8, 32)
    path = tmp_path / "mask.png"
    cv2.imwrite(str(path), np.repeat(numbers[..., None], channels, axis=2))
    assert (read_mask(path) == numbers).all()


def test_a_mask_that_is_no_picture_is_named(tmp_path):
    path = tmp_path / "mask.png"
    path.write_bytes(b"text")
    with pytest.raises(DatasetError, match=r"mask\.png: not a picture"):
        read_mask(path)
