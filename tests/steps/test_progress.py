"""Progress on a terminal and in a log file."""

import io

import pytest

from engine.contract import Progress
from steps.progress import ProgressDisplay, clock_text

VALUES = {
    "train/loss": 0.4123,
    "train/loss_box": 0.2,
    "lr/backbone": 0.001,
    "lr/all": 0.01,
    "time/images_per_s": 38.21,
    "time/data_s": 0.01,
    "time/step_s": 0.5,
    "memory/peak_gib": 2.134,
}


def _progress(update, epoch=0, values=VALUES):
    return Progress(epoch, 3, update % 100, 100, update, 300, values)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


def test_a_line_tells_all_that_matters(clock):
    stream = io.StringIO()
    display = ProgressDisplay(stream)
    display.show(_progress(10))
    clock[0] = 20.0
    display.show(_progress(20))
    assert stream.getvalue().splitlines()[1] == (
        "epoch 1/3 [20/100] update 20/300  loss 0.4123 box 0.2  lr 0.01  38.2 images/s  data 2 %  "
        "2.13 GiB  left 9:20"
    )


def test_lines_come_every_ten_seconds_each_epoch_and_at_the_end(clock):
    stream = io.StringIO()
    display = ProgressDisplay(stream)
    for second, (update, epoch) in enumerate([(1, 0), (2, 0), (101, 1), (102, 1), (300, 1)]):
        clock[0] = float(second)
        display.show(_progress(update, epoch))
    clock[0] = 15.0
    display.show(_progress(201, 1))
    updates = [line.split("update ")[1].split("/")[0] for line in stream.getvalue().splitlines()]
    assert updates == ["1", "101", "300", "201"]


def test_a_terminal_gets_one_moving_line():
    stream = Terminal()
    display = ProgressDisplay(stream)
    for update in (10, 20, 300):
        display.show(_progress(update))
    display.close()
    assert "100%" in stream.getvalue()
    assert "loss 0.4123" in stream.getvalue()
    assert stream.getvalue().count("\n") == 1


def test_nothing_measured_yet_is_no_error(clock):
    stream = io.StringIO()
    ProgressDisplay(stream).show(_progress(0, values={}))
    assert stream.getvalue() == "epoch 1/3 [0/100] update 0/300\n"


@pytest.mark.parametrize(("seconds", "text"), [(5, "0:05"), (61, "1:01"), (3725.4, "1:02:05")])
def test_durations_read_as_clocks(seconds, text):
    assert clock_text(seconds) == text
