"""What the evaluate step leaves to look at beside the worst pictures: plots of the scores."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tasks.lanes.scores import LaneResult

_TOTAL = "all"
# told apart also without colour: found, found wrongly, missed
_COLOURS = {"tp": "#3b7dd8", "fp": "#f0a202", "fn": "#b3b3b3"}
_MEANINGS = {"tp": "found (TP)", "fp": "found where none is (FP)", "fn": "missed (FN)"}


def plot_scores(result: LaneResult) -> bytes:
    """Return a PNG with the scores, by scene where there are scenes.

    Left, F1 (CULane's measure) or accuracy, false positives and false negatives (TuSimple's);
    right, counts of lanes by scene, or how many pictures have which accuracy.

    Args:
        result: scores of a split.
    """
    names = [_TOTAL, *map(str, result.per_scene.get("scene", ()))]
    figure = Figure(figsize=(10, max(2.6, 1.4 + 0.36 * len(names))), layout="constrained")
    left, right = figure.subplots(1, 2)
    if "accuracy" in result.per_frame:
        _bars(left, {name: result.scores[name] for name in ("accuracy", "FP", "FN", "F1")})
        _histogram(right, result.per_frame["accuracy"])
    else:
        by_scene = zip(names[1:], result.per_scene.get("F1", ()), strict=True)
        _bars(left, {_TOTAL: result.scores["F1"], **dict(by_scene)})
        left.set_xlabel("F1")
        _counts(right, names, result)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


def _bars(axes: Axes, values: Mapping[str, object]) -> None:
    """Draw shares as bars, the first one on top; a score that means nothing has none."""
    numbers = np.array(list(values.values()), np.float64)
    is_known = np.isfinite(numbers) & (numbers >= 0)
    bars = axes.barh(list(values), np.where(is_known, numbers, 0), color=_COLOURS["tp"])
    texts = [f"{n:.3f}" if known else "-" for n, known in zip(numbers, is_known, strict=True)]
    axes.bar_label(bars, texts, padding=3, fontsize="small")
    axes.set(xlim=(0, 1.15))
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)


def _counts(axes: Axes, names: Sequence[str], result: LaneResult) -> None:
    """Draw how many lanes were found, found wrongly and missed, stacked."""
    begin = np.zeros(len(names))
    for kind, colour in _COLOURS.items():
        total = float(np.sum(result.per_frame[kind]))
        counts = np.array([total, *result.per_scene.get(kind, ())], np.float64)
        axes.barh(names, counts, left=begin, color=colour, label=_MEANINGS[kind])
        begin += counts
    axes.set(xlabel="lanes")
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)
    axes.legend(fontsize="small", loc="lower right")


def _histogram(axes: Axes, accuracy: Sequence[float]) -> None:
    axes.hist(np.asarray(accuracy, np.float64), bins=20, range=(0, 1), color=_COLOURS["tp"])
    axes.set(xlabel="accuracy", ylabel="pictures", xlim=(0, 1))
    axes.grid(axis="y", alpha=0.3)
