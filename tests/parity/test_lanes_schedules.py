"""The lane seed's learning rates, as they were in force at each update."""

import json

import pytest

from engine.config import CosineConfig, LinearWarmupConfig, MultistepConfig
from engine.schedules import Timeline, lagging_lr_factor, lr_factor


def parts(case):
    if case["scheduler"] == "cos":
        schedule = CosineConfig(name="cosine", per="update")
    else:
        milestones = tuple(sorted(case["steps"]))
        schedule = MultistepConfig(name="multistep", milestones=milestones, gamma=case["gamma"])
    updates = case["warmup_iters"] or case["iters_per_epoch"]
    warmup = None
    if case["warmup"] == "linear":
        warmup = LinearWarmupConfig(name="linear", updates=updates, start_factor=0)
    timeline = Timeline.of([case["iters_per_epoch"]] * case["epochs"])
    return {"timeline": timeline, "schedule": schedule, "warmup": warmup}


@pytest.mark.fixture_kind("lanes", "lr_curves")
def test_the_reference_curve_lags_one_update_behind(fixture_file):
    for case in json.loads(fixture_file.read_text(encoding="utf-8")):
        found = [
            case["base_lr"] * lagging_lr_factor(update, **parts(case)) for update in case["iters"]
        ]
        assert found == pytest.approx(case["lr"], rel=1e-12), case["name"]


@pytest.mark.fixture_kind("lanes", "lr_curves")
def test_our_curve_begins_low_and_reaches_the_full_rate(fixture_file):
    for case in json.loads(fixture_file.read_text(encoding="utf-8")):
        given = parts(case)
        assert lr_factor(0, **given) == 0
        assert lr_factor(given["warmup"].updates, **given) >= 0.5
