"""Runs that say RUNNING although nobody works on them any more."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from steps.provenance import is_process_alive

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

_DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True)
class Orphan:
    """A run that nobody works on.

    Args:
        run_id: the run.
        name: its name.
        reason: why it counts as orphaned.
        is_certain: whether its process is known to be gone; otherwise it is only old.
    """

    run_id: str
    name: str
    reason: str
    is_certain: bool


def find_orphans(client: MlflowClient) -> Iterator[Orphan]:
    """Yield this machine's runs whose process is gone, and old ones that never had a process."""
    host = socket.gethostname()
    for run in _running(client):
        tags = run.data.tags
        name = run.info.run_name or run.info.run_id
        if "pid" in tags:
            if tags.get("host") == host and not _is_alive(tags):
                reason = f"process {tags['pid']} on {host} is gone"
                yield Orphan(run.info.run_id, name, reason, is_certain=True)
        elif time.time() * 1000 - run.info.start_time > _DAY_MS:
            # MLflow makes the run before the environment; if that fails, nobody ends it
            reason = "older than a day, and its step never started"
            yield Orphan(run.info.run_id, name, reason, is_certain=False)


def close_orphan(client: MlflowClient, orphan: Orphan) -> None:
    """End the run as FAILED, with the reason as tag `failure`."""
    client.set_tag(orphan.run_id, "failure", f"{orphan.reason} (closed by doctor)")
    client.set_terminated(orphan.run_id, "FAILED")


def _is_alive(tags: dict[str, str]) -> bool:
    pid = tags["pid"]
    return pid.isdigit() and is_process_alive(int(pid), tags.get("pid.started"))


def _running(client: MlflowClient) -> Iterator[Run]:
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    token = None
    while experiments:
        page = client.search_runs(
            experiments, "attributes.status = 'RUNNING'", max_results=500, page_token=token
        )
        yield from page
        token = page.token
        if not token:
            return
