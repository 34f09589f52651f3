"""A failure capsule: all that is needed to make an update that went wrong once more.

It is written at the fault (engine/training.py) and read by engine/replay.py. Tensors and plain
values only, so that reading one runs no code from it.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine.checkpoint import CheckpointError, CheckpointStore
from engine.config import TrainConfig
from engine.distributed import gather_objects, rank, world_size
from engine.faults import Fault
from engine.guard import UpdateTrace
from engine.seeding import rng_state
from engine.state import TrainingState

CAPSULE_FILE = "capsule.pt"
SUMMARY_FILE = "capsule.json"
FORMAT = 1
_MOST = 3
_TEMPORARY = ".writing-"
SUMMARY_ENTRIES = (
    "reason", "terms", "ids", "update", "epoch", "iteration", "world_size", "seed", "restarts",
    "lr_factor", "precision", "device", "config_digest", "exact", "later", "checkpoint",
    "checkpoint_update",
)  # fmt: skip
_ENTRIES = {"format", "train", "batches", "network", "update", "epoch", "seed", "restarts"}


class CapsuleError(OSError):
    """A capsule cannot be written or read; one sentence."""

    exit_code = 1


@dataclass(frozen=True)
class CapsuleBatch:
    """One batch of the update that went wrong.

    Args:
        rank: the process that it belonged to.
        iteration: batch of the epoch, counted from 0.
        ids: its samples.
        inputs: as they came from the loader.
    """

    rank: int
    iteration: int
    ids: Sequence[str]
    inputs: Any


class CapsuleStore:
    """The capsules of one run: the folders `update-<n>` of one folder.

    Args:
        directory: the folder; made with the first capsule.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def has_room(self) -> bool:
        """Tell whether the run may keep another capsule; the first three stay."""
        return len(capsule_folders(self.directory)) < _MOST

    def save(self, capsule: Mapping[str, Any]) -> Path:
        """Write a capsule and return its folder, which is whole on disk by then.

        Raises:
            CapsuleError: if it cannot be written.
        """
        name = f"update-{capsule['update']:08d}"
        temporary = self.directory / f"{_TEMPORARY}{name}-{os.getpid()}"
        target = self.directory / name
        try:
            self._remove_unfinished()
            temporary.mkdir(parents=True)
            written = CheckpointStore(temporary).save(capsule, update=capsule["update"])
            written.rename(temporary / CAPSULE_FILE)
            summary = json.dumps(_summary(capsule), indent=2) + "\n"
            (temporary / SUMMARY_FILE).write_text(summary, encoding="utf-8")
            shutil.rmtree(target, ignore_errors=True)  # of a process that was started again
            temporary.rename(target)
        except OSError as error:
            shutil.rmtree(temporary, ignore_errors=True)
            reason = error.strerror or error
            raise CapsuleError(f"{target}: cannot write the capsule: {reason}") from error
        return target

    def _remove_unfinished(self) -> None:
        for path in self.directory.glob(f"{_TEMPORARY}*"):
            shutil.rmtree(path, ignore_errors=True)


def capsule_folders(directory: Path) -> list[Path]:
    """Return the folders of whole capsules in a folder, by their update."""
    return sorted(path.parent for path in directory.glob(f"update-*/{CAPSULE_FILE}"))


