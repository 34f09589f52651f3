"""What `predict` leaves: JSON Lines, a table, drawn pictures or a drawn video.

Beside them, files in the benchmarks' own formats where the task has such. Files that are not
finished yet end in `.part`.
"""

from __future__ import annotations

import csv
import json
import logging
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    import numpy as np

    from tasks.predictor import Predictor

logger = logging.getLogger(__name__)

JSON_LINES, TABLE, DRAWN_FOLDER = "predictions.jsonl", "predictions.csv", "drawn"
PLACE_COLUMNS = ("path", "frame", "time_s")
_DRAWN_ENDINGS = (".jpg", ".jpeg", ".png")


class OutputError(Exception):
    """A folder that predictions cannot go to; one sentence."""

    exit_code = 2


def claim_folder(folder: Path) -> Path:
    """Make a folder for predictions and return it.

    Raises:
        OutputError: if it holds predictions already.
    """
    if (folder / JSON_LINES).exists():
        raise OutputError(f"{folder}: holds {JSON_LINES} already; give another --output")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class PredictionFiles:
    """Takes answers one by one and writes them as they come.

    Args:
        folder: the output folder, claimed.
        predictor: says how its answers look as a table and in other formats.
    """

    def __init__(self, folder: Path, predictor: Predictor) -> None:
        self.folder = folder
        self.num_found = 0
        self.further: list[str] = []
        self._predictor = predictor
        self._shared: dict[str, TextIO] = {}

    def __enter__(self) -> PredictionFiles:
        """Open the files."""
        with ExitStack() as self._open_files:
            self._rows = csv.writer(self._open(TABLE))
            self._rows.writerow((*PLACE_COLUMNS, *self._predictor.columns))
            self._open(JSON_LINES)
            # still open after this block, unless something in it failed
            self._open_files = self._open_files.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the files, and give them their names if nothing went wrong."""
        self._open_files.close()
        if kind is None:
            for name in self._shared:
                (self.folder / f"{name}.part").replace(self.folder / name)

    def add(self, path: str, answer: Mapping[str, Any], *, frame: Mapping[str, Any]) -> None:
        """Write the answer for one picture.

        Args:
            path: what the picture is called, relative to the input.
            answer: what the predictor said.
            frame: `frame` and `time_s` of a video's frame; empty for a picture.
        """
        record = {"path": path, **frame, **answer}
        self._open(JSON_LINES).write(json.dumps(record, ensure_ascii=False) + "\n")
        place = (path, frame.get("frame", ""), frame.get("time_s", ""))
        self._rows.writerows([*place, *row] for row in self._predictor.rows(answer))
        self.num_found += len(answer[self._predictor.unit])
        item = f"{path}/{frame['frame']:06d}" if frame else path
        for name, text in self._predictor.files(item, answer).items():
            self._write(name, text)
        for name, line in self._predictor.lines(item, answer).items():
            self._note(name)
            self._open(name).write(f"{line}\n")

    def add_drawn(self, path: str, picture: np.ndarray) -> Path:
        """Write a drawn picture, (H, W, 3) uint8 RGB, under the picture's own name."""
        import cv2

        target = self._inside(f"{DRAWN_FOLDER}/{path}")
        if target.suffix.lower() not in _DRAWN_ENDINGS:
            target = target.with_name(target.name + ".jpg")
        target.parent.mkdir(parents=True, exist_ok=True)
        _, encoded = cv2.imencode(target.suffix.lower(), picture[:, :, ::-1].copy())
        target.write_bytes(encoded.tobytes())
        return target

    @property
    def shared(self) -> list[Path]:
        """Return the files that all answers share."""
        return [self.folder / name for name in self._shared]

    def _open(self, name: str) -> TextIO:
        if name not in self._shared:
            path = self._inside(f"{name}.part")
            # the csv module ends lines itself
            file = path.open("w", encoding="utf-8", newline="" if name == TABLE else None)
            self._shared[name] = self._open_files.enter_context(file)
        return self._shared[name]

    def _write(self, name: str, text: str) -> None:
        """Write a file of one answer; of two pictures that differ in their endings, the first."""
        path = self._inside(name)
        if path.exists():
            logger.warning("%s: is there already, of a picture of the same name; kept", path)
            return
        self._note(f"{Path(name).parts[0]}/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def _inside(self, name: str) -> Path:
        """Return where a file goes whose name comes from what is predicted on."""
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise OutputError(f"{name!r}: would be written outside of {self.folder}")
        return self.folder / path

    def _note(self, name: str) -> None:
        if name not in self.further:
            self.further.append(name)
