"""What the train step does: data, task and loop are brought together, the best weights packed."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steps.devices import find_device
from steps.options import working_folder
from steps.prepared import dataset_digest, dataset_name, prepared_index, wiring_of
from steps.preparing import record_datasets
from steps.resuming import Start, find_start
from steps.runs import open_run
from steps.saved_views import shown_of, write_saved_views
from steps.tracking_store import open_client, use_tracking_store

if TYPE_CHECKING:
    from engine.loop import FitResult
    from steps.experiment import Loaded
    from steps.run_handle import RunHandle

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Trained:
    """What came of a training.

    Args:
        run_id: its run.
        result: what the loop says.
        model_id: the LoggedModel of the best weights; empty on ranks other than 0.
    """

    run_id: str
    result: FitResult
    model_id: str

    def summary(self) -> str:
        """Return one line for the person who ran the step."""
        return f"Trained: {_verdict(self.result)}; model {self.model_id}, run {self.run_id}."


def train(
    config: str | None, overrides: str, *, device: str, prepare_run: str, resume: str
) -> Trained:
    """Train an experiment's network in a run of its own.

    Args:
        config: YAML of the experiment; None: the default, or that of the run to resume.
        overrides: values in place of the file's.
        device: auto, cpu, cuda or cuda:N.
        prepare_run: id of the prepare run whose index is used; empty: prepare now.
        resume: empty, a run's id, or `auto`.

    Raises:
        TrainingDiverged: at a loss or gradient that is not finite.
        DatasetError, WeightsError, ResumeError, DeviceError: the user's to mend.
    """
    _refuse_ranks()
    client = open_client(use_tracking_store())
    start = find_start(config, overrides, resume=resume, client=client)
    torch_device = find_device(device)
    tags = {"prepare_run": prepare_run or start.prepare_run}
    with open_run("train", start.loaded, tags=tags) as run:
        return _train(start, run, device=torch_device, prepare_run=prepare_run)


def _refuse_ranks() -> None:
    """Tell a launcher's process that it would train alone, and every other one as well."""
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        raise click.UsageError(
            f"WORLD_SIZE={os.environ['WORLD_SIZE']}: the train step is one process; start it "
            "without a launcher, or unset WORLD_SIZE"
        )


def _train(start: Start, run: RunHandle, *, device: Any, prepare_run: str) -> Trained:
    from engine.checkpoint import CheckpointStore
    from engine.loop import fit

    loaded = start.loaded
    experiment = loaded.experiment
    if run.identity is not None and not run.identity.parent_id:
        write_saved_views(run.client, run.experiment_id, shown_of(loaded))
    index = prepared_index(
        loaded,
        prepare_run=prepare_run or start.prepare_run,
        run_id=run.run_id,
        is_inherited=not prepare_run,
    )
    splits = wiring_of(loaded).summarise(experiment, index=index)
    record_datasets(run, loaded, {name: splits[name] for name in ("train", "val")})
    dataset = f"{dataset_name(experiment.name, 'train')} {dataset_digest(splits, 'train')}"
    run.tag("dataset", dataset)
    folder = working_folder() / "runs" / run.run_id
    _leave_beside_checkpoints(folder, loaded, index)
    store = CheckpointStore(folder / "checkpoints")
    if start.run_id:
        _take_over(start, run, store, dataset=dataset)
    task = wiring_of(loaded).build_task(experiment, index=index)
    try:
        result = fit(
            task,
            experiment.train,
            seed=experiment.seed,
            log=run.log,
            store=store,
            device=device,
            interruption=run.interruption,
            resume=start.state,
            config_digest=loaded.digest,
            compat=experiment.defects,
        )
    finally:
        task.close()
    if run.identity is None:
        return Trained("", result, "")
    model_id = _pack_best(run, store, result, loaded=loaded, index=index)
    _describe(run, result, model_id=model_id)
    return Trained(run.run_id, result, model_id)


def _take_over(start: Start, run: RunHandle, store: Any, *, dataset: str) -> None:
    """Begin with what the earlier run recorded and found best; say so if its data was other."""
    assert start.state is not None
    if run.identity is None:
        return
    update = int(start.state["update"])
    run.resume_from(start.run_id, until_update=update, scored_until=start.scored_until)
    if start.best is not None:
        run.log.checkpoint(str(store.adopt_best(start.best)), kind="best")
    if start.dataset and start.dataset.split()[-1] != dataset.split()[-1]:
        run.log.event(
            "data_changed",
            f"resumed from a run on {start.dataset}, this one is on {dataset}: the training goes "
            "on, but is not what either says",
            step=update,
        )


def _leave_beside_checkpoints(folder: Path, loaded: Loaded, index: Path) -> None:
    """Write what `predict` needs to use a checkpoint without the tracking store."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(loaded.text, encoding="utf-8")
    classes = wiring_of(loaded).classes(index)
    (folder / "classes.json").write_text(json.dumps(classes), encoding="utf-8")


def _pack_best(
    run: RunHandle, store: Any, result: FitResult, *, loaded: Loaded, index: Path
) -> str:
    """Log the best weights (the last ones where nothing was scored) as a deployable model."""
    from steps.model_package import Deployable, log_deployable

    path = result.best_path or result.last_path
    assert path is not None, "a training that ends has written a checkpoint"
    assert run.identity is not None
    state = store.load(path)
    classes = wiring_of(loaded).classes(index)
    update = int(state["update"])
    experiment = loaded.experiment
    model = log_deployable(
        Deployable(
            network_state=state[state["deploy"]],
            config_text=loaded.text,
            class_names=classes["names"],
            class_ids=classes["ids"],
        ),
        run_id=run.run_id,
        name=f"{run.identity.token}@{update}",
        step=update,
        params={
            "network": experiment.model.name,
            "update": update,
            "weights": state["deploy"],
            f"val {result.headline}": _number(result.best_score),
        },
        tags={"config": experiment.name, "config.digest": loaded.digest},
    )
    run.tag("model_id", model.model_id)
    return str(model.model_id)


def _describe(run: RunHandle, result: FitResult, *, model_id: str) -> None:
    rows = {
        "updates": str(result.updates),
        "epochs": str(result.epochs),
        "stopped early": "yes" if result.stopped_early else "no",
        "model": f"`{model_id}`",
    }
    run.describe(_verdict(result), rows)


def _verdict(result: FitResult) -> str:
    return f"val {result.headline} {_number(result.best_score)} after {result.updates} updates"


def _number(score: float | None) -> str:
    return "unknown" if score is None else f"{score:.3f}"