def make_capsule(
    fault: Fault,
    trace: UpdateTrace,
    *,
    state: TrainingState,
    config: TrainConfig,
    store: CheckpointStore,
) -> dict[str, Any]:
    """Return what an update needs to be made once more; a collective call.

    Args:
        fault: what went wrong.
        trace: the update, with its batches.
        state: what training changes, now.
        config: the experiment's `train` section.
        store: the run's checkpoints.

    Raises:
        CapsuleError: on every rank, if a batch holds what cannot be kept.
    """
    batches = _gather_batches(trace)
    later = state.update - fault.update - 1
    if fault.is_mended:
        later += 1  # it was made, so the weights are those after it
    checkpoint = store.newest_path() if rank() == 0 else None
    return {
        "format": FORMAT,
        "reason": fault.reason,
        "terms": dict(fault.terms),
        "ids": [str(name) for name in fault.ids],
        "is_mended": fault.is_mended,
        "update": fault.update,
        "epoch": fault.epoch,
        "iteration": fault.iteration,
        "world_size": world_size(),
        "seed": state.draws.seed,
        "restarts": state.draws.restarts,
        "lr_factor": trace.lr_factor,
        "precision": config.precision,
        "device": str(trace.norm.device.type),
        "config_digest": state.config_digest,
        "train": config.model_dump(mode="json"),
        "batches": batches,
        "network": state.network.state_dict(),
        "optimizer": state.optimizer.state_dict(),
        "scaler": state.scaler.state_dict(),
        "rng": plain(rng_state()),
        # whether the weights are those from before the update, and how many came after it
        "exact": later == 0,
        "later": later,
        # under policy stop nothing goes on from the buffers, so that a spoilt pass leaves them so
        "has_spoilt_buffers": config.guard.policy == "stop",
        "checkpoint": None if checkpoint is None else checkpoint.name,
        "checkpoint_update": None if checkpoint is None else int(checkpoint.name.split("-")[1]),
    }


def load_capsule(path: Path) -> dict[str, Any]:
    """Read a capsule onto the CPU, never running code from it.

    Args:
        path: its folder, or the file.

    Raises:
        CapsuleError: if there is none, or it cannot be read.
    """
    file = path / CAPSULE_FILE if path.is_dir() else path
    try:
        capsule = CheckpointStore(file.parent).load(file)
    except CheckpointError as error:
        raise CapsuleError(str(error).replace("no such checkpoint", "no such capsule")) from error
    if missing := sorted(_ENTRIES - capsule.keys()):
        raise CapsuleError(f"{file}: not a capsule, it lacks {', '.join(missing)}")
    if capsule["format"] != FORMAT:
        raise CapsuleError(
            f"{file}: a capsule of format {capsule['format']}, this version reads {FORMAT}"
        )
    return capsule


def batches_of(capsule: Mapping[str, Any]) -> list[CapsuleBatch]:
    """Return the batches of a capsule, in the order of ranks."""
    return [CapsuleBatch(**entry) for entry in capsule["batches"]]


def plain(value: Any) -> Any:
    """Return a copy of a nested value that `weights_only` reads back: tensors and plain values.

    Raises:
        CapsuleError: if it holds anything else.
    """
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().clone()  # a view would take all of its storage along
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {plain(key): plain(entry) for key, entry in value.items()}
    if type(value) in (list, tuple):
        return type(value)(plain(entry) for entry in value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise CapsuleError(
        f"the batch holds a {type(value).__name__}; a capsule keeps tensors, numbers and texts in "
        "dicts, lists and tuples"
    )


def _gather_batches(trace: UpdateTrace) -> list[dict[str, Any]]:
    """Return the update's batches of all ranks, on every rank."""
    found: list[dict[str, Any]] | str
    try:
        found = [
            {
                "rank": rank(),
                "iteration": batch.iteration,
                "ids": [str(name) for name in batch.ids],
                "inputs": plain(batch.batch.inputs),
            }
            for batch in trace.batches
            if batch.batch is not None
        ]
    except CapsuleError as error:
        found = str(error)
    shares = gather_objects(found)
    for share in shares:  # all ranks raise, or none
        if isinstance(share, str):
            raise CapsuleError(share)
    return [batch for share in shares for batch in share]


def _summary(capsule: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a person wants to read of a capsule."""
    return {name: readable(capsule[name]) for name in SUMMARY_ENTRIES}


def readable(value: Any) -> Any:
    """Return a nested value with numbers that JSON does not know as texts."""
    if isinstance(value, Mapping):
        return {str(key): readable(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [readable(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
