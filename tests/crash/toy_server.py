"""Trains the toy task in processes that end at chosen moments, many a minute.

Importing torch takes seconds, so one process does it and forks a training for each plan: a JSON
line on standard input. It answers with the training's process id, and with how it ended.

A plan: `folder`, `workers`, `phase` and `call` (when to end itself; empty for not at all),
`signal` (`kill` or `term`), `is_watched` (note what would outlive a power cut).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from engine.checkpoint import CheckpointStore, _HashingWriter
from engine.contract import NullLog, RunLog
from engine.interrupt import Interrupted, Interruption
from engine.loop import fit
from tests.crash.ending import SIGNALS, Countdown, DurableFolder
from tests.engine.running import train_config
from tests.engine.toy_task import ToyTask
from tests.engine.train_toy import CONFIG

SETTINGS = {**CONFIG, "checkpoint": {"every_updates": 2, "keep_every_epochs": 2, "keep": 2}}
REPORTED = "reported.jsonl"
CRASHED = 70


class ReportingLog(NullLog):
    """Writes down what is reported as saved, so that it outlives this process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def say(self, **values: Any) -> None:
        os.write(self._file, json.dumps(values).encode() + b"\n")

    def checkpoint(self, path: str, *, kind: str) -> None:
        self.say(kind=kind, name=Path(path).name)

    def progress(self, progress: Any) -> None:
        self.say(done=progress.update)

    def event(self, name: str, message: str, *, step: int) -> None:
        self.say(event=name, message=message, step=step)


def train(plan: dict[str, Any]) -> int:
    folder = Path(plan["folder"])
    interruption = Interruption()
    interruption.install()
    store, log = CheckpointStore(folder / "checkpoints"), ReportingLog(folder / REPORTED)
    log.say(event="started")
    if plan.get("is_watched"):
        DurableFolder(store.directory, folder / "kept")
    countdown = Countdown(plan["phase"], plan["call"], SIGNALS[plan["signal"]])
    countdown.within(CheckpointStore, "save", "save")
    countdown.turn(_HashingWriter, "raise_error", before="save", after="rename")
    for method in ("mark_best", "_link", "prune"):
        countdown.within(CheckpointStore, method, "mark")
    countdown.within(ToyTask, "evaluate", "evaluate")
    countdown.turn(ToyTask, "prepare_batch", before="start", after="train")
    try:
        countdown.begin()
        _fit(plan, store, log, interruption)
    except Interrupted as interrupted:
        return interrupted.exit_code
    finally:
        sys.setprofile(None)
    (folder / "counts.json").write_text(json.dumps(countdown.counts))
    return 0


def _fit(
    plan: dict[str, Any], store: CheckpointStore, log: RunLog, interruption: Interruption
) -> None:
    resume = store.newest()
    log.event("resumed", "", step=0 if resume is None else resume["update"])
    fit(
        ToyTask(),
        train_config(**SETTINGS, workers=plan["workers"]),
        seed=1,
        log=log,
        store=store,
        device=torch.device("cpu"),
        interruption=interruption,
        resume=resume,
    )


def child(plan: dict[str, Any], run: Callable[[dict[str, Any]], int]) -> int:
    """Run a plan in this process, whose output goes to a file."""
    output = os.open(Path(plan["folder"]) / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    try:
        return run(plan)
    except BaseException:
        traceback.print_exc()
        return CRASHED


def serve_forks(run: Callable[[dict[str, Any]], int]) -> None:
    """Run each plan that comes in, in a process of its own."""
    for line in sys.stdin:
        started = time.monotonic()
        pid = os.fork()
        if pid == 0:
            os._exit(child(json.loads(line), run))
        print(json.dumps({"pid": pid}), flush=True)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        print(json.dumps({"code": code, "seconds": time.monotonic() - started}), flush=True)


def warm_up() -> None:
    """Train once: what torch imports at its first use takes as long as a hundred trainings."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        _fit({"workers": 0}, CheckpointStore(Path(folder)), NullLog(), Interruption())


if __name__ == "__main__":
    warm_up()
    serve_forks(train)
