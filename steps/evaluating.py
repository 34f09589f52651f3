"""What the evaluate step does: packed weights, or result files, are scored on a split."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steps.devices import find_device
from steps.experiment import Loaded, load
from steps.options import working_folder
from steps.prepared import dataset_digest, dataset_name, prepared_index, wiring_of
from steps.registering import experiment_of_run
from steps.runs import open_run
from steps.tracking_store import open_client, use_tracking_store

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from engine.contract import Evaluation
    from steps.run_handle import RunHandle
    from tasks.predictor import Predictor


# what a split gets of a task: its evaluation
Scoring = Callable[[Any, str], "Evaluation"]


def evaluate(
    config: str | None,
    overrides: str,
    *,
    device: str,
    train_run: str = "",
    checkpoint: str = "",
    results: str = "",
) -> str:
    """Score a trained network, or results, in a run of its own; return one line for the person.

    The weights are those of the logged model, loaded as a server loads them: what is scored is
    what would be registered.

    Args:
        config: YAML of the experiment; None: the train run's own.
        overrides: values in place of the file's.
        device: auto, cpu, cuda or cuda:N.
        train_run: a train run that ended well; one of this and the next two is given.
        checkpoint: file of weights in place of a train run.
        results: folder or file of results in place of a network, for tasks that have such.
    """
    if [bool(train_run), bool(checkpoint), bool(results)].count(True) != 1:
        raise click.UsageError(
            "give one of --train-run (a train run's id), --checkpoint (a file) and --results "
            "(result files of any program)"
        )
    if results:
        return _evaluate_results(config, overrides, path=Path(results).expanduser().absolute())
    client = open_client(use_tracking_store())
    loaded = _experiment(config, overrides, train_run=train_run)
    torch_device = find_device(device)
    tags = {"train_run": train_run} if train_run else {}
    with open_run("evaluate", loaded, tags=tags) as run:
        predictor, model_id = _predictor(
            train_run, checkpoint, config or "", overrides, device=torch_device
        )
        prepare_run = "" if config or not train_run else _prepare_run(client, train_run)
        index = prepared_index(
            loaded, prepare_run=prepare_run, run_id=run.run_id, is_inherited=True
        )

        def score(task: Any, split: str) -> Evaluation:
            device = predictor.device
            return task.evaluate(predictor.network, split, device=device, detail=True)

        return _score(run, loaded, score, index=index, model_id=model_id)


def _evaluate_results(config: str | None, overrides: str, *, path: Path) -> str:
    from tasks.catalogue import SCORES_RESULTS

    if not config:
        raise click.UsageError("--results needs --config: the experiment whose split they are of")
    loaded = load(config, overrides)
    if loaded.experiment.task not in SCORES_RESULTS:
        raise click.UsageError(
            f"--results: the task {loaded.experiment.task} reads no result files; "
            f"{', '.join(SCORES_RESULTS)} does"
        )
    if not path.exists():
        raise click.UsageError(f"--results: {path}: no such folder or file")
    use_tracking_store()
    with open_run("evaluate", loaded, tags={"results": str(path)}) as run:
        index = prepared_index(loaded, prepare_run="", run_id=run.run_id)

        def score(task: Any, split: str) -> Evaluation:
            return task.evaluate_results(path, split, detail=True)

        return _score(run, loaded, score, index=index, model_id="")


def _experiment(config: str | None, overrides: str, *, train_run: str) -> Loaded:
    if config or not train_run:
        return load(config, overrides)
    return experiment_of_run(train_run, overrides)


def _prepare_run(client: MlflowClient, train_run: str) -> str:
    return str(client.get_run(train_run).data.tags.get("prepare_run", ""))


def _predictor(
    train_run: str, checkpoint: str, config: str, overrides: str, *, device: Any
) -> tuple[Predictor, str]:
    """Return the network as it would be served, and its model's id (empty for a file)."""
    from steps.model_package import model_of_run
    from steps.prediction_source import open_source

    if checkpoint:
        return open_source(checkpoint, config=config, overrides=overrides, device=device), ""
    model_id = model_of_run(train_run)
    return open_source(f"models:/{model_id}", config="", device=device), model_id


def _score(run: RunHandle, loaded: Loaded, score: Scoring, *, index: Path, model_id: str) -> str:
    experiment = loaded.experiment
    wiring = wiring_of(loaded)
    split = experiment.evaluate.split
    splits = wiring.summarise(experiment, index=index)
    task = wiring.build_task(experiment, index=index)
    evaluation = score(task, split)
    name = dataset_name(experiment.name, split)
    digest = dataset_digest(splits, split)
    prefix = split.replace("+", "-")
    run.dataset(name, digest=digest, context="test", source=splits[split.split("+")[0]].source)
    run.tags({"dataset": f"{name} {digest}", "split": prefix, "model_id": model_id})
    scores = {f"{prefix}/{key}": value for key, value in evaluation.scores.items()}
    run.scores(scores, model_id=model_id, dataset=(name, digest))
    _leave_tables(run, evaluation)
    for artifact, content in evaluation.files.items():
        run.content(content, artifact)
    headline = evaluation.headline
    value = evaluation.scores[headline]
    rows = {key: f"{value:.4f}" for key, value in evaluation.scores.items()}
    verdict = f"{split} {headline} {value:.3f} on {name} ({digest})"
    run.describe(verdict, rows)
    return f"Evaluated: {verdict}; run {run.run_id}."


def _leave_tables(run: RunHandle, evaluation: Evaluation) -> None:
    """Put the per-item table (Parquet for programs, CSV for the preview) and small tables there."""
    if evaluation.items:
        folder = working_folder() / "runs" / run.run_id
        run.artifact(_parquet(evaluation.items, folder / "per_item.parquet"))
        run.content(_csv(evaluation.items), "per_item.csv")
    for name, columns in evaluation.tables.items():
        run.content(_csv(columns), f"tables/{name}.csv")


def _parquet(columns: Mapping[str, Sequence[Any]], path: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({key: list(values) for key, values in columns.items()}), path)
    return path


def _csv(columns: Mapping[str, Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()
