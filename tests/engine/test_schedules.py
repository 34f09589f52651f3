import math

import pytest
from pydantic import TypeAdapter

from engine.config import LinearWarmupConfig, ScheduleConfig, SteppedWarmupConfig
from engine.schedules import (
    SCHEDULES,
    Timeline,
    capped_warmup,
    lagging_lr_factor,
    lr_factor,
)

SCHEDULE = TypeAdapter(ScheduleConfig)
STEPPED = SteppedWarmupConfig(name="stepped", epochs=2, start_factor=0.25)


def factors(schedule, *, epochs=4, updates=1, warmup=None):
    """The factor at each epoch's first update, or at each update."""
    timeline = Timeline.of([updates] * epochs)
    config = SCHEDULE.validate_python(schedule)
    return [
        lr_factor(update, timeline=timeline, schedule=config, warmup=warmup)
        for update in range(timeline.updates)
    ]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ({"name": "constant"}, [1, 1, 1, 1]),
        ({"name": "step", "step_size": 2, "gamma": 0.5}, [1, 1, 0.5, 0.5]),
        ({"name": "multistep", "milestones": [1, 3], "gamma": 0.1}, [1, 0.1, 0.1, 0.01]),
        ({"name": "cosine"}, [1, 0.5 + math.sqrt(2) / 4, 0.5, 0.5 - math.sqrt(2) / 4]),
        ({"name": "cosine", "final_factor": 0.2, "hold": 0.5}, [1, 1, 1, 0.6]),
        ({"name": "linear", "final_factor": 0.1}, [1, 0.7, 0.4, 0.1]),
        ({"name": "log", "final_factor": 0.001}, [1, 0.1, 0.01, 0.001]),
        ({"name": "polynomial", "power": 2}, [1, 9 / 16, 1 / 4, 1 / 16]),
        ({"name": "polynomial", "power": 1, "final_factor": 0.2}, [1, 0.8, 0.6, 0.4]),
    ],
    ids=lambda value: value["name"] if isinstance(value, dict) else "",
)
def test_curves_by_epoch_and_by_update(schedule, expected):
    assert factors(schedule) == pytest.approx(expected)
    # four updates of one epoch, counted each, are the same curve
    by_update = factors(schedule | {"per": "update"}, epochs=1, updates=4)
    assert by_update == pytest.approx(expected)
    assert schedule["name"] in SCHEDULES


def test_epoch_curve_stays_the_same_within_an_epoch():
    schedule = {"name": "linear", "final_factor": 0.5}
    assert factors(schedule, epochs=2, updates=3) == [1, 1, 1, 0.5, 0.5, 0.5]


def test_epochs_of_unequal_length():
    timeline = Timeline.of([2, 5, 1])
    assert [timeline.epoch_of(update) for update in range(8)] == [0, 0, 1, 1, 1, 1, 1, 2]
    assert (timeline.epochs, timeline.updates) == (3, 8)
    assert timeline.epoch_of(8) == 2


@pytest.mark.parametrize("name", ["linear", "log"])
def test_one_epoch_is_at_full_rate(name):
    assert factors({"name": name, "final_factor": 0.1}, epochs=1) == [1]


def test_linear_warmup_multiplies_the_curve():
    warmup = LinearWarmupConfig(name="linear", updates=4, start_factor=0.2)
    schedule = {"name": "step", "step_size": 1, "gamma": 0.5}
    expected = [0.2, 0.4, 0.5 * 0.6, 0.5 * 0.8, 0.25, 0.25]
    assert factors(schedule, epochs=3, updates=2, warmup=warmup) == pytest.approx(expected)


def test_stepped_warmup_comes_before_the_curve():
    schedule = {"name": "log", "final_factor": 0.01}
    expected = [0.25, 0.5, 1, 0.1, 0.01]
    assert factors(schedule, epochs=5, warmup=STEPPED) == pytest.approx(expected)
    by_update = schedule | {"per": "update"}
    expected = [0.25, 0.25, 0.5, 0.5, 1, 0.1**0.4, 0.1**0.8, 0.1**1.2, 0.1**1.6, 0.01]
    assert factors(by_update, epochs=5, updates=2, warmup=STEPPED) == pytest.approx(expected)


def test_linearly_spaced_steps():
    warmup = SteppedWarmupConfig(name="stepped", epochs=3, start_factor=0.4, spacing="linear")
    assert factors({"name": "constant"}, warmup=warmup) == pytest.approx([0.4, 0.6, 0.8, 1])


def test_warmup_may_outlast_the_training():
    assert factors({"name": "cosine"}, epochs=1, warmup=STEPPED) == [0.25]


@pytest.mark.parametrize(
    ("batches", "expected"), [(1, None), (2, 1), (8, 7), (1001, 1000), (5000, 1000)]
)
def test_reference_cuts_the_warmup_to_the_first_epoch(batches, expected):
    warmup = LinearWarmupConfig(name="linear", updates=1000)
    capped = capped_warmup(warmup, first_epoch_batches=batches)
    assert (capped.updates if capped else None) == expected


def test_cut_leaves_other_warmups_alone():
    assert capped_warmup(STEPPED, first_epoch_batches=1) is STEPPED
    assert capped_warmup(None, first_epoch_batches=1) is None


def test_a_lagging_schedule_is_for_the_curves_of_its_seed():
    schedule = SCHEDULE.validate_python({"name": "linear"})
    with pytest.raises(ValueError, match="lr_curve is for train"):
        lagging_lr_factor(0, timeline=Timeline.of([2]), schedule=schedule, warmup=None)
