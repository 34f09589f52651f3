"""The seed of the crash matrix is printed; the toy's trainings are forked from one process."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.crash.seeds import extent, seed
from tests.steps.conftest import client, empty_database, store  # noqa: F401  (fixtures)

ROOT = Path(__file__).parents[2]


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(
        f"crash matrix: {extent()} of its cases, seed {seed()} "
        f"(SIGHTFLOW_CRASH_SEED={seed()} repeats them)"
    )


class ForkServer:
    """A process that forks others, which end at chosen moments."""

    def __init__(self, process):
        self._process = process

    def start(self, **plan):
        """Start a training; return its process id."""
        values = {"workers": 0, "phase": "", "call": 0, "signal": "kill", **plan}
        values["folder"] = str(values["folder"])
        self._process.stdin.write(json.dumps(values) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())["pid"]

    def wait(self):
        """Wait for the training; return its exit code (below 0: the signal) and its seconds."""
        answer = json.loads(self._process.stdout.readline())
        return answer["code"], answer["seconds"]

    def kill_after(self, pid, seconds):
        """Kill the training at a time; return its exit code."""
        time.sleep(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return self.wait()[0]

    def run(self, **plan):
        self.start(**plan)
        return self.wait()


@contextlib.contextmanager
def _serving(module):
    process = subprocess.Popen(
        [sys.executable, "-m", module],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield ForkServer(process)
    finally:
        process.stdin.close()
        assert process.wait(60) == 0


@pytest.fixture(scope="session")
def toy_server():
    with _serving("tests.crash.toy_server") as server:
        yield server


@pytest.fixture(scope="session")
def log_server():
    with _serving("tests.crash.log_server") as server:
        yield server
