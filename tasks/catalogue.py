"""The tasks by name. A task is imported when its name is asked for, so that others cost nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from engine.contract import Task
from tasks.predictor import PredictorBuilder


class SplitSummary(Protocol):
    """What a run says of one split."""

    @property
    def digest(self) -> str:
        """Hex digest of the labels and pictures."""
        ...

    @property
    def items(self) -> int:
        """Number of items."""
        ...

    @property
    def source(self) -> str:
        """File or folder that the labels came from."""
        ...


class Wiring(Protocol):
    """What the steps need of a task: data preparation, the task itself, the deployable model."""

    def prepare(
        self, experiment: Any, *, base: Path, working: Path, output: Path, jobs: int
    ) -> Mapping[str, SplitSummary]:
        """Check the data, write `output/<split>.arrow` and the quality report; summarise."""
        ...

    def summarise(self, experiment: Any, *, index: Path) -> Mapping[str, SplitSummary]:
        """Summarise a folder that `prepare` wrote."""
        ...

    def data_key(self, experiment: Any) -> Mapping[str, Any]:
        """Return the part of the experiment that decides what `prepare` makes, as JSON values."""
        ...

    def build_task(self, experiment: Any, *, index: Path) -> Task:
        """Return the task that the engine trains and evaluates."""
        ...

    def classes(self, index: Path) -> Mapping[str, list[Any]]:
        """Return what the data decided and a deployed model must know (`names`, `ids`)."""
        ...


def _detection() -> Wiring:
    from tasks.detection import wiring

    return wiring


def _lanes() -> Wiring:
    from tasks.lanes import wiring

    return wiring


TASKS: Mapping[str, Callable[[], Wiring]] = {"detection": _detection, "lanes": _lanes}
# tasks with `evaluate_results`, which scores files that any program wrote
SCORES_RESULTS = ("lanes",)


def _detection_predictor() -> PredictorBuilder:
    from tasks.detection.predictor import build_predictor

    return build_predictor


def _lanes_predictor() -> PredictorBuilder:
    from tasks.lanes.predictor import build_predictor

    return build_predictor


PREDICTORS: Mapping[str, Callable[[], PredictorBuilder]] = {
    "detection": _detection_predictor,
    "lanes": _lanes_predictor,
}

# Tasks whose predictors know everything from the experiment; those of others need the class table.
WITHOUT_CLASSES = frozenset({"lanes"})
