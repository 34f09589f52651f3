"""What the evaluate step leaves to look at: plots and tables."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from tasks.detection.drawing import class_colour
from tasks.detection.metrics import CocoResult

# more classes than this are shown as their mean alone
MOST_CURVES = 12


def plot_precision_recall(result: CocoResult) -> bytes:
    """Return a PNG with precision over recall at IoU 0.5 and 0.75, by class and on average."""
    figure = Figure(figsize=(7, 5), layout="constrained")
    axes = figure.add_subplot()
    recall = result.curves["recall"]
    names = result.per_class["class"]
    if len(names) <= MOST_CURVES:
        for label, name in enumerate(names):
            colour = np.array(class_colour(label)) * 0.8 / 255
            axes.plot(
                recall, result.curves["precision_50"][label], color=colour, lw=1, label=str(name)
            )
    for key, style, text in (
        ("mean_50", "-", f"mean, IoU .50: AP {result.stats['mAP_50']:.3f}"),
        ("mean_75", "--", f"mean, IoU .75: AP {result.stats['mAP_75']:.3f}"),
    ):
        axes.plot(recall, result.curves[key], color="black", ls=style, lw=2, label=text)
    axes.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.02))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower left", fontsize="small")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


def slices_table(result: CocoResult) -> dict[str, Sequence[Any]]:
    """Return all slices as one table; the column `by` says what the objects are sliced by."""
    columns: dict[str, list[Any]] = {}
    for by, table in result.slices.items():
        for name, values in {"by": [by] * len(table["slice"]), **table}.items():
            columns.setdefault(name, []).extend(values)
    return dict(columns)
