"""One MLflow run around one step: opened, described, kept up to date, ended as it ended.

    with open_run("train", loaded) as run:
        fit(task, config, log=run.log, interruption=run.interruption, ...)

Only rank 0 talks to MLflow; on other ranks the same code runs and every method does nothing.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import string
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.interrupt import Interruption
from steps import descriptions, run_end
from steps.history import earlier_pictures, earlier_points
from steps.options import exit_code_of, working_folder
from steps.progress import ProgressDisplay
from steps.provenance import GitState, environment_text, git_state, process_tags
from steps.run_end import Ending
from steps.run_log import Channel, MlflowRunLog
from steps.spool import SpoolInfo
from steps.system_metrics import SystemMetrics
from steps.tracking_store import (
    StoreError,
    find_experiment,
    open_client,
    use_tracking_store,
    without_credentials,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

    from engine.contract import RunLog
    from steps.experiment import Loaded

logger = logging.getLogger(__name__)

PIPELINE_STEP = "pipeline"
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
_PARENT_TAG = "mlflow.parentRunId"
_TOKEN_LETTERS = string.ascii_lowercase + string.digits
_PARENT_NAME_WIDTH = 13


class RunHandle:
    """An open run. Nothing here waits for MLflow or fails for lack of it.

    Args:
        step: the pipeline step.
        identity: which run this is; None on ranks other than 0.
        log: where the training loop's log goes.
        interruption: turns signals into `Interrupted`; installed while the run is open.
        description: the run's description so far.
    """

    def __init__(
        self,
        step: str,
        *,
        identity: RunIdentity | None,
        log: RunLog,
        interruption: Interruption,
        description: descriptions.Description,
    ) -> None:
        self.step = step
        self.identity = identity
        self.log = log
        self.interruption = interruption
        self._description = description

    @property
    def run_id(self) -> str:
        """The run's id, or an empty text on ranks other than 0."""
        return self.identity.run_id if self.identity else ""

    @property
    def experiment_id(self) -> str:
        """The id of the run's experiment, or an empty text on ranks other than 0."""
        return self.identity.experiment_id if self.identity else ""

    @property
    def client(self) -> MlflowClient:
        """A client of the run's store, for what cannot be queued; its calls may fail or wait."""
        assert self.identity is not None, "only rank 0 talks to MLflow"
        return self.identity.client

    def tag(self, key: str, value: str) -> None:
        """Set a tag."""
        self.tags({key: value})

    def tags(self, values: Mapping[str, str]) -> None:
        """Set tags."""
        if isinstance(self.log, MlflowRunLog):
            self.log.tags(values)

    def params(self, values: Mapping[str, Any]) -> None:
        """Log params; those that the run has already (from MLproject) keep their value."""
        if isinstance(self.log, MlflowRunLog) and self.identity:
            new = {k: str(v) for k, v in values.items() if k not in self.identity.params}
            self.identity.params.update(new)
            self.log.params(new)

    def scores(
        self,
        values: Mapping[str, float],
        *,
        model_id: str = "",
        dataset: tuple[str, str] = ("", ""),
    ) -> None:
        """Record final scores (`test/<name>`): at step 0 the UI shows them as bars.

        Args:
            values: the scores.
            model_id: the LoggedModel that was scored; the Models tab ranks models by it.
            dataset: name and digest of the data that it was scored on.
        """
        if isinstance(self.log, MlflowRunLog):
            self.log.scores(values, model_id=model_id, dataset=dataset)

    def dataset(
        self, name: str, *, digest: str, context: str, source: str, profile: str = ""
    ) -> None:
        """Log a data set as the run's input.

        Args:
            name: as it is to be shown.
            digest: of its content; the first 36 characters are kept.
            context: `train`, `val` or `test`.
            source: folder or file that it was read from.
            profile: counts and the like, as JSON; the first record of a name and digest in an
                experiment is the one that the UI shows.
        """
        if isinstance(self.log, MlflowRunLog):
            values = {"name": name, "digest": digest[:36], "context": context, "source": source}
            self.log.dataset({**values, "profile": profile} if profile else values)

    def artifact(self, path: Path, folder: str = "") -> None:
        """Queue a copy of a file, as it is now, as an artifact in a folder."""
        if isinstance(self.log, MlflowRunLog):
            self.log.artifact(path, f"{folder}/{path.name}" if folder else path.name)

    def artifacts(self, path: Path, folder: str = "") -> None:
        """Queue copies of all files below a folder."""
        for file in sorted(path.rglob("*")):
            if file.is_file():
                inner = file.relative_to(path).parent.as_posix()
                parts = [part for part in (folder, inner) if part not in ("", ".")]
                self.artifact(file, "/".join(parts))

    def content(self, data: bytes | str, artifact: str) -> None:
        """Queue content as an artifact."""
        if isinstance(self.log, MlflowRunLog):
            self.log.content(data.encode() if isinstance(data, str) else data, artifact)

    def json(self, value: Any, artifact: str) -> None:
        """Queue a value as a JSON artifact."""
        self.content(json.dumps(value, indent=2) + "\n", artifact)

    def describe(self, verdict: str, rows: Mapping[str, str] | None = None, more: str = "") -> None:
        """Write the run's description anew.

        Args:
            verdict: one line of Markdown, with the headline number.
            rows: table below the command that reproduces the run.
            more: Markdown after the table.
        """
        self._description = self._description.with_verdict(verdict, rows, more)
        self.publish_description()

    def publish_description(self, ending: Ending | None = None) -> None:
        """Set the description as it is now; with an ending, say so in its first line."""
        if ending is not None:
            self._description = self._description.ended(ending.status, ending.reason)
        self.tag(descriptions.TAG, self._description.markdown())

    def resume_from(self, run_id: str, *, until_update: int) -> None:
        """Begin this run's curves and pictures with those of the run that it goes on from.

        Args:
            run_id: the earlier run.
            until_update: update count of the checkpoint; what came later is left out.
        """
        if not isinstance(self.log, MlflowRunLog):
            return
        spool = working_folder() / "runs" / run_id
        self.log.history(earlier_points(self.client, run_id, until=until_update, spool=spool))
        self.log.copied_pictures(earlier_pictures(self.client, run_id, until=until_update))
        self.tag("resumed_from", run_id)


