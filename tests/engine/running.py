"""Short trainings of the toy task, and what tests look at afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine.checkpoint import CheckpointStore
from engine.config import TrainConfig
from engine.contract import NullLog
from engine.loop import FitResult, fit
from tests.engine.toy_task import ToyTask

CPU = torch.device("cpu")
TIMED = ("time/", "memory/")


class ListLog(NullLog):
    """Keeps all that the loop says."""

    def __init__(self) -> None:
        self.points: list[tuple[int, dict[str, float]]] = []
        self.shown: list[tuple[int, list[str]]] = []
        self.events: list[tuple[str, str, int]] = []
        self.states: list[Any] = []
        self.files: list[tuple[str, str]] = []
        self.capsules: list[str] = []

    def metrics(self, values: Mapping[str, float], *, step: int) -> None:
        self.points.append((step, dict(values)))

    def pictures(self, pictures: Mapping[str, np.ndarray], *, step: int) -> None:
        self.shown.append((step, sorted(pictures)))

    def event(self, name: str, message: str, *, step: int) -> None:
        self.events.append((name, message, step))

    def progress(self, progress: Any) -> None:
        self.states.append(progress)

    def checkpoint(self, path: str, *, kind: str) -> None:
        self.files.append((Path(path).name, kind))

    def capsule(self, path: str) -> None:
        self.capsules.append(path)

    def untimed(self, *, after: int = -1) -> list[tuple[int, dict[str, float]]]:
        """The points of later steps, without what no two runs have in common."""
        return [
            (step, {k: v for k, v in values.items() if not k.startswith(TIMED)})
            for step, values in self.points
            if step > after
        ]

    def curve(self, name: str) -> list[tuple[int, float]]:
        return [(step, values[name]) for step, values in self.points if name in values]


def train_config(**changes: Any) -> TrainConfig:
    values: dict[str, Any] = {
        "epochs": 2,
        "batch_size": 4,
        "optimizer": {"name": "sgd", "lr": 0.01},
        "log_every": 4,
    }
    return TrainConfig.model_validate(values | changes)


def run(folder: Path, *, task: Any = None, log: ListLog | None = None, **changes: Any) -> FitResult:
    """Train; `resume`, `interruption`, `compat`, `seed` and `config_digest` go to the loop."""
    names = ("resume", "interruption", "compat", "config_digest")
    options = {name: changes.pop(name) for name in names if name in changes}
    return fit(
        task or ToyTask(),
        train_config(**changes),
        seed=changes.pop("seed", 1),
        log=log or ListLog(),
        store=CheckpointStore(folder),
        device=CPU,
        **options,
    )


def last_state(folder: Path) -> dict[str, Any]:
    state = CheckpointStore(folder).newest()
    assert state is not None
    return state


def assert_same(left: Any, right: Any, *, where: str = "") -> None:
    """Equal to the bit, all the way down."""
    if isinstance(left, torch.Tensor):
        assert torch.equal(left, right), where
    elif isinstance(left, Mapping):
        assert left.keys() == right.keys(), where
        for key in left:
            assert_same(left[key], right[key], where=f"{where}.{key}")
    elif isinstance(left, list | tuple):
        assert len(left) == len(right), where
        for index, (a, b) in enumerate(zip(left, right, strict=True)):
            assert_same(a, b, where=f"{where}[{index}]")
    else:
        assert left == right, where
