"""A picture's size is looked at before it is decoded: in data sets, in `predict`, behind HTTP."""

import base64
import struct
import zlib

import cv2
import numpy as np
import pytest

from readers.coco import read_coco, write_coco
from readers.images import decode_image, probe_image, read_image, read_mask
from readers.picture_header import LARGEST_PIXELS, LARGEST_SIDE, check_size
from readers.records import DatasetError
from tests.builders import draw_records

SIZES = {
    "50,000 px a side": (50_000, 50_000),
    "one side of 50,000 px": (50_000, 1),
    "20,000 px a side": (20_000, 20_000),
    "what a header can say at most": (2**31 - 1, 2**31 - 1),
}


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def bomb(width: int, height: int) -> bytes:
    """A PNG of black bits; sizes up to 20,000 px a side are whole, in less than 60 kB."""
    packer = zlib.compressobj(9)
    row = bytes(1 + (width + 7) // 8)
    rows = height if width * height <= 20_000**2 else 0
    pixels = b"".join(packer.compress(row) for _ in range(rows)) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    parts = [chunk(b"IHDR", header), chunk(b"IDAT", pixels), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@pytest.fixture(params=SIZES)
def picture_bomb(request, monkeypatch):
    """Bytes of a picture that must not reach a decoder."""

    def refuse(*_):
        raise AssertionError("decoded")

    monkeypatch.setattr(cv2, "imdecode", refuse)
    return bomb(*SIZES[request.param])


def test_a_bomb_is_small():
    assert len(bomb(20_000, 20_000)) < 60_000


def test_no_reader_decodes_a_bomb(picture_bomb, tmp_path):
    path = tmp_path / "bomb.png"
    path.write_bytes(picture_bomb)
    for read in (read_image, probe_image, read_mask):
        with pytest.raises(DatasetError, match=r"bomb\.png: too large to be decoded \(.*\): at m"):
            read(path)


def test_no_answer_is_made_of_a_bomb(picture_bomb):
    with pytest.raises(DatasetError, match="too large to be decoded"):
        decode_image(picture_bomb)


@pytest.mark.filterwarnings("ignore:.*type hint is inferred as AnyType:UserWarning")
@pytest.mark.parametrize("form", [bytes, lambda data: base64.b64encode(data).decode()])
def test_the_served_model_refuses_a_bomb(picture_bomb, form):
    from mlflow.exceptions import MlflowException

    from steps.serving import open_picture

    with pytest.raises(
        MlflowException, match=r"row 0: not a readable picture .*too large"
    ) as found:
        open_picture(form(picture_bomb), where="row 0")
    assert found.value.error_code == "INVALID_PARAMETER_VALUE"


def test_a_data_set_drops_a_bomb_and_keeps_the_rest(tmp_path):
    records = draw_records(tmp_path / "images", images=12)
    annotations = tmp_path / "instances.json"
    write_coco(records, ("red", "green"), images=tmp_path / "images", annotations=annotations)
    records[3].path.write_bytes(bomb(20_000, 20_000))
    found = read_coco(tmp_path / "images", annotations)
    assert len(list(found.records)) == 11
    (finding,) = [each for each in found.findings if each.code == "unreadable-picture"]
    assert "(400000000 px)" in finding.message


def test_a_format_whose_size_nobody_can_tell_is_not_decoded():
    """Radiance pictures: OpenCV decodes them, no parser says beforehand how large they are."""
    _, data = cv2.imencode(".hdr", np.ones((4, 4, 3), np.float32))
    with pytest.raises(DatasetError, match="not a picture that can be decoded"):
        decode_image(data.tobytes())


@pytest.mark.parametrize(
    ("width", "height", "fits"),
    [
        (LARGEST_SIDE, 4096, True),
        (LARGEST_SIDE + 1, 1, False),
        (1, LARGEST_SIDE + 1, False),
        (16_384, LARGEST_PIXELS // 16_384, True),
        (16_384, LARGEST_PIXELS // 16_384 + 1, False),
    ],
)
def test_the_limits_are_these(width, height, fits):
    if fits:
        check_size(width, height, name="a")
    else:
        with pytest.raises(DatasetError, match=f"{width}x{height} px"):
            check_size(width, height, name="a")


def test_decoders_have_a_limit_of_their_own_should_a_header_lie():
    import os
    import subprocess
    import sys

    code = (
        "import os, click; from steps.options import step_command\n"
        "main = step_command()(lambda: click.echo(os.environ['OPENCV_IO_MAX_IMAGE_PIXELS']))\n"
        "main([], standalone_mode=False)"
    )
    environ = {k: v for k, v in os.environ.items() if not k.startswith("OPENCV")}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True)
    assert int(done.stdout) == 2 * LARGEST_PIXELS


def test_a_video_with_frames_that_are_too_large_is_not_decoded(tmp_path, monkeypatch):
    from steps.video import VideoError, VideoReader, VideoWriter

    with VideoWriter(tmp_path / "v", fps=5, width=64, height=48) as writer:
        writer.write(np.zeros((48, 64, 3), np.uint8))
    assert len(list(VideoReader(writer.path))) == 1
    monkeypatch.setattr("readers.picture_header.LARGEST_SIDE", 63)
    with pytest.raises(VideoError, match="64x48 px"):
        VideoReader(writer.path)
