"""What ranks tell each other. Without a process group every function answers for one process.

The group is started by PyTorch's own launcher (`python -m torch.distributed.run`); no launcher of
ours.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import distributed


def join_group(device: torch.device) -> None:
    """Join the process group that the launcher describes in the environment, if there is one."""
    if distributed.is_initialized() or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")


def leave_group() -> None:
    """Leave the process group, if there is one."""
    if _has_group():
        distributed.destroy_process_group()


def rank() -> int:
    """Return this process's number, in [0, world_size)."""
    return distributed.get_rank() if _has_group() else 0


def world_size() -> int:
    """Return the number of processes."""
    return distributed.get_world_size() if _has_group() else 1


def is_main() -> bool:
    """Tell whether this process is the one that writes files and talks to the run log."""
    return rank() == 0


def mean_over_ranks(tensor: torch.Tensor) -> torch.Tensor:
    """Return the mean of a float tensor over all ranks, on every rank. A collective call."""
    if world_size() == 1:
        return tensor
    total = tensor.detach().clone()
    distributed.all_reduce(total)
    return total / world_size()


def max_over_ranks(tensor: torch.Tensor) -> torch.Tensor:
    """Return the largest value over all ranks, entry by entry, on every rank. A collective call."""
    if world_size() == 1:
        return tensor
    largest = tensor.detach().clone()
    distributed.all_reduce(largest, op=distributed.ReduceOp.MAX)
    return largest


def any_over_ranks(flag: bool) -> bool:
    """Tell every rank whether the flag is set on any of them. A collective call."""
    return any(gather_objects(flag))


def gather_objects(value: Any) -> list[Any]:
    """Return the values of all ranks, in their order, on every rank. A collective call.

    Args:
        value: anything that pickle can carry.
    """
    if world_size() == 1:
        return [value]
    values: list[Any] = [None] * world_size()
    distributed.all_gather_object(values, value)
    return values


def share_object(value: Any) -> Any:
    """Return rank 0's value on every rank. A collective call.

    Args:
        value: anything that pickle can carry; what other ranks give does not matter.
    """
    if world_size() == 1:
        return value
    values = [value]
    distributed.broadcast_object_list(values, src=0)
    return values[0]


def _has_group() -> bool:
    return distributed.is_available() and distributed.is_initialized()
