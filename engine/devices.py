"""Moving batches to the device, and what a device is asked for."""

from __future__ import annotations

import dataclasses
import resource
import sys
from typing import Any

import torch

from engine.contract import Batch

_GIB = 2**30
_PICTURE_DIMENSIONS = 4


def to_device(batch: Batch, device: torch.device, *, channels_last: bool = False) -> Batch:
    """Return the batch with its tensors on the device, without waiting for page-locked ones.

    Args:
        batch: tensors in any nesting of dicts, lists and tuples.
        device: where they go.
        channels_last: lay out 4-d tensors channels last, as the network's weights are.
    """
    inputs = _move(batch.inputs, device, channels_last=channels_last)
    return dataclasses.replace(batch, inputs=inputs)


def check_precision(precision: str, device: torch.device) -> None:
    """Refuse a precision that the device cannot train in.

    Raises:
        ValueError: for fp16 anywhere but on CUDA.
    """
    if precision == "fp16" and device.type != "cuda":
        raise ValueError(
            f"train.precision: fp16 needs a CUDA device, this run is on {device.type}; "
            "use bf16 or fp32"
        )


def autocast_type(precision: str) -> torch.dtype:
    """Return the number type of autocast; not used with fp32, where autocast is off."""
    return torch.float16 if precision == "fp16" else torch.bfloat16


def peak_memory_gib(device: torch.device) -> float:
    """Return the most memory held so far: by tensors on CUDA, else by this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / _GIB
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / _GIB if sys.platform == "darwin" else peak * 1024 / _GIB


def _move(value: Any, device: torch.device, *, channels_last: bool) -> Any:
    if isinstance(value, torch.Tensor):
        if channels_last and value.dim() == _PICTURE_DIMENSIONS:
            return value.to(device, non_blocking=True, memory_format=torch.channels_last)
        return value.to(device, non_blocking=True)
    if isinstance(value, dict):
        return {key: _move(v, device, channels_last=channels_last) for key, v in value.items()}
    if isinstance(value, list | tuple):
        moved = [_move(v, device, channels_last=channels_last) for v in value]
        if isinstance(value, list):
            return moved
        return type(value)(*moved) if hasattr(value, "_fields") else tuple(moved)
    return value
