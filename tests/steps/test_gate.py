from __future__ import annotations

import json
import math

import pytest

from steps.gate import Champion, judge
from steps.gate_page import gate_page
from tasks.config import GateConfig


def _gate(min_change: float | None = None, **thresholds: float) -> GateConfig:
    champion = None if min_change is None else {"metric": "mAP", "min_change": min_change}
    return GateConfig.model_validate({"thresholds": thresholds, "champion": champion})


@pytest.mark.parametrize(
    ("scores", "passed", "reason"),
    [
        ({"mAP": 0.5}, True, "mAP is 0.5, at least 0.5"),
        ({"mAP": 0.49999}, False, "mAP is 0.49999, below 0.5"),
        ({}, False, "mAP was not measured"),
        ({"mAP": math.nan}, False, "mAP is not a number (not defined on this data)"),
    ],
    ids=["equal", "below", "missing", "nan"],
)
def test_a_threshold_is_the_least_value_that_passes(scores, passed, reason):
    report = judge(scores, _gate(mAP=0.5), champion=None)
    assert report.passed is passed
    assert report.checks[0].reason == reason


@pytest.mark.parametrize(
    ("score", "min_change", "passed"),
    [
        (0.6, 0.0, True),
        (0.59, 0.0, False),
        (0.7, 0.1, True),
        (0.65, 0.1, False),
        (0.55, -0.1, True),
    ],
)
def test_the_champion_must_be_beaten_by_the_least_change(score, min_change, passed):
    champion = Champion("3", {"mAP": 0.6})
    assert judge({"mAP": score}, _gate(min_change), champion=champion).passed is passed


def test_without_a_champion_only_the_thresholds_count():
    report = judge({"mAP": 0.4}, _gate(0.0, mAP=0.3), champion=None)
    assert report.passed
    assert [check.name for check in report.checks] == ["mAP"]


def test_a_champion_scored_on_other_data_fails_the_gate_and_says_what_to_run():
    champion = Champion("3", None, advice="run `mlflow run . -e evaluate`")
    report = judge({"mAP": 0.9}, _gate(0.0), champion=champion)
    assert not report.passed
    assert "version 3" in report.verdict
    assert report.verdict.endswith("run `mlflow run . -e evaluate`")


@pytest.mark.parametrize("other", [{}, {"mAP": math.nan}], ids=["missing", "nan"])
def test_a_champion_without_the_score_fails_the_gate(other):
    report = judge({"mAP": 0.9}, _gate(0.0), champion=Champion("3", other))
    assert not report.passed
    assert "not comparable with champion (version 3)" in report.verdict


def test_a_gate_that_asks_nothing_passes():
    assert judge({}, GateConfig(), champion=None).passed


def test_the_report_is_plain_json_even_for_a_score_that_is_not_a_number():
    report = judge({"mAP": math.nan}, _gate(mAP=0.5), champion=None)
    text = json.dumps(report.as_dict(), allow_nan=False)
    assert json.loads(text)["checks"][0]["value"] is None


def test_the_page_says_the_verdict_first_and_escapes_what_it_shows():
    page = gate_page(judge({"a<b": 0.1}, _gate(**{"a<b": 0.5}), champion=None), title="x", facts={})
    heading = page.split("<h1", 1)[1].split("</h1>")[0]
    assert "gate failed: a&lt;b is 0.1, below 0.5" in heading
    assert "<b is" not in page
