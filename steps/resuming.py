"""Which training a run goes on from: the named one, or the newest one that did not finish."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steps.experiment import PROJECT_FOLDER, Loaded, load
from steps.options import working_folder
from steps.provenance import is_process_alive, process_tags
from steps.registering import experiment_of_run
from steps.tracking_store import without_credentials

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

logger = logging.getLogger(__name__)

AUTO = "auto"
_FILE = re.compile(r"(?P<path>.+\.(?:pth|pt|safetensors))(?:@(?P<epoch>\d+))?")


class ResumeError(Exception):
    """A run that cannot be gone on from; one sentence."""

    exit_code = 1


@dataclass(frozen=True)
class Start:
    """What a training begins with.

    Args:
        loaded: the experiment.
        run_id: the run that it goes on from; empty for a fresh start, and for a file.
        state: the checkpoint's content; None for a fresh start.
        prepare_run: the prepare run of the earlier training, or an empty text.
        dataset: name and digest of the earlier training's data, or an empty text.
        best: checkpoint of its best score; None if there is none, or it cannot be had.
    """

    loaded: Loaded
    run_id: str = ""
    state: Mapping[str, Any] | None = None
    prepare_run: str = ""
    dataset: str = ""
    best: Path | None = None

    @property
    def scored_until(self) -> int:
        """The last update whose evaluation the state knows of; a later one is made again."""
        assert self.state is not None
        update = int(self.state["update"])
        # a state within an epoch, its end included, was written before the epoch's evaluation
        return update if self.state["iteration"] == 0 and update > 0 else update - 1


def find_start(config: str | None, overrides: str, *, resume: str, client: MlflowClient) -> Start:
    """Return what a training begins with.

    Args:
        config: YAML of the experiment; None with a run to resume: that run's own.
        overrides: values in place of the file's.
        resume: empty for a fresh start, a run's id, `auto`, or a checkpoint's file (`FILE`, or
            `FILE@EPOCH` to say with which epoch to go on).
        client: of the tracking store.

    Raises:
        ResumeError: if the named run has no checkpoint.
        WeightsError: if a file cannot be gone on from.
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
    if (file := _FILE.fullmatch(resume)) is not None:
        if not config:
            raise ResumeError(
                f"resume={resume}: a file does not say of which experiment; give config"
            )
        return Start(load(config, overrides), state=_state_of_file(file))
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
    tags = run.data.tags
    return Start(
        loaded,
        run_id,
        state,
        prepare_run=tags.get("prepare_run", ""),
        dataset=tags.get("dataset", ""),
        best=_best_file(run_id, state),
    )


def _state_of_file(file: re.Match[str]) -> Mapping[str, Any]:
    from engine.foreign import read_foreign

    path = Path(file["path"]).expanduser()
    if not path.is_file() and (PROJECT_FOLDER / path).is_file():
        path = PROJECT_FOLDER / path
    return read_foreign(path.absolute(), epoch=int(file["epoch"]) if file["epoch"] else None)


def _run(client: MlflowClient, run_id: str) -> Run:
    from mlflow.exceptions import MlflowException

    try:
        run = client.get_run(run_id)
    except MlflowException as error:
        raise ResumeError(
            f"resume={run_id!r}: no such run in {without_credentials(client.tracking_uri)}; "
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
    from engine.checkpoint import CheckpointStore

    state = CheckpointStore(_folder(run_id) / "checkpoints").newest()
    return state if state is not None else _read(_fetch(run_id, "checkpoints/last.pt"))


def _best_file(run_id: str, state: Mapping[str, Any]) -> Path | None:
    """Return the checkpoint of the best score that the state knows of; it may be the state."""
    from engine.checkpoint import CheckpointStore

    if state["best_update"] is None:
        return None
    store = CheckpointStore(_folder(run_id) / "checkpoints")
    if store.best_update() == state["best_update"]:
        return store.best_path()
    path = _fetch(run_id, "checkpoints/best.pt")
    best = _read(path)
    return path if best is not None and best["update"] == state["best_update"] else None


def _folder(run_id: str) -> Path:
    return working_folder() / "runs" / run_id


def _read(path: Path | None) -> Mapping[str, Any] | None:
    from engine.checkpoint import CheckpointError, CheckpointStore

    if path is None:
        return None
    try:
        return CheckpointStore(path.parent).load(path)
    except CheckpointError as error:
        logger.warning("%s", error)
        return None


def _fetch(run_id: str, artifact: str) -> Path | None:
    """Return a local copy of a run's artifact, or None if it cannot be had."""
    import mlflow
    from mlflow.exceptions import MlflowException

    destination = _folder(run_id) / "fetched"
    destination.mkdir(parents=True, exist_ok=True)
    try:
        return Path(
            mlflow.artifacts.download_artifacts(
                run_id=run_id, artifact_path=artifact, dst_path=str(destination)
            )
        )
    except (MlflowException, OSError):
        return None
