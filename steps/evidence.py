"""What speaks for a version, and how two versions compare: logged results only, no model is run."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from math import exp, lgamma, log
from pathlib import Path
from typing import TYPE_CHECKING

from steps.registry import GATE_TAG, model_id_of
from steps.scores import Scored, evaluations_of, scores_on

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

PER_ITEM = "per_item.parquet"
QUALITY = "quality"


@dataclass(frozen=True)
class ItemComparison:
    """On how many items one model did better than another.

    Args:
        better: items with a higher quality.
        worse: items with a lower one.
        equal: items with the same.
    """

    better: int
    worse: int
    equal: int

    @property
    def chance(self) -> float:
        """Probability of a split at least as uneven if both were equally good (sign test)."""
        total, least = self.better + self.worse, min(self.better, self.worse)
        tail = sum(_binomial_half(total, count) for count in range(least + 1))
        return min(1.0, 2 * tail)

    def __str__(self) -> str:
        total = self.better + self.worse + self.equal
        return (
            f"better on {self.better}, worse on {self.worse} of {total} items "
            f"(sign test p={self.chance:.2g})"
        )


def _binomial_half(total: int, count: int) -> float:
    """Return the probability of `count` heads in `total` throws of a fair coin."""
    ways = lgamma(total + 1) - lgamma(count + 1) - lgamma(total - count + 1)
    return exp(ways - total * log(2))


def evidence_of(version: ModelVersion) -> str:
    """Return what speaks for a version: gate, score, data, run and model, from its tags."""
    told = [f"{key} {version.tags[key]}" for key in (GATE_TAG, "score") if key in version.tags]
    told += [f"on {version.tags['data']}"] if "data" in version.tags else []
    told += [f"train run {version.tags['run']}"] if "run" in version.tags else []
    told += [model_id_of(version)] if model_id_of(version) else []
    return ", ".join(told) or "no scores are known"


def comparison(client: MlflowClient, one: ModelVersion, other: ModelVersion) -> str:
    """Return how a version compares with another on data that both were scored on, in words."""
    pair = _scored_alike(client, model_id_of(one), model_id_of(other))
    if pair is None:
        return "never scored on the same data"
    items = _compare_logged_items(pair[0].run_id, pair[1].run_id)
    told = f"{items}, " if items else ""
    return f"{told}evaluate runs {pair[0].run_id} and {pair[1].run_id}"


def _scored_alike(client: MlflowClient, one: str, other: str) -> tuple[Scored, Scored] | None:
    if not one or not other:
        return None
    places = [client.get_logged_model(model_id).experiment_id for model_id in (one, other)]
    for scored in evaluations_of(client, one, experiment_ids=places):
        found = scores_on(client, other, like=scored, experiment_ids=places)
        if found is not None:
            return scored, found
    return None


def _compare_logged_items(one: str, other: str) -> ItemComparison | None:
    """Compare two evaluate runs item by item; None where a run kept no such table."""
    import mlflow
    from mlflow.exceptions import MlflowException

    with tempfile.TemporaryDirectory() as folder:
        try:
            paths = [
                Path(
                    mlflow.artifacts.download_artifacts(
                        run_id=run_id, artifact_path=PER_ITEM, dst_path=f"{folder}/{number}"
                    )
                )
                for number, run_id in enumerate((one, other))
            ]
        except (MlflowException, OSError):
            return None
        return compare_items(*paths)


def compare_items(one: Path, other: Path) -> ItemComparison | None:
    """Compare two per-item tables by their column `quality`.

    Args:
        one: Parquet; the first column names the item.
        other: the same for the other model; items that only one has, or whose quality is not
            defined (NaN), are left out.

    Returns:
        None if a table has no such column.
    """
    import pandas as pd

    tables = [pd.read_parquet(path) for path in (one, other)]
    if any(QUALITY not in table.columns for table in tables):
        return None
    columns = [table.set_index(table.columns[0])[QUALITY] for table in tables]
    both = pd.concat(columns, axis=1, join="inner").dropna()
    change = both.iloc[:, 0] - both.iloc[:, 1]
    return ItemComparison(
        int((change > 0).sum()), int((change < 0).sum()), int((change == 0).sum())
    )
