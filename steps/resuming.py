"""Which training a run goes on from: the named one, or the newest one that did not finish."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steps.experiment import Loaded, load
from steps.options import working_folder
from steps.provenance import is_process_alive, process_tags
from steps.registering import experiment_of_run

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

logger = logging.getLogger(__name__)

AUTO = "auto"


class ResumeError(Exception):
    """A run that cannot be gone on from; one sentence."""

    exit_code = 1


@dataclass(frozen=True)
class Start:
    """What a training begins with.

    Args:
        loaded: the experiment.
        run_id: the run that it goes on from; empty for a fresh start.
        state: the checkpoint's content; None for a fresh start.
        prepare_run: the prepare run of the earlier training, or an empty text.
    """

    loaded: Loaded
    run_id: str = ""
    state: Mapping[str, Any] | None = None
    prepare_run: str = ""


def find_start(config: str | None, overrides: str, *, resume: str, client: MlflowClient) -> Start:
    """Return what a training begins with.

    Args:
        config: YAML of the experiment; None with a run to resume: that run's own.
        overrides: values in place of the file's.
        resume: empty for a fresh start, a run's id, or `auto`.
        client: of the tracking store.

    Raises:
        ResumeError: if the named run has no checkpoint.
    """
    if not resume:
        return Start(load(config, overrides))
    if resume == AUTO:
        loaded = load(config, overrides)
        run = _newest_unfinished(client, loaded)
        if run is None:
            logger.warning("resume=auto: no unfinished run of this experiment; a fresh start")
            return Start(loaded)
        return _start(run, loaded)
    run = _run(client, resume)
    loaded = load(config, overrides) if config else experiment_of_run(resume, overrides)
    return _start(run, loaded)


def _start(run: Run, loaded: Loaded) -> Start:
    run_id = run.info.run_id
    state = _newest_state(run_id)
    if state is None:
        raise ResumeError(
            f"run {run_id}: no whole checkpoint of it is on this machine or in the store; "
            "start afresh, without `resume`"
        )
    return Start(loaded, run_id, state, run.data.tags.get("prepare_run", ""))


def _run(client: MlflowClient, run_id: str) -> Run:
    from mlflow.exceptions import MlflowException

    try:
        run = client.get_run(run_id)
    except MlflowException as error:
        raise ResumeError(
            f"resume={run_id!r}: no such run in {client.tracking_uri}; "
            "give a train run's id, or auto"
        ) from error
    step = run.data.tags.get("step", "unknown")
    if step != "train":
        raise ResumeError(f"resume={run_id}: this is a run of step {step!r}, not of `train`")
    if _is_alive(run):
        raise ResumeError(f"resume={run_id}: this run is still training, process {_pid(run)}")
    return run


def _newest_unfinished(client: MlflowClient, loaded: Loaded) -> Run | None:
    """Return the newest train run of this very experiment that ended early and left a state."""
    runs = client.search_runs(
        experiment_ids=[e.experiment_id for e in client.search_experiments()],
        filter_string=f"tags.step = 'train' and tags.`config.digest` = '{loaded.digest}'",
        order_by=["attributes.start_time DESC"],
        max_results=50,
    )
    own = os.environ.get("MLFLOW_RUN_ID", "")
    for run in runs:
        if run.info.run_id == own or _is_alive(run):
            continue
        if run.info.status == "FINISHED":
            return None  # what is unfinished before it was gone on from, or given up
        if _newest_state(run.info.run_id) is not None:
            return run
    return None


def _is_alive(run: Run) -> bool:
    tags = run.data.tags
    if run.info.status != "RUNNING" or tags.get("host") != process_tags()["host"]:
        return False
    pid = _pid(run)
    return pid.isdigit() and is_process_alive(int(pid), tags.get("pid.started"))


def _pid(run: Run) -> str:
    return str(run.data.tags.get("pid", ""))


def _newest_state(run_id: str) -> Mapping[str, Any] | None:
    """Return the newest whole state, from this machine's disk or else from the store."""
    from engine.checkpoint import CheckpointError, CheckpointStore

    folder = working_folder() / "runs" / run_id
    state = CheckpointStore(folder / "checkpoints").newest()
    if state is not None:
        return state
    fetched = _fetch_checkpoint(run_id, folder / "fetched")
    if fetched is None:
        return None
    try:
        return CheckpointStore(fetched.parent).load(fetched)
    except CheckpointError as error:
        logger.warning("%s", error)
        return None


def _fetch_checkpoint(run_id: str, destination: Path) -> Path | None:
    import mlflow
    from mlflow.exceptions import MlflowException

    destination.mkdir(parents=True, exist_ok=True)
    try:
        return Path(
            mlflow.artifacts.download_artifacts(
                run_id=run_id, artifact_path="checkpoints/last.pt", dst_path=str(destination)
            )
        )
    except (MlflowException, OSError):
        return None
