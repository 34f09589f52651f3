"""The main job: child runs one after the other, each a `mlflow run` of this project's entry points.

The parent already runs inside the project's environment, so the children use it (`local`). What
passes between them are run ids.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.interrupt import Interrupted
from steps.devices import find_device
from steps.experiment import Loaded, load
from steps.options import PROJECT_FOLDER
from steps.run_handle import RunHandle
from steps.runs import open_run
from steps.saved_views import shown_of, ui_instructions, write_saved_views

if TYPE_CHECKING:
    from mlflow.entities import Run

logger = logging.getLogger(__name__)

# time for a child to save and to flush its log before it is killed
_LAST_SECONDS = 60.0


class ChildFailureError(Exception):
    """A child run that did not finish; says which step, why, and where."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def run_pipeline(config: str | None, overrides: str, *, device: str) -> str:
    """Run prepare, train, evaluate and register; return what the person should know.

    Raises:
        ChildFailureError: at the first step that fails, with its reason.
    """
    loaded = load(config, overrides)
    _find_own_python_first()
    with open_run("pipeline", loaded) as run:
        write_saved_views(run.client, run.experiment_id, shown_of(loaded))
        experiment = loaded.experiment
        find_device(device)  # told before the data is prepared, which may take long
        given = {"config": str(config or ""), "set": overrides}
        prepare = _child(run, "prepare", given)
        chosen = {**given, "device": device}
        train = _child(run, "train", {**chosen, "prepare_run": prepare.info.run_id})
        evaluate = _child(run, "evaluate", {"train_run": train.info.run_id, "device": device})
        verdict = str(evaluate.data.tags.get("mlflow.note.content", "")).split("\n")[0]
        _take_over_data(run, evaluate)
        version = ""
        if experiment.register_ is not None:
            register = _child(run, "register", {"evaluate_run": evaluate.info.run_id})
            version = register.data.tags.get("model_version", "")
            if experiment.register_.promote:
                name, _, number = version.partition("/")
                reason = f"pipeline {run.run_id}: register.promote is true"
                _child(run, "promote", {"model_name": name, "version": number, "reason": reason})
        scores = {k: v for k, v in evaluate.data.metrics.items() if not k.startswith("system/")}
        run.describe(verdict, _rows(loaded, scores, version))
        return _farewell(run, verdict, version)


def _find_own_python_first() -> None:
    """See to it that children run in this environment: MLflow starts them as `python`."""
    own, path = str(Path(sys.executable).parent), os.environ.get("PATH", "")
    if path.split(os.pathsep)[0] != own:
        os.environ["PATH"] = f"{own}{os.pathsep}{path}"


def _child(run: RunHandle, step: str, parameters: Mapping[str, str]) -> Run:
    """Run one step as a child; return its finished run."""
    import mlflow
    from mlflow.exceptions import ExecutionException

    assert run.identity is not None
    logger.info("%s", step)
    started = time.time()
    try:
        submitted = mlflow.projects.run(
            uri=str(PROJECT_FOLDER),
            entry_point=step,
            parameters=dict(parameters),
            env_manager="local",
            experiment_id=run.experiment_id,
            run_name=f"{step} {run.identity.token}",
        )
        return run.client.get_run(submitted.run_id)
    except ExecutionException as error:
        raise _failure(run, step, since_ms=int(1000 * started)) from error
    except (Interrupted, KeyboardInterrupt):
        _end_children()
        raise


def _failure(run: RunHandle, step: str, *, since_ms: int) -> ChildFailureError:
    """Return the failure of a child, in the child's own words."""
    children = run.client.search_runs(
        [run.experiment_id],
        filter_string=f"tags.`mlflow.parentRunId` = '{run.run_id}'",
        order_by=["attributes.start_time DESC"],
        max_results=10,
    )
    child: Any = next((c for c in children if c.info.start_time >= since_ms - 1000), None)
    if child is None:
        return ChildFailureError(f"{step} could not be started", 1)
    tags = child.data.tags
    reason = tags.get("failure") or f"the process ended without a reason ({child.info.status})"
    code = tags.get("exit_code", "1")
    return ChildFailureError(
        f"{step} failed: {reason} (run {child.info.run_id})", int(code) if code.isdigit() else 1
    )


def _end_children() -> None:
    """Ask the child's processes to end, as we were asked, and wait for them."""
    import psutil

    children = psutil.Process().children(recursive=True)
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.terminate()
    _, alive = psutil.wait_procs(children, timeout=_LAST_SECONDS)
    for child in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()


def _take_over_data(run: RunHandle, evaluate: Run) -> None:
    """Name on the parent the data that the headline is about: the runs table shows it."""
    run.tag("dataset", evaluate.data.tags.get("dataset", ""))
    for one in evaluate.inputs.dataset_inputs if evaluate.inputs else ():
        source = json.loads(one.dataset.source).get("uri", "")
        run.dataset(one.dataset.name, digest=one.dataset.digest, context="test", source=source)


def _rows(loaded: Loaded, scores: Mapping[str, float], version: str) -> dict[str, str]:
    rows = {"network": loaded.experiment.model.name, "version": version or "none"}
    return rows | {key: f"{value:.4f}" for key, value in scores.items()}


def _farewell(run: RunHandle, verdict: str, version: str) -> str:
    name, _, number = version.partition("/")
    lines = [
        "",
        f"Done: {verdict}",
        f"Registered: {name}, version {number}" if version else "Registered: nothing",
        ui_instructions(run.client.tracking_uri, run.experiment_id, run.run_id),
    ]
    return "\n".join(lines)
