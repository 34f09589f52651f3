"""What logging 12 metrics a step costs the training thread, against a step of 50 ms."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from benchmarks.pairs import Ratio
from steps.run_log import Channel, MlflowRunLog
from steps.spool import SpoolInfo

STEPS, STEP_MS, METRICS = 2000, 50.0, 12


@contextmanager
def local_run_log(folder: Path) -> Iterator[MlflowRunLog]:
    """Open the log of a run in a SQLite store of its own; the sender works as in a training."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{_store()}")
    run = client.create_run("0")
    info = SpoolInfo(run.info.run_id, client.tracking_uri, "train")
    log = MlflowRunLog(Channel(folder / "spool", info, client))
    try:
        yield log
    finally:
        log.finish(60.0, patience_s=10.0)


def measure() -> list[Ratio]:
    """Return the median share of a 50 ms step that one call takes, in per cent."""
    values = {f"train/term_{i}": 0.5 + i for i in range(METRICS)}
    shares = []
    with tempfile.TemporaryDirectory() as folder, local_run_log(Path(folder)) as log:
        for step in range(STEPS):
            begin = time.perf_counter()
            log.metrics(values, step=step)
            shares.append(100 * 1e3 * (time.perf_counter() - begin) / STEP_MS)
            time.sleep(0.001)
    shares.sort()
    median, low, high = shares[len(shares) // 2], shares[0], shares[int(0.99 * len(shares))]
    detail = f"{STEPS} calls of {METRICS} metrics, spread to the 99th percentile"
    met = median < 1
    return [Ratio("logging", median, (low, high), "% of a 50 ms step", "< 1", met, detail)]


@cache
def _store() -> Path:
    """Return a fresh store, made once a process; it goes with the temporary folder."""
    from steps.tracking_store import init_store

    path = Path(tempfile.mkdtemp(prefix="sightflow-bench-")) / "mlflow.db"
    init_store(f"sqlite:///{path}")
    return path
