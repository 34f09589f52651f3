"""What evaluate runs say of models: scores, and on which data. Only the store is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run


class ScoresError(Exception):
    """A run that is not a finished evaluation of a model; one sentence."""

    exit_code = 1


@dataclass(frozen=True)
class Scored:
    """One evaluation of one model.

    Args:
        run_id: the evaluate run.
        experiment_id: its experiment.
        model_id: the LoggedModel (`m-...`) that was scored.
        train_run: the run that trained it.
        dataset: name and digest of the data, e.g. `vehicles-test 0123456789ab`.
        split: `test`, `val`, ...
        scores: score -> value, without split prefix.
    """

    run_id: str
    experiment_id: str
    model_id: str
    train_run: str
    dataset: str
    split: str
    scores: Mapping[str, float]

    @property
    def digest(self) -> str:
        """Digest of the data, without its name."""
        return self.dataset.rpartition(" ")[2]

    @property
    def dataset_name(self) -> str:
        """Name of the data, without its digest."""
        return self.dataset.rpartition(" ")[0] or self.dataset


def scored_run(client: MlflowClient, run_id: str) -> Scored:
    """Return what an evaluate run found.

    Raises:
        ScoresError: if there is no such run, or it is not a finished evaluate run of a model.
    """
    from mlflow.exceptions import MlflowException

    try:
        run = client.get_run(run_id)
    except MlflowException as error:
        raise ScoresError(f"evaluate run {run_id!r} cannot be read ({error})") from error
    tags = run.data.tags
    lacking = [tag for tag in ("model_id", "dataset", "split") if not tags.get(tag)]
    if tags.get("step") != "evaluate" or lacking:
        raise ScoresError(
            f"run {run_id} is no evaluation of a logged model (step {tags.get('step', 'unknown')!r}"
            f"{', lacks tag ' + ', '.join(lacking) if lacking else ''}); "
            "give an evaluate run of a train run"
        )
    if run.info.status in ("FAILED", "KILLED"):
        raise ScoresError(f"evaluate run {run_id} ended as {run.info.status}; evaluate again")
    return _scored(run)


def scores_on(
    client: MlflowClient, model_id: str, *, like: Scored, experiment_ids: Sequence[str]
) -> Scored | None:
    """Return the newest finished evaluation of a model on the data that another was scored on.

    Args:
        client: the tracking store.
        model_id: the model looked for.
        like: the evaluation whose data digest and split must be the same.
        experiment_ids: where to look.
    """
    found = evaluations_of(client, model_id, experiment_ids=experiment_ids)
    return next(
        (one for one in found if one.digest == like.digest and one.split == like.split), None
    )


def evaluations_of(
    client: MlflowClient, model_id: str, *, experiment_ids: Sequence[str]
) -> list[Scored]:
    """Return the finished evaluations of a model, newest first (at most 200)."""
    runs = client.search_runs(
        experiment_ids=list(dict.fromkeys(experiment_ids)),
        filter_string=(
            f"tags.step = 'evaluate' and tags.model_id = '{model_id}' "
            "and attributes.status = 'FINISHED'"
        ),
        order_by=["attributes.start_time DESC"],
        max_results=200,
    )
    return [_scored(run) for run in runs]


def _scored(run: Run) -> Scored:
    tags = run.data.tags
    split = tags.get("split", "")
    prefix = f"{split}/"
    return Scored(
        run_id=run.info.run_id,
        experiment_id=run.info.experiment_id,
        model_id=tags.get("model_id", ""),
        train_run=tags.get("train_run", ""),
        dataset=tags.get("dataset", ""),
        split=split,
        scores={
            key.removeprefix(prefix): float(value)
            for key, value in run.data.metrics.items()
            if key.startswith(prefix)
        },
    )
