"""CurveLanes' curves: the row and column crossings of a slot pooled in one quadratic."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tasks.lanes.crossings import Crossings
from tasks.lanes.quadratics import fit_quadratics

# points of a curve y(x), and of a curve x(y), as in the reference
POINTS_ALONG_X = 36
POINTS_ALONG_Y = 41


def pooled_curves(
    rows: Crossings, columns: Crossings, *, row_y: np.ndarray, column_x: np.ndarray
) -> Iterator[tuple[int, int, np.ndarray, float]]:
    """Yield picture, slot, points (P, 2) float32 and score of each lane, by picture, then slot.

    A slot has a lane when either kind is kept; the points of the kinds that are kept are pooled.
    Of the least-squares quadratics y(x) and x(y) the one with the smaller mean square residual
    (each in its own direction; x(y) if they are equal) gives 36 points spaced evenly in x, or 41
    spaced evenly in y, between the outermost points.

    Args:
        rows: x at row anchors, all slots.
        columns: y at column anchors, of the same slots.
        row_y: (R,) px.
        column_x: (C,) px.

    Source: the reference's CurveLanes evaluation, with a fit in closed form.
    """
    pictures, places = np.nonzero(rows.is_kept | columns.is_kept)
    if not len(pictures):
        return
    chosen = (pictures, places)
    row_x, column_y = rows.positions[chosen], columns.positions[chosen]
    x = np.concatenate([row_x, np.broadcast_to(column_x, column_y.shape)], axis=1)
    y = np.concatenate([np.broadcast_to(row_y, row_x.shape), column_y], axis=1)
    is_present = np.concatenate([_present(rows, chosen), _present(columns, chosen)], axis=1)
    probability = np.concatenate([rows.probability[chosen], columns.probability[chosen]], axis=1)

    y_of_x = fit_quadratics(x, y, is_present=is_present)
    x_of_y = fit_quadratics(y, x, is_present=is_present)
    is_y_of_x = y_of_x.mean_square < x_of_y.mean_square
    along_x = y_of_x.spaced(POINTS_ALONG_X)
    along_y = x_of_y.spaced(POINTS_ALONG_Y)[..., ::-1]
    scores = (probability * is_present).sum(1) / is_present.sum(1)
    for number, (picture, place) in enumerate(zip(pictures, places, strict=True)):
        points = along_x[number] if is_y_of_x[number] else along_y[number]
        yield int(picture), rows.slots[int(place)], points.astype(np.float32), float(scores[number])


def _present(crossings: Crossings, chosen: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    return crossings.is_present[chosen] & crossings.is_kept[chosen][:, None]
