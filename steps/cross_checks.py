"""What no single key can know, for every task: values that contradict each other, or name nothing.

What only one task's sections can contradict is in `steps/<task>_checks.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from engine.config import (
    AdamConfig,
    AdamWConfig,
    MultistepConfig,
    SteppedWarmupConfig,
    TrainConfig,
)
from steps.complaints import nearest, shown
from steps.paths import is_path
from tasks.config import GateConfig

Complaint = tuple[tuple[str | int, ...], str]
"""Key path from the root, and a sentence."""


class Evaluated(Protocol):
    """An `evaluate` section."""

    @property
    def split(self) -> str:
        """`train`, `val`, `test` or several joined by `+`."""
        ...


class Cut(Protocol):
    """A `data.splits` section."""

    @property
    def fractions(self) -> tuple[float, float, float]:
        """Shares of train, val and test."""
        ...


class Data(Protocol):
    """A `data` section: one source per split, or one source to cut."""

    @property
    def test(self) -> object | None:
        """The test split's source."""
        ...

    @property
    def splits(self) -> Cut | None:
        """The source to cut."""
        ...


def check_train(train: TrainConfig) -> Iterator[Complaint]:
    """Yield what contradicts itself in a `train` section."""
    schedule, warmup = train.schedule, train.warmup
    if isinstance(schedule, MultistepConfig) and schedule.per == "epoch":
        late = [milestone for milestone in schedule.milestones if milestone >= train.epochs]
        if late:
            yield (
                ("train", "schedule", "milestones"),
                f"milestone {late[0]} never comes: epochs count from 0 and train.epochs is "
                f"{train.epochs}, so milestones must be less than {train.epochs}",
            )
    if isinstance(warmup, SteppedWarmupConfig) and warmup.epochs >= train.epochs:
        yield (
            ("train", "warmup", "epochs"),
            f"{warmup.epochs} is not allowed: the warm-up must be shorter than train.epochs "
            f"({train.epochs})",
        )
    if isinstance(train.optimizer, AdamConfig | AdamWConfig):
        for i, beta in enumerate(train.optimizer.betas):
            if not 0 <= beta < 1:
                yield (
                    ("train", "optimizer", "betas", i),
                    f"{beta} is not allowed: must be 0 or more and less than 1",
                )


def check_splits(data: Data, evaluate: Evaluated) -> Iterator[Complaint]:
    """Yield splits that training or evaluation need and the data do not have."""
    if data.splits is not None and data.splits.fractions[1] == 0:
        yield (
            ("data", "splits", "fractions", 1),
            "0 is not allowed: training is watched on the validation split, so it needs a share",
        )
    if "test" not in evaluate.split.split("+"):
        return
    path = ("evaluate", "split")
    if data.splits is None and data.test is None:
        yield path, f"{evaluate.split} needs data.test; give it, or write `split: val`"
    elif data.splits is not None and data.splits.fractions[2] == 0:
        yield (
            path,
            f"{evaluate.split} needs a test split, but the third of data.splits.fractions is 0; "
            "give it a share, or write `split: val`",
        )


def check_gate(gate: GateConfig, *, metrics: tuple[str, ...]) -> Iterator[Complaint]:
    """Yield scores in a gate that the task does not measure."""
    for path, name in gate_scores(gate):
        bare = name.rpartition("/")[2]
        if name in metrics:
            continue
        if bare in metrics:
            yield path, f"{name!r} is not allowed: write {bare!r}, without the split before it"
        else:
            yield path, f"{name!r} is not a score of this task: must be {nearest(name, metrics)}"


def gate_scores(gate: GateConfig) -> list[tuple[tuple[str, ...], str]]:
    """Return the scores that a gate names, each with the path of its key."""
    named: list[tuple[tuple[str, ...], str]] = [
        (("register", "gate", "thresholds", name), name) for name in gate.thresholds
    ]
    if gate.champion is not None:
        named.append((("register", "gate", "champion", "metric"), gate.champion.metric))
    return named


def check_scale(scale: tuple[float, float]) -> Iterator[Complaint]:
    """Yield a range of zoom factors, `data.augment.scale`, that is none."""
    low, high = scale
    if not 0 < low <= high:
        yield (
            ("data", "augment", "scale"),
            f"[{low}, {high}] is not allowed: must be [least, largest], both above 0",
        )


def check_enum_weights(
    path: tuple[str, ...], weights: str, known: tuple[str, tuple[str, ...]]
) -> Iterator[Complaint]:
    """Yield weights that are neither `none`, a path, nor a member of a torchvision enum.

    Args:
        path: of their key.
        weights: the value.
        known: the enum's name and its members.
    """
    enum, members = known
    name = weights.removeprefix(f"{enum}.")
    if weights == "none" or is_path(weights) or name in (*members, "DEFAULT"):
        return
    right = nearest(weights, ["none", *(f"{enum}.{member}" for member in members)])
    yield path, f"{shown(weights)} is not allowed: must be the path of a file or {right}"


def check_file_weights(path: tuple[str, ...], weights: str, *, reason: str) -> Iterator[Complaint]:
    """Yield weights that are neither `none` nor a path, where torchvision has none to offer.

    Args:
        path: of their key.
        weights: the value.
        reason: why only these two are right.
    """
    if not (weights == "none" or is_path(weights)):
        yield (
            path,
            f"{shown(weights)} is not allowed: {reason}; must be none or the path of a file",
        )