@dataclass(frozen=True)
class RunIdentity:
    """Which run this is, and where it stands.

    Args:
        run_id: the run.
        experiment_id: its experiment.
        token: four letters or digits that all runs of one pipeline share.
        parent_id: the pipeline's run, or an empty text.
        name: the run's name.
        params: what the run's params are so far.
        client: a client of the store.
    """

    run_id: str
    experiment_id: str
    token: str
    parent_id: str
    name: str
    params: dict[str, str]
    client: MlflowClient


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
    handle = None
    try:
        draft = descriptions.Description.draft(step, loaded, description)
        if int(os.environ.get("RANK", "0")) > 0:
            yield _silent_handle(step, interruption, draft)
            return
        code = git_state()
        given = {**process_tags(), **_config_tags(loaded), **_git_tags(code), **(tags or {})}
        identity = _start(step, loaded, run_name, given)
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
        ending = Ending.of(error, is_interrupted=handle.interruption.is_requested)
        code = exit_code_of(error)
        if ending.status == "FAILED" and code is None:
            handle.content("".join(traceback.format_exception(error)), "traceback.txt")
        elif code is not None:
            handle.tag("exit_code", str(code))  # MLflow Projects knows only 0 and 1
        net.finish(ending)
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


def _start(
    step: str, loaded: Loaded | None, run_name: str | None, tags: Mapping[str, str]
) -> RunIdentity:
    uri = use_tracking_store()
    client = open_client(uri)
    import mlflow

    # taken out of the environment: loader processes and child runs must not join this run
    own_id = os.environ.pop("MLFLOW_RUN_ID", "")
    try:
        own = client.get_run(own_id) if own_id else None
        parent_id = _parent_id(own)
        parent = client.get_run(parent_id) if parent_id else None
        token = _token(parent)
        # at once and not through the spool: child runs and `doctor` look for them
        tags = {"step": step, "pipeline": token, **tags}
        name = run_name or _kept_name(own) or _made_name(step, token, loaded)
        if own is not None:
            run = mlflow.start_run(run_id=own_id, run_name=name, tags=tags)
        else:
            run = mlflow.start_run(
                experiment_id=_experiment_id(client, uri, parent, loaded),
                run_name=name,
                parent_run_id=parent_id or None,
                tags=tags,
            )
    except mlflow.MlflowException as error:
        message = str(error).splitlines()[0]
        raise StoreError(f"{without_credentials(uri)}: no run can be opened: {message}") from error
    is_in_pipeline = parent is not None and parent.data.tags.get("step") == PIPELINE_STEP
    return RunIdentity(
        run_id=run.info.run_id,
        experiment_id=run.info.experiment_id,
        token=token,
        parent_id=parent_id if is_in_pipeline else "",
        name=name,
        params=dict(run.data.params),
        client=client,
    )


def _experiment_id(
    client: MlflowClient, uri: str, parent: Run | None, loaded: Loaded | None
) -> str:
    if parent is not None:
        return str(parent.info.experiment_id)
    return find_experiment(client, uri, loaded.experiment.task if loaded else "sightflow")


def _parent_id(own: Run | None) -> str:
    if own is not None:
        return str(own.data.tags.get(_PARENT_TAG, ""))
    return os.environ.get("SIGHTFLOW_PARENT_RUN_ID", "")


def _token(parent: Run | None) -> str:
    known = parent.data.tags.get("pipeline", "") if parent is not None else ""
    return known or "".join(secrets.choice(_TOKEN_LETTERS) for _ in range(4))


def _kept_name(own: Run | None) -> str:
    """Return the run's name if a person gave it, not MLflow's generator (`bold-fox-123`)."""
    if own is None or own.info.run_name is None:
        return ""
    words = own.info.run_name.split("-")
    is_generated = len(words) == 3 and words[2].isdigit() and (words[0] + words[1]).isalpha()
    return "" if is_generated else str(own.info.run_name)


def _made_name(step: str, token: str, loaded: Loaded | None) -> str:
    if step == PIPELINE_STEP and loaded is not None:
        return f"{loaded.experiment.name[:_PARENT_NAME_WIDTH].rstrip('-_. ')} {token}"
    return f"{step} {token}"


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
        handle.content(loaded.text, "config.yaml")
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
