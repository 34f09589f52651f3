"""Quadratic fits and pooled curves, against numpy.polyfit and by hand."""

import numpy as np
import pytest

from tasks.lanes.crossings import Crossings
from tasks.lanes.pooled import pooled_curves
from tasks.lanes.quadratics import fit_quadratics


def test_many_sets_are_fitted_as_polyfit_fits_each():
    random = np.random.RandomState(1)
    t, values = random.rand(6, 30) * 2000 + 300, random.randn(6, 30) * 200
    is_present = random.rand(6, 30) < 0.7

    curves = fit_quadratics(t, values, is_present=is_present)

    at = np.linspace(300, 2300, 7)
    for row in range(6):
        chosen = is_present[row]
        fit = np.polyfit(t[row, chosen], values[row, chosen], 2)
        assert curves.at(at[None])[row] == pytest.approx(np.polyval(fit, at), abs=1e-6)
        residual = values[row, chosen] - np.polyval(fit, t[row, chosen])
        assert curves.mean_square[row] == pytest.approx((residual**2).mean())


@pytest.mark.parametrize(
    ("t", "values", "at", "expected"),
    [
        ([1.0, 3.0, 3.0], [2.0, 5.0, 7.0], 5.0, 10.0),  # a line through (1, 2) and (3, 6)
        ([4.0, 4.0, 4.0], [1.0, 2.0, 6.0], 9.0, 3.0),  # one abscissa: the mean
        ([7.0], [5.0], 0.0, 5.0),
        ([], [], 3.0, 0.0),
    ],
    ids=["two-abscissae", "one-abscissa", "one-point", "none"],
)
def test_too_few_abscissae_give_simpler_curves(t, values, at, expected):
    filled = np.zeros((2, 1, 4))
    filled[0, 0, : len(t)], filled[1, 0, : len(t)] = t, values
    is_present = np.arange(4)[None] < len(t)

    curves = fit_quadratics(filled[0], filled[1], is_present=is_present)

    assert curves.at(np.array([[at]])).item() == pytest.approx(expected)


def one_slot(positions, present, *, kept=True):
    is_present = np.array([[present]], bool)
    return Crossings(
        [0],
        np.array([[positions]], np.float32),
        is_present,
        np.full(is_present.shape, 0.8, np.float32),
        np.array([[kept]]),
    )


def only(curves):
    (curve,) = curves
    return curve


def test_a_steep_lane_is_x_of_y_at_41_points():
    y = np.arange(0, 100, 10, dtype=np.float32)
    x = 50 + (y - 45) ** 2 / 40  # no function y(x)
    nothing = one_slot([0.0], [False], kept=False)

    picture, slot, points, score = only(
        pooled_curves(one_slot(x, [True] * 10), nothing, row_y=y, column_x=np.zeros(1))
    )

    assert (picture, slot, points.shape) == (0, 0, (41, 2))
    assert points[:, 1] == pytest.approx(np.linspace(0, 90, 41))
    assert points[:, 0] == pytest.approx(50 + (points[:, 1] - 45) ** 2 / 40, abs=1e-3)
    assert score == pytest.approx(0.8)


def test_rows_and_columns_share_a_flat_curve_y_of_x_at_36_points():
    column_x = np.arange(0, 200, 20, dtype=np.float32)
    y = 30 + (column_x - 100) ** 2 / 400
    rows = one_slot([130.0, 70.0], [True, False])
    row_y = np.array([30 + 900 / 400, 99], np.float32)

    _, _, points, _ = only(
        pooled_curves(rows, one_slot(y, [True] * 10), row_y=row_y, column_x=column_x)
    )

    assert points.shape == (36, 2)
    assert points[:, 0] == pytest.approx(np.linspace(0, 180, 36), abs=1e-4)
    assert points[:, 1] == pytest.approx(30 + (points[:, 0] - 100) ** 2 / 400, abs=1e-3)


def test_a_kind_that_is_not_kept_adds_no_points():
    y = np.arange(0, 100, 10, dtype=np.float32)
    stray = one_slot([5000.0] * 10, [True] * 10, kept=False)

    _, _, points, _ = only(pooled_curves(one_slot(2 * y, [True] * 10), stray, row_y=y, column_x=y))

    assert points[:, 0] == pytest.approx(2 * points[:, 1], abs=1e-3)
