"""A small tracking store and registry with models that were scored, for tests of the registry."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NUMBERS = itertools.count(1)


@contextmanager
def sqlite_store(folder: Path) -> Iterator[Any]:
    """Point MLflow at a new store in the folder and yield its client."""
    import mlflow

    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    client = mlflow.MlflowClient()
    client.create_experiment("runs", artifact_location=(folder / "artifacts").as_uri())
    yield client
    mlflow.set_tracking_uri(before)


def log_scored(
    client: Any,
    scores: dict[str, float],
    *,
    dataset: str = "cats-test 0123456789ab",
    digest: str = "",
    **tags: str,
) -> tuple[str, str]:
    """Log a train run with a model (no files) and its evaluate run.

    Returns:
        The evaluate run's id and the model's id.
    """
    experiment = client.get_experiment_by_name("runs").experiment_id
    train = client.create_run(experiment, tags={"step": "train"}).info.run_id
    number = next(NUMBERS)
    model = client.create_logged_model(
        experiment,
        name=f"m{number}@300",
        source_run_id=train,
        tags={"digest": digest or f"{number:012x}"},
        params={"update": "300"},
    )
    client.finalize_logged_model(model.model_id, "READY")
    client.set_terminated(train)
    return score_again(client, model.model_id, scores, dataset=dataset, **tags), model.model_id


def score_again(
    client: Any, model_id: str, scores: dict[str, float], *, dataset: str, **tags: str
) -> str:
    """Log an evaluate run of a model; return its id."""
    model = client.get_logged_model(model_id)
    run = client.create_run(
        model.experiment_id,
        tags={
            "step": "evaluate",
            "model_id": model_id,
            "train_run": model.source_run_id,
            "dataset": dataset,
            "split": "test",
            **tags,
        },
    )
    for name, value in scores.items():
        client.log_metric(run.info.run_id, f"test/{name}", value)
    client.set_terminated(run.info.run_id)
    return run.info.run_id
