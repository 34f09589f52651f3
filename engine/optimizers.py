"""Optimizers and their parameter groups.

Groups are made once, of all parameters that may train at some time; a part that is frozen at first
has no gradients and is passed over. So groups never change, and a resumed run finds its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from engine.config import AdamConfig, AdamWConfig, OptimizerConfig, SgdConfig
from engine.names import NORM_LAYERS, has_prefix, require_match

BASE_GROUP = "base"
NORM_SUFFIX = ".norm"
_FUSED_DEVICES = ("cpu", "cuda")


def build_optimizer(network: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """Return the optimizer of a network that is already on its device.

    Each group carries `name` (the prefix, or `base`; with `.norm` for normalisation layers when
    these have a weight decay of their own) and `base_lr`, the rate at schedule factor 1.

    Raises:
        ValueError: if a group's prefix names no part of the network.
    """
    groups = parameter_groups(network, config)
    parameters = [parameter for group in groups for parameter in group["params"]]
    fused = supports_fused(parameters)
    if isinstance(config, SgdConfig):
        return torch.optim.SGD(
            groups, lr=config.lr, momentum=config.momentum, nesterov=config.nesterov, fused=fused
        )
    classes: dict[type, Any] = {AdamConfig: torch.optim.Adam, AdamWConfig: torch.optim.AdamW}
    return classes[type(config)](
        groups, lr=config.lr, betas=config.betas, eps=config.eps, fused=fused
    )


def parameter_groups(network: nn.Module, config: OptimizerConfig) -> list[dict[str, Any]]:
    """Return the groups of all parameters that require gradients; none is empty.

    The longest prefix that fits a parameter's name counts.
    """
    for group in config.groups:
        require_match(group.prefix, network, key="train.optimizer.groups")
    norm = _norm_parameters(network) if config.norm_weight_decay is not None else set()
    factors = {group.prefix: group for group in config.groups}
    groups: dict[str, dict[str, Any]] = {}
    for name, parameter in network.named_parameters():
        if not parameter.requires_grad:
            continue
        prefix = max((p for p in factors if has_prefix(name, p)), key=len, default=None)
        factor = factors.get(prefix) if prefix is not None else None
        lr = config.lr * (factor.lr_factor if factor else 1.0)
        decay = config.weight_decay * (factor.weight_decay_factor if factor else 1.0)
        label = prefix or BASE_GROUP
        if name in norm:
            label, decay = label + NORM_SUFFIX, config.norm_weight_decay or 0.0
        group_values = {"name": label, "lr": lr, "base_lr": lr, "weight_decay": decay}
        groups.setdefault(label, {**group_values, "params": []})["params"].append(parameter)
    if not groups:
        raise ValueError("model: no parameter of the network requires gradients, nothing can train")
    return list(groups.values())


def supports_fused(parameters: list[nn.Parameter]) -> bool:
    """Tell whether one kernel can make the whole update, and leave it out on a device's word."""
    return all(p.device.type in _FUSED_DEVICES and p.is_floating_point() for p in parameters)


def set_lr(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Set each group's learning rate to `factor` times its own at schedule factor 1."""
    for group in optimizer.param_groups:
        group["lr"] = group["base_lr"] * factor


def current_lr(optimizer: torch.optim.Optimizer) -> dict[str, float]:
    """Return group name -> learning rate."""
    return {group["name"]: float(group["lr"]) for group in optimizer.param_groups}


def start_momentum(optimizer: torch.optim.Optimizer) -> None:
    """Give each parameter that trains a momentum of zero, if it has none.

    The fused SGD leaves the momentum of a first update undefined when that update is masked out,
    and cannot mix parameters with and without one, as unfreezing a part does. From zero the first
    update is the same.
    """
    for group in optimizer.param_groups:
        if not group.get("momentum"):
            continue
        for parameter in group["params"]:
            if parameter.requires_grad and "momentum_buffer" not in optimizer.state[parameter]:
                optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)


def load_optimizer(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Take over the moments of a saved optimizer; rates and decays stay as configured now.

    Raises:
        ValueError: if the saved groups are not the optimizer's, or those of another kind of one.
    """
    saved = [(group["name"], len(group["params"])) for group in state["param_groups"]]
    ours = [(group["name"], len(group["params"])) for group in optimizer.param_groups]
    if saved != ours:
        raise ValueError(
            f"resume: the checkpoint's parameter groups are {_listed(saved)}, "
            f"this experiment's are {_listed(ours)}"
        )
    if state["param_groups"][0].keys() != optimizer.param_groups[0].keys():
        raise ValueError(
            "resume: the checkpoint's moments are of another kind of optimizer than "
            f"{type(optimizer).__name__}; start from its weights with train.initial_weights"
        )
    optimizer.load_state_dict(
        {"state": state["state"], "param_groups": optimizer.state_dict()["param_groups"]}
    )


def _norm_parameters(network: nn.Module) -> set[str]:
    return {
        f"{module_name}.{name}" if module_name else name
        for module_name, module in network.named_modules()
        if isinstance(module, NORM_LAYERS)
        for name, _ in module.named_parameters(recurse=False)
    }


def _listed(groups: list[tuple[str, int]]) -> str:
    return ", ".join(f"{name} ({size} tensors)" for name, size in groups)
