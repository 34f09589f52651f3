"""Ends a step of the chain at a chosen moment; Python imports it where PYTHONPATH says so.

`SIGHTFLOW_CRASH_PLAN` is JSON: `step`, `write` (the n-th time that something is written below
`folders`), `whom` (`step`: the step's process is killed; `all`: the main job's as well; `term`: the
main job gets a SIGTERM) and `notes`, a folder for process ids and for what happened. A step that
ends before its n-th write is ended as it ends.
"""

import atexit
import json
import os
import signal
import sys
from pathlib import Path

WRITES = {"os.rename", "os.link", "os.remove", "os.mkdir", "os.truncate", "os.rmdir"}


class Plan:
    def __init__(self, values, step):
        self.values, self.step = values, step
        self.notes = Path(values["notes"])
        self.process = os.getpid()
        self.num_writes = 0
        self.is_done = self._marker.exists()

    @property
    def _marker(self):
        return self.notes / "happened.json"

    def begin(self):
        if self.step == "main":
            (self.notes / "main.pid").write_text(str(self.process))
        elif self.step == self.values["step"] and not self.is_done:
            sys.addaudithook(self._count)
            atexit.register(self._fire)

    def _count(self, event, arguments):
        if self.is_done or os.getpid() != self.process or not _is_write(event, arguments):
            return
        path = arguments[0]
        if isinstance(path, (str, Path)) and str(path).startswith(tuple(self.values["folders"])):
            self.num_writes += 1
            if self.num_writes == self.values["write"]:
                self._fire()

    def _fire(self):
        if self.is_done or os.getpid() != self.process:
            return
        self.is_done = True
        self._marker.write_text(json.dumps({"writes": self.num_writes}))
        main = int((self.notes / "main.pid").read_text())
        if self.values["whom"] == "term":
            os.kill(main, signal.SIGTERM)
            return
        if self.values["whom"] == "all":
            os.kill(main, signal.SIGKILL)
        os.kill(self.process, signal.SIGKILL)


def _is_write(event, arguments):
    if event == "open":
        return isinstance(arguments[2], int) and bool(arguments[2] & (os.O_WRONLY | os.O_RDWR))
    return event in WRITES


def _step():
    words = sys.orig_argv
    module = words[words.index("-m") + 1] if "-m" in words[:-1] else ""
    return module.removeprefix("steps.") if module.startswith("steps.") else ""


if os.environ.get("SIGHTFLOW_CRASH_PLAN") and _step():
    Plan(json.loads(os.environ["SIGHTFLOW_CRASH_PLAN"]), _step()).begin()
