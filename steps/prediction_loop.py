"""Predicting on a picture, a folder of pictures or a video, one batch in memory at a time."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from steps.predictions import DRAWN_FOLDER, PredictionFiles
from steps.video import VIDEO_ENDINGS, Frame, VideoReader, VideoWriter

if TYPE_CHECKING:
    import numpy as np

    from tasks.predictor import Predictor

logger = logging.getLogger(__name__)

PICTURE_ENDINGS = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".dib", ".webp", ".tif", ".tiff", ".gif"}
    | {".ppm", ".pgm", ".pbm"}
)
_Item = TypeVar("_Item")


class InputError(Exception):
    """There is nothing to predict on; one sentence."""

    exit_code = 1


@dataclass
class Outcome:
    """What came of a prediction run.

    Args:
        num_pictures: pictures or frames with an answer.
        unreadable: pictures that could not be read, with the reason.
        num_skipped: other files in the folder.
        drawn: files with drawings.
    """

    num_pictures: int = 0
    unreadable: list[str] = field(default_factory=list)
    num_skipped: int = 0
    drawn: list[Path] = field(default_factory=list)


@dataclass(frozen=True)
class Setting:
    """What stays the same over all pictures.

    Args:
        predictor: the model.
        score_threshold: lowest score that is reported, in [0, 1].
        batch_size: pictures per forward pass, > 0.
    """

    predictor: Predictor
    score_threshold: float
    batch_size: int


def predict_all(source: Path, files: PredictionFiles, *, setting: Setting) -> Outcome:
    """Predict on a picture, all pictures below a folder, or a video.

    Args:
        source: file or folder.
        files: where the answers go; open.
        setting: model, drawing and batch size.

    Raises:
        InputError: if there is no such file, or no picture in the folder.
        VideoError: if a video cannot be decoded.
    """
    if source.suffix.lower() in VIDEO_ENDINGS and source.is_file():
        return _predict_video(source, files, setting)
    pictures, num_skipped = find_pictures(source)
    root = source if source.is_dir() else source.parent
    outcome = Outcome(num_skipped=num_skipped)
    readable = _read(pictures, outcome)
    for batch in _batches(readable, setting.batch_size):
        answers = _answers([picture for _, picture in batch], setting)
        for (path, picture), answer in zip(batch, answers, strict=True):
            name = path.relative_to(root).as_posix()
            files.add(name, answer, frame={})
            outcome.drawn.append(files.add_drawn(name, setting.predictor.draw(picture, answer)))
            outcome.num_pictures += 1
    return outcome


def find_pictures(source: Path) -> tuple[list[Path], int]:
    """Return a picture, or a folder's pictures at any depth in order of name, and the rest's count.

    Raises:
        InputError: if there is nothing.
    """
    if source.is_file():
        return [source], 0
    if not source.is_dir():
        raise InputError(f"{source}: no such picture, folder or video")
    entries = sorted(path for path in source.rglob("*") if path.is_file())
    pictures = [path for path in entries if path.suffix.lower() in PICTURE_ENDINGS]
    if not pictures:
        raise InputError(
            f"{source}: none of the {len(entries)} files in it is a picture "
            f"({', '.join(sorted(PICTURE_ENDINGS))})"
        )
    return pictures, len(entries) - len(pictures)


def _predict_video(source: Path, files: PredictionFiles, setting: Setting) -> Outcome:
    reader = VideoReader(source)
    outcome = Outcome()
    target = files.folder / DRAWN_FOLDER / source.stem
    target.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        writer: VideoWriter | None = None
        for batch in _batches(_shown(reader), setting.batch_size):
            answers = _answers([frame.picture for frame in batch], setting)
            for frame, answer in zip(batch, answers, strict=True):
                if writer is None:
                    height, width = frame.picture.shape[:2]
                    writer = VideoWriter(target, fps=reader.fps, width=width, height=height)
                    outcome.drawn.append(stack.enter_context(writer).path)
                files.add(source.name, answer, frame=_place(frame))
                writer.write(setting.predictor.draw(frame.picture, answer))
                outcome.num_pictures += 1
    return outcome


def _place(frame: Frame) -> dict[str, Any]:
    return {"frame": frame.index, "time_s": round(frame.time_s, 4)}


def _answers(pictures: Sequence[np.ndarray], setting: Setting) -> list[dict[str, Any]]:
    return setting.predictor.predict(pictures, score_threshold=setting.score_threshold)


def _read(pictures: Iterable[Path], outcome: Outcome) -> Iterator[tuple[Path, np.ndarray]]:
    """Yield the pictures that can be read, upright; note the others."""
    from readers.images import decode_image
    from readers.records import DatasetError

    for path in _shown(pictures):
        try:
            picture = decode_image(path.read_bytes(), turn=None, name=str(path))
        except (DatasetError, OSError) as error:
            logger.warning("%s", error)
            outcome.unreadable.append(str(error))
            continue
        yield path, picture


def _shown(items: Iterable[_Item]) -> Iterator[_Item]:
    """Pass items on, with a progress bar on a terminal."""
    from tqdm import tqdm

    yield from tqdm(items, unit="picture", disable=None)


def _batches(items: Iterable[_Item], size: int) -> Iterator[list[_Item]]:
    """Cut a stream into lists of `size`."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
