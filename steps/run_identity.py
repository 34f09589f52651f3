"""Which MLflow run this process works on: the one MLflow Projects made for it, or a new one."""

from __future__ import annotations

import os
import secrets
import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from steps.secrets import masked, without_secrets
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

    from steps.experiment import Loaded

PIPELINE_STEP = "pipeline"
_PARENT_TAG = "mlflow.parentRunId"
_TOKEN_LETTERS = string.ascii_lowercase + string.digits
# the runs table of MLflow's UI cuts a parent's name after about 18 characters
_PARENT_NAME_WIDTH = 13


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


def join_or_make_run(
    step: str, loaded: Loaded | None, *, run_name: str | None, tags: Mapping[str, str]
) -> RunIdentity:
    """Return the run that this process works on, now MLflow's active run.

    Args:
        step: the pipeline step.
        loaded: the experiment, or None.
        run_name: None makes one, unless the user gave one.
        tags: set at once, so that child runs and `doctor` find them.

    Raises:
        StoreError: if the tracking store cannot be used.
    """
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
        tags = masked({"step": step, "pipeline": token, **_cleaned(own), **tags})
        name = without_secrets(run_name or _kept_name(own) or _made_name(step, token, loaded))
        if own is not None:
            run = mlflow.start_run(
                run_id=own_id, run_name=name, tags=tags, log_system_metrics=False
            )
        else:
            run = mlflow.start_run(
                experiment_id=_experiment_id(client, uri, parent, loaded),
                run_name=name,
                parent_run_id=parent_id or None,
                tags=tags,
                log_system_metrics=False,
            )
    except mlflow.MlflowException as error:
        message = without_secrets(str(error).splitlines()[0])
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


def _cleaned(own: Run | None) -> dict[str, str]:
    """Return the tags of MLflow's own that hold a secret: a repository's address with a token."""
    known = {} if own is None else own.data.tags
    return {
        key: value
        for key, value in known.items()
        if key.startswith("mlflow.source.") and without_secrets(value) != value
    }


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
