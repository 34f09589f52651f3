"""What `predict` leaves: JSON Lines, a table with one box a row, drawn pictures or a drawn video.

Files that are not finished yet end in `.part`.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

JSON_LINES, TABLE, DRAWN_FOLDER = "predictions.jsonl", "predictions.csv", "drawn"
COLUMNS = ("path", "frame", "time_s", "label", "label_id", "score", "x1", "y1", "x2", "y2")
_DRAWN_ENDINGS = (".jpg", ".jpeg", ".png")


class OutputError(Exception):
    """A folder that predictions cannot go to; one sentence."""

    exit_code = 2


class PredictionFiles:
    """Takes answers one by one and writes them as they come.

    Args:
        folder: the output folder.

    Raises:
        OutputError: if it holds predictions already.
    """

    def __init__(self, folder: Path) -> None:
        if (folder / JSON_LINES).exists():
            raise OutputError(f"{folder}: holds {JSON_LINES} already; give another --output")
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.num_boxes = 0

    def __enter__(self) -> PredictionFiles:
        """Open the files."""
        with ExitStack() as stack:
            lines = (self.folder / f"{JSON_LINES}.part").open("w", encoding="utf-8")
            self._lines = stack.enter_context(lines)
            table = (self.folder / f"{TABLE}.part").open("w", encoding="utf-8", newline="")
            self._rows = csv.writer(stack.enter_context(table))
            self._rows.writerow(COLUMNS)
            self._open_files = stack.pop_all()
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
            for name in (JSON_LINES, TABLE):
                (self.folder / f"{name}.part").replace(self.folder / name)

    def add(self, path: str, answer: Mapping[str, Any], *, frame: Mapping[str, Any]) -> None:
        """Write the answer for one picture.

        Args:
            path: what the picture is called, relative to the input.
            answer: what the predictor said.
            frame: `frame` and `time_s` of a video's frame; empty for a picture.
        """
        record = {"path": path, **frame, **answer}
        self._lines.write(json.dumps(record, ensure_ascii=False) + "\n")
        for box, score, label, label_id in zip(
            answer["boxes"], answer["scores"], answer["labels"], answer["label_ids"], strict=True
        ):
            where = (path, frame.get("frame", ""), frame.get("time_s", ""))
            self._rows.writerow([*where, label, label_id, round(score, 5), *_rounded(box)])
        self.num_boxes += len(answer["boxes"])

    def add_drawn(self, path: str, picture: np.ndarray) -> Path:
        """Write a drawn picture, (H, W, 3) uint8 RGB, under the picture's own name."""
        import cv2

        target = self.folder / DRAWN_FOLDER / path
        if target.suffix.lower() not in _DRAWN_ENDINGS:
            target = target.with_name(target.name + ".jpg")
        target.parent.mkdir(parents=True, exist_ok=True)
        _, encoded = cv2.imencode(target.suffix.lower(), picture[:, :, ::-1].copy())
        target.write_bytes(encoded.tobytes())
        return target


def _rounded(box: Sequence[float]) -> list[float]:
    return [round(value, 2) for value in box]
