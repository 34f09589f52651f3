"""Taking single samples out of a batch, whatever a task's batches look like.

A prepared batch is taken apart by one rule: tensors count samples in their first dimension, lists
hold one entry per sample, and dicts, tuples and dataclasses hold fields. What does not fit the
number of samples belongs to all of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from engine.contract import Batch


def picked(batch: Batch, samples: Sequence[int]) -> Batch:
    """Return a batch of some of a prepared batch's samples, in the given order.

    Args:
        batch: as `Task.prepare_batch` returns it.
        samples: their places in the batch; one may come twice.
    """
    inputs = _pick(batch.inputs, samples, size=len(batch.ids))
    return Batch(inputs, [batch.ids[index] for index in samples])


def bad_places(value: Any, place: str = "inputs") -> list[str]:
    """Return where in a nested value there are numbers that are not finite."""
    if isinstance(value, torch.Tensor):
        is_float = value.is_floating_point() or value.is_complex()
        return [place] if is_float and not bool(torch.isfinite(value).all()) else []
    return [
        bad
        for name, entry in _fields(value).items()
        for bad in bad_places(entry, f"{place}.{name}")
    ]


def _pick(value: Any, samples: Sequence[int], *, size: int) -> Any:
    if isinstance(value, torch.Tensor):
        if value.dim() == 0 or value.shape[0] != size:
            return value
        return value[torch.as_tensor(samples, device=value.device)]
    if isinstance(value, list) and len(value) == size:
        return [value[index] for index in samples]
    if isinstance(value, list):
        return [_pick(entry, samples, size=size) for entry in value]
    if isinstance(value, tuple):
        parts = [_pick(entry, samples, size=size) for entry in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, Mapping):
        return {key: _pick(entry, samples, size=size) for key, entry in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts_of = {k: _pick(v, samples, size=size) for k, v in _fields(value).items()}
        return dataclasses.replace(value, **parts_of)
    return value


def _fields(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return {str(key): entry for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return {str(index): entry for index, entry in enumerate(value)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    return {}
