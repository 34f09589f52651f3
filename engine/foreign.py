"""Going on from a checkpoint that another program wrote: its weights, moments and epoch.

Such files hold `{"model": ..., "optimizer": ...}` or a bare state dict, and no count of updates,
best score or generator states: these begin anew, and the run's log says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from engine.schedules import Timeline
from engine.weights import WeightsError, read_content, strip_module

FOREIGN = "foreign"
_EPOCH_NAME = re.compile(r"ep(?:och)?[-_]?(\d+)", re.IGNORECASE)


def read_foreign(path: Path, *, epoch: int | None = None) -> dict[str, Any]:
    """Return a training state, or what there is of one in another program's checkpoint.

    Args:
        path: a state of ours (taken as it is), or a file that holds a network's state dict, bare or
            under `model`, with or without `optimizer`; `module.` before the names is cut off.
        epoch: the epoch to go on with, counted from 0; None: the one after that in the file's name
            (`ep012.pth`: 13), or 0 where the name tells none (`model_best.pth`).

    Raises:
        WeightsError: if the file cannot be read or holds no network.
    """
    content = read_content(path)
    if isinstance(content, Mapping) and "config_digest" in content:
        return dict(content)
    wrapped = isinstance(content, Mapping) and isinstance(content.get("model"), Mapping)
    weights = content["model"] if wrapped else content
    if not isinstance(weights, Mapping) or not _is_state_dict(weights):
        raise WeightsError(
            f"resume: {path} holds no network; a state dict, bare or under `model`, is right"
        )
    named = _EPOCH_NAME.match(path.stem)
    if epoch is None:
        epoch = int(named[1]) + 1 if named else 0
    return {
        FOREIGN: str(path),
        "network": strip_module(dict(weights)),
        "optimizer": content.get("optimizer") if wrapped else None,
        "epoch": epoch,
        "iteration": 0,
        "update": 0,
        "best_update": None,
    }


def adopt(
    foreign: Mapping[str, Any], fresh: Mapping[str, Any], *, timeline: Timeline
) -> tuple[dict[str, Any], str]:
    """Return a training state made of a foreign checkpoint, and what there is to say of it.

    Args:
        foreign: from `read_foreign`.
        fresh: the state of this experiment before its first update.
        timeline: where the experiment's epochs begin.

    Raises:
        ValueError: if the epoch lies beyond the experiment's last.
    """
    epoch = foreign["epoch"]
    if epoch > timeline.epochs:
        raise ValueError(
            f"resume: {foreign[FOREIGN]} is to go on with epoch {epoch}, and train.epochs is "
            f"{timeline.epochs}; give RESUME@EPOCH, or train longer"
        )
    moments, said = _moments(foreign["optimizer"], fresh["optimizer"])
    state = {
        **fresh,
        "network": foreign["network"],
        "ema": None if fresh["ema"] is None else foreign["network"],
        "optimizer": moments,
        "epoch": epoch,
        "update": timeline.starts[epoch],
    }
    message = (
        f"goes on from {foreign[FOREIGN]} with epoch {epoch}, update {timeline.starts[epoch]}; "
        f"{said}; best score and random draws begin anew"
    )
    return state, message


def _moments(theirs: Any, ours: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the optimizer's state with their moments, where they are of the same parameters."""
    anew = "the optimizer's moments begin anew"
    if not isinstance(theirs, Mapping) or not theirs.get("state"):
        return dict(ours), f"{anew}: the file has none"
    groups, own = theirs["param_groups"], ours["param_groups"]
    sizes = [len(group["params"]) for group in groups]
    if sizes != [len(group["params"]) for group in own]:
        return dict(ours), f"{anew}: the file's parameter groups are of {sizes} tensors"
    if _is_adam(theirs["state"]) != any("betas" in group for group in own):
        return dict(ours), f"{anew}: the file's are of another kind of optimizer"
    return {"state": theirs["state"], "param_groups": own}, "the optimizer's moments are the file's"


def _is_adam(state: Mapping[Any, Any]) -> bool:
    """Tell whether moments are those of Adam and its like; SGD has no second ones."""
    return any("exp_avg_sq" in moments for moments in state.values())


def _is_state_dict(content: Mapping[str, Any]) -> bool:
    return bool(content) and all(isinstance(value, torch.Tensor) for value in content.values())
