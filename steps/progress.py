"""Where training stands: a bar on a terminal, a line now and then elsewhere.

epoch 3/20 [15/40] update 95/800  loss 0.4 classifier 0.2  lr 0.005  38.2 images/s  left 6:12
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from engine.contract import Progress

LINE_EVERY_S = 10.0
_MOST_TERMS = 5
# an update's duration is averaged over about this many reports
_SMOOTHING = 0.3


class ProgressDisplay:
    """Shows a training's progress on a stream.

    Args:
        stream: None is the standard error output as it is at the first report.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._bar: Any = None
        self._last_line = float("-inf")
        self._last_epoch = -1
        self._pace = _Pace()

    def show(self, progress: Progress) -> None:
        """Bring the display up to date."""
        self._pace.note(progress.update, time.monotonic())
        stream = self._stream or sys.stderr
        if stream.isatty():
            self._move_bar(progress, stream)
        else:
            self._maybe_line(progress, stream)

    def close(self) -> None:
        """Leave the bar as it is and end its line."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _move_bar(self, progress: Progress, stream: TextIO) -> None:
        if self._bar is None:
            from tqdm import tqdm

            self._bar = tqdm(
                total=progress.num_updates,
                initial=progress.update,
                file=stream,
                unit="update",
                dynamic_ncols=True,
                bar_format="{percentage:3.0f}%|{bar:12}| {desc}",
            )
        self._bar.set_description_str(self._text(progress), refresh=False)
        self._bar.update(progress.update - self._bar.n)
        self._bar.refresh()

    def _maybe_line(self, progress: Progress, stream: TextIO) -> None:
        now = time.monotonic()
        is_end = progress.update == progress.num_updates
        is_new_epoch = progress.epoch != self._last_epoch
        if now - self._last_line < LINE_EVERY_S and not (is_new_epoch or is_end):
            return
        self._last_line = now
        self._last_epoch = progress.epoch
        stream.write(self._text(progress) + "\n")
        stream.flush()

    def _text(self, progress: Progress) -> str:
        place = (
            f"epoch {progress.epoch + 1}/{progress.epochs} "
            f"[{progress.iteration}/{progress.num_iterations}] "
            f"update {progress.update}/{progress.num_updates}"
        )
        left = self._pace.left_s(progress.num_updates - progress.update)
        parts = [place, _loss_text(progress.values), _rate_text(progress.values)]
        parts.append(f"left {clock_text(left)}" if left is not None else "")
        return "  ".join(part for part in parts if part)


class _Pace:
    """How long an update takes, evaluations and checkpoints included."""

    def __init__(self) -> None:
        self._last: tuple[int, float] | None = None
        self._update_s: float | None = None

    def note(self, update: int, now: float) -> None:
        if self._last is not None and update > self._last[0]:
            taken = (now - self._last[1]) / (update - self._last[0])
            before = self._update_s
            self._update_s = taken if before is None else before + _SMOOTHING * (taken - before)
        if self._last is None or update != self._last[0]:
            self._last = (update, now)

    def left_s(self, updates: int) -> float | None:
        return None if self._update_s is None else self._update_s * updates


def clock_text(seconds: float) -> str:
    """Return a duration as `m:ss` or `h:mm:ss`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _loss_text(values: Mapping[str, float]) -> str:
    terms = {k.removeprefix("train/"): v for k, v in values.items() if k.startswith("train/")}
    total = terms.pop("loss", None)
    largest = sorted(terms.items(), key=lambda item: -abs(item[1]))[:_MOST_TERMS]
    shown = [f"loss {total:.4g}"] if total is not None else []
    # the order of the terms must not jump about from one report to the next
    shown += [f"{_short(name)} {value:.3g}" for name, value in sorted(largest)]
    return " ".join(shown)


def _rate_text(values: Mapping[str, float]) -> str:
    shown = []
    rates = [value for key, value in values.items() if key.startswith("lr/")]
    if rates:
        shown.append(f"lr {max(rates):.3g}")
    if (images := values.get("time/images_per_s")) is not None:
        shown.append(f"{images:.3g} images/s")
    data, step = values.get("time/data_s"), values.get("time/step_s")
    if data is not None and step:
        shown.append(f"data {100 * data / step:.0f} %")
    if (memory := values.get("memory/peak_gib")) is not None:
        shown.append(f"{memory:.2f} GiB")
    return "  ".join(shown)


def _short(name: str) -> str:
    return name.removeprefix("loss_").replace("_loss", "")
