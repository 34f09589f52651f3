from __future__ import annotations

import math

import pandas as pd
import pytest

from steps.evidence import ItemComparison, compare_items


def _table(path, **quality):
    pd.DataFrame({"image_id": quality.keys(), "quality": quality.values()}).to_parquet(path)
    return path


def test_items_are_compared_by_name_where_both_have_a_quality(tmp_path):
    one = _table(tmp_path / "1.parquet", a=0.5, b=0.2, c=0.9, d=math.nan, only_here=1.0)
    other = _table(tmp_path / "2.parquet", d=0.1, c=0.9, b=0.4, a=0.1)
    assert compare_items(one, other) == ItemComparison(better=1, worse=1, equal=1)


def test_tables_without_a_quality_are_not_compared(tmp_path):
    path = tmp_path / "1.parquet"
    pd.DataFrame({"image_id": ["a"], "iou": [0.5]}).to_parquet(path)
    assert compare_items(path, path) is None


@pytest.mark.parametrize(
    ("better", "worse", "chance"),
    # two-sided binomial by hand: 2 * (1 + 5) / 32, 2 * 1 / 2**6, all equal
    [(4, 1, 0.375), (6, 0, 0.03125), (0, 0, 1.0), (2, 2, 1.0)],
)
def test_the_sign_test_is_two_sided(better, worse, chance):
    assert ItemComparison(better, worse, equal=3).chance == pytest.approx(chance)


def test_it_reads_as_a_sentence():
    text = str(ItemComparison(better=6, worse=0, equal=4))
    assert text == "better on 6, worse on 0 of 10 items (sign test p=0.031)"
