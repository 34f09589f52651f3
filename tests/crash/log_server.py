"""Writes run logs in processes that end at chosen moments; like `tests.crash.toy_server`.

A plan: `folder`, `phase` (`log` to end at a call, empty for not at all), `call`, `signal`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any

import mlflow.entities  # noqa: F401  (takes seconds; the forked processes have it)

from steps.run_log import Channel, MlflowRunLog
from steps.spool import SpoolInfo
from tests.crash.ending import SIGNALS, Countdown
from tests.crash.toy_server import REPORTED, serve_forks

RUN = "a" * 32
POINTS = 150
TAKEN, ARTIFACTS = "taken.jsonl", "artifacts"


class FileStore:
    """Stands for the tracking store: takes a call whole or not at all, and outlives its caller."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def log_batch(self, run_id: str, metrics: Any, params: Any, tags: Any) -> None:
        rows = [[m.key, m.step, m.timestamp, m.value] for m in metrics]
        with (self.folder / TAKEN).open("ab", buffering=0) as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows).encode())
        time.sleep(0.002)  # the answer takes its time: the caller may be gone by then

    def log_artifact(self, run_id: str, local: str, folder: str | None) -> None:
        target = self.folder / ARTIFACTS / (folder or "")
        target.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(local, target / Path(local).name)

    def set_terminated(self, run_id: str, status: str, end_time: int) -> None:
        (self.folder / "status").write_text(status)


def log(plan: dict[str, Any]) -> int:
    folder = Path(plan["folder"])
    reported = os.open(folder / REPORTED, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    countdown = Countdown(plan["phase"], plan["call"], SIGNALS[plan["signal"]])
    countdown.phase = "log"
    countdown.counts = {"log": 0}
    threading.setprofile(countdown.count)  # the threads that write and send
    countdown.begin()
    info = SpoolInfo(RUN, "http://127.0.0.1:9", "train")
    run_log = MlflowRunLog(Channel(folder / RUN, info, FileStore(folder)))
    for step in range(POINTS):
        run_log.metrics({"train/loss": step / 7, "lr/all": 0.1}, step=step)
        if step % 10 == 9:
            run_log.write()
            os.write(reported, json.dumps({"written": step}).encode() + b"\n")
        if step % 30 == 29:
            state = folder / f"update-{step}.pt"
            state.write_bytes(bytes([step]) * 3000)
            run_log.checkpoint(str(state), kind="every")
            os.write(reported, json.dumps({"file": state.name}).encode() + b"\n")
        time.sleep(0.001)
    run_log.finish(20.0, patience_s=5.0)
    sys.setprofile(None)
    (folder / "counts.json").write_text(json.dumps(countdown.counts))
    return 0


if __name__ == "__main__":
    serve_forks(log)
