"""One MLflow run around one step: opened, described, kept up to date, ended as it ended.

    with open_run("train", loaded) as run:
        fit(task, config, log=run.log, interruption=run.interruption, ...)

Only rank 0 talks to MLflow; on other ranks the same code runs and every method does nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from engine.interrupt import Interruption
from steps import descriptions, run_end
from steps.options import working_folder
from steps.progress import ProgressDisplay
from steps.provenance import GitState, environment_text, git_state, process_tags
from steps.run_end import Ending
from steps.run_handle import RunHandle
from steps.run_identity import RunIdentity, join_or_make_run
from steps.run_log import Channel, MlflowRunLog
from steps.secrets import without_user_info
from steps.spool import SpoolInfo
from steps.system_metrics import SystemMetrics
from steps.tracking_store import without_credentials

if TYPE_CHECKING:
    from steps.experiment import Loaded

TRAINING_STEP = "train"
# what a person looks for first; the UI lists params in the order of logging
FIRST_PARAMS = (
    "name",
    "model.name",
    "seed",
    "train.epochs",
    "train.batch_size",
    "train.optimizer.name",
    "train.optimizer.lr",
    "train.schedule.name",
    "train.precision",
    "train.ema.decay",
)


@contextmanager
def open_run(
    step: str,
    loaded: Loaded | None,
    *,
    run_name: str | None = None,
    tags: Mapping[str, str] | None = None,
    description: str = "",
) -> Iterator[RunHandle]:
    """Open the run of a step, and end it when the block ends, however it ends.

    The run that MLflow Projects made for this process is joined; started alone, a step makes one.
    The status becomes FINISHED, FAILED (tag `failure`) or KILLED; what could not be sent in time
    stays in the spool, the status included.

    Args:
        step: `pipeline`, `prepare`, `train`, ...; `train` also gets the whole configuration as
            params, and system metrics.
        loaded: the experiment, or None for steps without one.
        run_name: None makes one, unless the user gave one.
        tags: further tags.
        description: first line of the description until `describe` is called.

    Raises:
        StoreError: if the tracking store cannot be used.
    """
    interruption = Interruption()
    if threading.current_thread() is threading.main_thread():
        interruption.install()
    try:
        draft = descriptions.Description.draft(step, loaded, description)
        if int(os.environ.get("RANK", "0")) > 0:
            yield _silent_handle(step, interruption, draft)
            return
        code = git_state()
        given = {**process_tags(), **_config_tags(loaded), **_git_tags(code), **(tags or {})}
        identity = join_or_make_run(step, loaded, run_name=run_name, tags=given)
        log = _open_log(identity, step)
        handle = RunHandle(
            step, identity=identity, log=log, interruption=interruption, description=draft
        )
        yield from _run_within(handle, loaded, code)
    finally:
        interruption.uninstall()


def _run_within(
    handle: RunHandle, loaded: Loaded | None, code: GitState | None
) -> Iterator[RunHandle]:
    system_metrics = SystemMetrics(lambda values, count: handle.log.metrics(values, step=count))
    net = run_end.AtExit(handle)
    try:
        _introduce(handle, loaded, code)
        if handle.step == TRAINING_STEP:
            system_metrics.start()
        yield handle
    except BaseException as error:
        system_metrics.stop()
        net.finish(Ending.of(error, is_interrupted=handle.interruption.is_requested))
        raise
    else:
        system_metrics.stop()
        net.finish(Ending("FINISHED", ""))


def _silent_handle(
    step: str, interruption: Interruption, description: descriptions.Description
) -> RunHandle:
    from engine.contract import NullLog

    return RunHandle(
        step, identity=None, log=NullLog(), interruption=interruption, description=description
    )


def _open_log(identity: RunIdentity, step: str) -> MlflowRunLog:
    folder = working_folder() / "runs" / identity.run_id
    uri = without_credentials(os.environ["MLFLOW_TRACKING_URI"])
    own = Channel(folder, SpoolInfo(identity.run_id, uri, step), identity.client)
    parent = None
    if identity.parent_id:
        info = SpoolInfo(identity.parent_id, uri, step)
        parent = Channel(folder / "parent", info, identity.client)
    return MlflowRunLog(own, parent=parent, display=ProgressDisplay())


def _introduce(handle: RunHandle, loaded: Loaded | None, code: GitState | None) -> None:
    """Say on the run what it is and what it came from."""
    handle.publish_description()
    if code is not None and code.is_dirty:
        handle.content(code.diff, "git.diff.txt")
    handle.content(environment_text(loaded), "environment.txt")
    if loaded is not None:
        # as bytes: a resumed training reads it, and a word of it may be somebody's password
        handle.content(without_user_info(loaded.text).encode(), "config.yaml")
        if handle.step == TRAINING_STEP:
            first = {key: loaded.flat[key] for key in FIRST_PARAMS if key in loaded.flat}
            handle.params({**first, **loaded.flat})


def _config_tags(loaded: Loaded | None) -> dict[str, str]:
    if loaded is None:
        return {}
    experiment = loaded.experiment
    return {"task": experiment.task, "config": experiment.name, "config.digest": loaded.digest}


def _git_tags(code: GitState | None) -> dict[str, str]:
    if code is None:
        return {}
    return {"git.commit": code.commit, "git.dirty": "true" if code.is_dirty else "false"}
