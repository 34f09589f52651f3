"""Proof that a training that was killed and resumed is the one that was not, to the bit.

A proof trains twice by the loop that every training uses (engine/loop.py), with a log that ends it,
and compares the states that are left, value by value.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from engine.config import CheckpointConfig, TrainConfig
from engine.contract import NullLog, Progress

# seconds that were measured are no two runs' alike
_TIMES = ("meters.sums.time/",)
_SAMPLER = ("update", "epoch", "iteration", "seed", "restarts")
_OWN_PARTS = ("network", "ema", "optimizer", "scaler", "rng", "meters")
_SHOWN_DIGITS = 12
_SECONDS_BETWEEN_LOOKS = 0.02


class Reached(Exception):  # noqa: N818  (an end, not an error)
    """The training has made the updates that a proof needs, and the state is on disk."""


class ProofLog(NullLog):
    """Ends a training after some updates, or lets it wait to be killed.

    Args:
        ends_at: `Reached` is raised as soon as the state after so many updates is on disk.
        holds_at: the update after this one is made, but never saved: the training waits until it
            is killed, or the process that started it is gone. None: it does not wait.
    """

    def __init__(self, *, ends_at: int, holds_at: int | None = None) -> None:
        self._ends_at, self._holds_at = ends_at, holds_at
        self._update = 0
        self._parent = os.getppid()

    def progress(self, progress: Progress) -> None:
        """Wait for the end if this update is not to be saved."""
        self._update = progress.update
        while self._holds_at is not None and self._update > self._holds_at:
            if os.getppid() != self._parent:
                raise Reached
            time.sleep(_SECONDS_BETWEEN_LOOKS)

    def checkpoint(self, path: str, *, kind: str) -> None:
        """End the training if this was the last state that is needed.

        Raises:
            Reached: then.
        """
        if self._update >= self._ends_at:
            raise Reached


def proof_config(config: TrainConfig, *, workers: int | None) -> TrainConfig:
    """Return a training's configuration as a proof uses it.

    The state is written after each update, and the untrained network is not scored; all else, the
    schedule's length too, is as configured.

    Args:
        config: the experiment's.
        workers: loader processes; None: as configured.
    """
    changes: dict[str, Any] = {
        "checkpoint": CheckpointConfig(every_updates=1),
        "evaluate_first": False,
    }
    if workers is not None:
        changes["workers"] = workers
    return config.model_copy(update=changes)


@dataclass(frozen=True)
class Difference:
    """A value that two states do not share.

    Args:
        name: where it is in the state, e.g. `optimizer.state.3.exp_avg`.
        straight: SHA-256 of the unbroken training's; None if that has no such value.
        broken: of the resumed one's.
        largest: the largest absolute difference of two numbers; None where it has no meaning.
    """

    name: str
    straight: str | None
    broken: str | None
    largest: float | None

    def sentence(self) -> str:
        """Return it for a person."""
        straight, broken = (
            "missing" if digest is None else digest[:_SHOWN_DIGITS]
            for digest in (self.straight, self.broken)
        )
        size = "" if self.largest is None else f", largest difference {self.largest:g}"
        return f"{self.name} ({straight} straight, {broken} resumed{size})"


@dataclass(frozen=True)
class Part:
    """What the states say of one of their parts.

    Args:
        values: how many there are.
        straight: SHA-256 over all of the unbroken training's.
        broken: over all of the resumed one's.
    """

    values: int
    straight: str
    broken: str


@dataclass(frozen=True)
class Comparison:
    """Two states, value by value.

    Args:
        parts: network, ema, optimizer, scaler, rng, sampler (position in the epoch and what draws
            are seeded from), meters and decisions (scores, patience and the like).
        digests: name -> SHA-256 of the unbroken training's values.
        differences: all values that are not the same, in the state's order.
    """

    parts: Mapping[str, Part]
    digests: Mapping[str, str]
    differences: tuple[Difference, ...]

    @property
    def is_equal(self) -> bool:
        """Whether the states are the same to the bit."""
        return not self.differences


def compare_states(straight: Mapping[str, Any], broken: Mapping[str, Any]) -> Comparison:
    """Compare all that two checkpoints hold, but for measured seconds.

    Args:
        straight: the state of the training that was not disturbed.
        broken: that of the one that was killed and resumed.
    """
    left, right = _compared_values(straight), _compared_values(broken)
    left_digests = {name: value_digest(value) for name, value in left.items()}
    right_digests = {name: value_digest(value) for name, value in right.items()}
    differences = tuple(
        Difference(
            name,
            left_digests.get(name),
            right_digests.get(name),
            _largest_difference(left.get(name), right.get(name)),
        )
        for name in (left | right)
        if left_digests.get(name) != right_digests.get(name)
    )
    return Comparison(_parts(left_digests, right_digests), left_digests, differences)


def value_digest(value: Any) -> str:
    """Return SHA-256 of a tensor's kind, shape and bits, or of a plain value, as 64 hex digits."""
    if not isinstance(value, torch.Tensor):
        return hashlib.sha256(f"{type(value).__name__} {value!r}".encode()).hexdigest()
    content = hashlib.sha256(f"{value.dtype} {tuple(value.shape)} ".encode())
    # a fresh tensor: a view with one entry may have a stride that bytes cannot be viewed through
    flat = torch.empty(value.numel(), dtype=value.dtype)
    flat.copy_(value.detach().reshape(-1))
    content.update(flat.view(torch.uint8).numpy().data)
    return content.hexdigest()


def joined_digest(digests: Mapping[str, str]) -> str:
    """Return one SHA-256 over named ones, whatever their order."""
    lines = "\n".join(f"{name} {digests[name]}" for name in sorted(digests))
    return hashlib.sha256(lines.encode()).hexdigest()


def flat_values(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a nested one with their dotted names; something empty is a value."""
    entries = _entries(value)
    if not entries:
        yield name, value
    for key, entry in entries:
        yield from flat_values(entry, f"{name}.{key}" if name else str(key))


def _entries(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, list | tuple):
        return list(enumerate(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    return []


def _compared_values(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: v for name, v in flat_values(state) if not name.startswith(_TIMES)}


def _parts(left: Mapping[str, str], right: Mapping[str, str]) -> dict[str, Part]:
    parts = {}
    for part in dict.fromkeys(map(_part_of, (*left, *right))):
        ours = {name: digest for name, digest in left.items() if _part_of(name) == part}
        theirs = {name: digest for name, digest in right.items() if _part_of(name) == part}
        parts[part] = Part(len(ours), joined_digest(ours), joined_digest(theirs))
    return parts


def _part_of(name: str) -> str:
    first = name.split(".", 1)[0]
    if first in _SAMPLER:
        return "sampler"
    return first if first in _OWN_PARTS else "decisions"


def _largest_difference(left: Any, right: Any) -> float | None:
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        if left.shape != right.shape or left.numel() == 0:
            return None
        return (left.double().cpu() - right.double().cpu()).abs().max().item()
    is_number = [isinstance(value, int | float) for value in (left, right)]
    return abs(float(left) - float(right)) if all(is_number) else None
