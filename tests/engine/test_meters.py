import math

import pytest

from engine.meters import SmoothedValue, WindowMeter


def test_smoothed_value_over_window_and_all():
    value = SmoothedValue(window=3)
    for reading, n in [(9.0, 1), (1.0, 2), (4.0, 1), (2.0, 4)]:
        value.update(reading, n)
    assert (value.median, value.max, value.value) == (2.0, 4.0, 2.0)
    assert value.avg == pytest.approx(7 / 3)
    assert value.global_avg == (9 + 2 + 4 + 8) / 8


def test_median_of_an_even_window_is_the_lower():
    value = SmoothedValue(window=4)
    for reading in (4.0, 1.0, 3.0, 2.0):
        value.update(reading)
    assert value.median == 2.0


def test_window_means_are_per_item():
    window = WindowMeter()
    window.add("a", 6.0, count=2)
    window.add("a", 3.0)
    window.add("b", math.inf)
    assert window.means() == {"a": 3.0}
    assert (window.sum("a"), window.count("a"), window.sum("b")) == (9.0, 3, 0.0)


def test_saved_window_goes_on():
    window, other = WindowMeter(), WindowMeter()
    window.add("a", 1.0)
    other.load_state_dict(window.state_dict())
    window.clear()
    other.add("a", 2.0)
    assert other.means() == {"a": 1.5}
    assert window.means() == {}
