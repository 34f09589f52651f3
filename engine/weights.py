"""Weights from files, and taking over those that fit: fine-tuning.

Resuming is another matter: it needs the whole state (engine/checkpoint.py) and is strict.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from engine.names import has_prefix

_WRAPPERS = ("network", "state_dict", "model", "net")
_SHOWN = 5
_SPOILT = (RuntimeError, ValueError, EOFError, KeyError, OSError)


class WeightsError(ValueError):
    """Weights that cannot be read or fit nowhere; the message is one sentence."""


@dataclass(frozen=True)
class LoadReport:
    """What a partial loading did, as sorted names.

    Args:
        loaded: entries taken over.
        missing: entries of the network that kept their own values for lack of one in the file.
        unexpected: entries of the file that the network does not have, or that were excluded.
        mismatched: entries of both whose shapes differ, with both shapes.
    """

    loaded: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    mismatched: tuple[str, ...]

    def __str__(self) -> str:
        """Return one sentence of counts and first names."""
        parts = [f"{len(self.loaded)} tensors loaded"]
        for label in ("missing", "unexpected", "mismatched"):
            names: tuple[str, ...] = getattr(self, label)
            if names:
                parts.append(f"{len(names)} {label} ({_first(names)})")
        return ", ".join(parts)


def read_weights(path: str | Path) -> dict[str, torch.Tensor]:
    """Return the state dict in a file, on the CPU, without running code from it.

    Args:
        path: `.safetensors`, or what torch.save wrote: a bare state dict, one under `state_dict`,
            `model` or `network`, or a checkpoint of ours, whose deployed weights are taken.
            A leading `module.` is cut off all names.

    Raises:
        WeightsError: if there is no such file, or it holds no state dict.
    """
    path = Path(path)
    return strip_module(_state_dict(read_content(path), path))


def read_content(path: Path) -> Any:
    """Return what a file of weights holds, on the CPU, without running code from it.

    Raises:
        WeightsError: if there is no such file, or it cannot be read so.
    """
    if not path.is_file():
        raise WeightsError(f"{path}: no such weights file")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise WeightsError(
            f"{path}: holds more than tensors and plain values, which is not read for safety; "
            "save its state dict alone"
        ) from error
    except _SPOILT as error:
        raise WeightsError(f"{path}: not a readable weights file") from error
    except Exception as error:
        # safetensors raises a class of its own that is not exported
        if type(error).__module__.startswith("safetensors"):
            raise WeightsError(f"{path}: not a readable safetensors file: {error}") from error
        raise


def load_partial(
    network: nn.Module, state_dict: Mapping[str, torch.Tensor], *, exclude: Sequence[str] = ()
) -> LoadReport:
    """Take over the weights that fit by name and shape; the others stay as they are.

    Args:
        network: changed in place.
        state_dict: name -> tensor.
        exclude: name prefixes (whole dotted parts) that are not taken over.

    Raises:
        WeightsError: if nothing fits, or an excluded prefix names nothing in the file.
    """
    for prefix in exclude:
        if not any(has_prefix(name, prefix) for name in state_dict):
            raise WeightsError(
                f"train.initial_weights.exclude: no weight is named {prefix!r}; "
                f"the file has {_first(sorted(state_dict))}"
            )
    own = network.state_dict()
    offered = {
        name: tensor
        for name, tensor in state_dict.items()
        if not any(has_prefix(name, prefix) for prefix in exclude)
    }
    fitting = {n: t for n, t in offered.items() if n in own and own[n].shape == t.shape}
    if not fitting:
        raise WeightsError(
            f"train.initial_weights: none of the {len(state_dict)} weights fits the network; "
            f"the file has {_first(sorted(state_dict))}, the network {_first(sorted(own))}"
        )
    network.load_state_dict(fitting, strict=False)
    return LoadReport(
        loaded=tuple(sorted(fitting)),
        missing=tuple(sorted(set(own) - set(offered))),
        unexpected=tuple(sorted(set(state_dict) - (set(own) & set(offered)))),
        mismatched=tuple(
            f"{name} {list(offered[name].shape)} for {list(own[name].shape)}"
            for name in sorted((set(own) & set(offered)) - set(fitting))
        ),
    )


def _state_dict(content: Any, path: Path) -> dict[str, torch.Tensor]:
    if isinstance(content, Mapping):
        if "deploy" in content:
            content = content[content["deploy"]]
        for wrapper in _WRAPPERS:
            if isinstance(content.get(wrapper), Mapping):
                content = content[wrapper]
                break
        tensors = {n: t for n, t in content.items() if isinstance(t, torch.Tensor)}
        if tensors:
            return tensors
    raise WeightsError(
        f"{path}: holds no state dict; wanted one, bare or under {', '.join(_WRAPPERS)}"
    )


def strip_module(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Cut off the prefix that data-parallel wrappers leave."""
    if all(name.startswith("module.") for name in weights):
        return {name.removeprefix("module."): tensor for name, tensor in weights.items()}
    return weights


def _first(names: Sequence[str]) -> str:
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
