"""Training processes that are ended from outside, and their resumed runs."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.running import assert_same, last_state

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
NUM_UPDATES = 12


def start(folder, *, workers, seconds=0.0):
    command = [sys.executable, "-m", "tests.engine.train_toy", folder, workers, seconds]
    return subprocess.Popen(
        [str(part) for part in command],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )


def finish(folder, *, workers):
    process = start(folder, workers=workers)
    output, _ = process.communicate()
    assert process.returncode == 0
    return [int(line) for line in output.split()]


def end_at(folder, update, number, *, workers):
    """Send the signal when the update is done; return the exit status and the last line."""
    process = start(folder, workers=workers, seconds=0.02)
    lines = []
    for line in process.stdout:
        lines.append(line.strip())
        if lines[-1] == str(update):
            process.send_signal(number)
    return process.wait(), lines[-1]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    assert finish(folder, workers=0) == list(range(1, NUM_UPDATES + 1))
    return last_state(folder)


@pytest.mark.parametrize("workers", [0, 2])
def test_killed_three_times_it_ends_as_if_unbroken(tmp_path, unbroken, workers):
    points = sorted(random.Random(workers).sample(range(1, NUM_UPDATES), 3))
    for point in points:
        status, _ = end_at(tmp_path, point, signal.SIGKILL, workers=workers)
        assert status == -signal.SIGKILL
    finish(tmp_path, workers=workers)
    assert_same(last_state(tmp_path), unbroken)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_end_it_loses_no_update(tmp_path, unbroken, number):
    status, last_line = end_at(tmp_path, 5, number, workers=2)
    assert (status, last_line) == (1, f"interrupted by {number.name}")
    assert last_state(tmp_path)["update"] in (5, 6)
    finish(tmp_path, workers=2)
    assert_same(last_state(tmp_path), unbroken)
