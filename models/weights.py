"""Pretrained weights of networks and backbones: nothing, a torchvision enum, or a file.

Loading is strict: apart from a classifier that is not used, and from class predictors when the
class count differs, every entry of the network must be filled. Weights that may fit in part belong
to `train.initial_weights` (engine/weights.py).
"""

from __future__ import annotations

import logging
import pickle
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.models import WeightsEnum

logger = logging.getLogger(__name__)

CLASSIFIERS = ("fc.", "classifier.")
_WRAPPERS = ("state_dict", "model", "network")
_SUFFIXES = (".pth", ".pt", ".bin", ".model", ".safetensors")
_SHOWN = 5


class WeightsError(ValueError):
    """Weights that cannot be found, read or fitted; the message is one sentence."""


@dataclass(frozen=True)
class Fit:
    """How a state dict fits a network: sorted names.

    Args:
        loaded: entries of both, of the same shape.
        missing: entries of the network only; counters of batch norms are not counted.
        unexpected: entries of the file only.
        mismatched: entries of both whose shapes differ.
    """

    loaded: Sequence[str]
    missing: Sequence[str]
    unexpected: Sequence[str]
    mismatched: Sequence[str]


def resolve_weights(
    text: str, enum: type[WeightsEnum] | None, *, key: str
) -> WeightsEnum | Path | None:
    """Return what `none | <torchvision enum> | <path>` stands for.

    Args:
        text: `none`; a member's name, with or without its enum's (`IMAGENET1K_V1`,
            `ResNet50_Weights.DEFAULT`); else the path of a file.
        enum: torchvision's weights of this network; None where there are none.
        key: the configuration's key, for messages.

    Raises:
        WeightsError: if it is neither a member of the enum nor an existing file; lists the members.
    """
    if text.lower() == "none":
        return None
    if enum is not None and text.removeprefix(f"{enum.__name__}.") in enum.__members__:
        return enum[text.removeprefix(f"{enum.__name__}.")]
    path = Path(text).expanduser()
    if path.is_file():
        return path
    if path.suffix in _SUFFIXES or "/" in text or "\\" in text:
        raise WeightsError(f"{key}: there is no file {text}")
    choices = "'none' or the path of a file"
    if enum is not None:
        choices = f"'none', one of {enum.__name__} ({', '.join(enum.__members__)}) or a file's path"
    raise WeightsError(f"{key}: {text!r} is unknown; give {choices}")


def read_state_dict(weights: WeightsEnum | Path) -> dict[str, Tensor]:
    """Return the tensors by name; an enum's file is fetched by torchvision unless it is cached.

    A file may hold the state dict itself or under `state_dict`, `model` or `network`, or be a
    checkpoint of ours; a leading `module.` is cut off the names.

    Raises:
        WeightsError: if the file cannot be fetched or read, holds more than tensors, or holds none.
    """
    if isinstance(weights, WeightsEnum):
        return _fetched(weights)
    if weights.suffix == ".safetensors":
        raise WeightsError(
            f"{weights}: safetensors files are read by train.initial_weights; give a .pth here"
        )
    try:
        content = torch.load(weights, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise WeightsError(
            f"{weights}: cannot be read as a file of tensors: it is broken, or holds more than "
            "tensors and plain values, which is not read for safety; save its state dict alone"
        ) from error
    except (OSError, RuntimeError, EOFError, zipfile.BadZipFile) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise WeightsError(f"{weights}: cannot be read as a file of tensors: {reason}") from error
    tensors = {
        name.removeprefix("module."): value
        for name, value in _unwrap(content).items()
        if isinstance(value, Tensor)
    }
    if not tensors:
        raise WeightsError(f"{weights}: holds no tensors by name; a state dict is needed")
    return tensors


def load_backbone(network: nn.Module, weights: WeightsEnum | Path) -> Fit:
    """Fill a classification network whose classifier is not going to be used.

    Raises:
        WeightsError: if anything but classifier entries stays unfilled.
    """
    return load_strictly(network, read_state_dict(weights), free=CLASSIFIERS, source=str(weights))


def load_strictly(
    network: nn.Module, tensors: Mapping[str, Tensor], *, free: Sequence[str], source: str
) -> Fit:
    """Fill the network; only entries whose names begin with one of `free` may stay as they are.

    Args:
        network: filled in place, or left as it is when it raises.
        tensors: a state dict.
        free: beginnings of names that may be missing or of another shape.
        source: what messages call the weights.

    Returns:
        How it fitted; what was left out is also logged, as a warning unless it is a classifier.

    Raises:
        WeightsError: if another entry is missing or of another shape, or nothing fits at all.
    """
    fit = compare(network, tensors)
    if not fit.loaded:
        raise WeightsError(
            f"{source}: none of its {len(tensors)} entries (first: {next(iter(tensors), 'none')}) "
            f"fits the network (first: {next(iter(network.state_dict()))})"
        )
    unfilled = [
        name for name in (*fit.missing, *fit.mismatched) if not name.startswith(tuple(free))
    ]
    if unfilled:
        raise WeightsError(
            f"{source}: does not fit the network: {len(fit.loaded)} entries do, but "
            f"{_names(unfilled)} not (missing or of another shape)"
        )
    network.load_state_dict({name: tensors[name] for name in fit.loaded}, strict=False)
    left_out = [*fit.mismatched, *fit.unexpected]
    if left_out:
        # a backbone's classifier is never used: no news
        is_news = not all(name.startswith(CLASSIFIERS) for name in left_out)
        level = logging.WARNING if is_news else logging.INFO
        loaded, told = len(fit.loaded), _names(left_out)
        logger.log(level, "%s: %d entries loaded, left out: %s", source, loaded, told)
    return fit


def compare(network: nn.Module, tensors: Mapping[str, Tensor]) -> Fit:
    """Return how the tensors fit the network's entries by name and shape."""
    own = network.state_dict()
    both = own.keys() & tensors.keys()
    fitting = {name for name in both if own[name].shape == tensors[name].shape}
    return Fit(
        loaded=sorted(fitting),
        missing=sorted(_without_counters(own.keys() - both)),
        unexpected=sorted(_without_counters(tensors.keys() - both)),
        mismatched=sorted(both - fitting),
    )


def _fetched(weights: WeightsEnum) -> dict[str, Tensor]:
    try:
        return dict(weights.get_state_dict(progress=False, check_hash=True))
    except (OSError, RuntimeError) as error:
        cache = Path(torch.hub.get_dir(), "checkpoints", Path(weights.url).name)
        raise WeightsError(
            f"{weights}: cannot be fetched from {weights.url} ({error}); without a network put the "
            f"file at {cache}, or give a path in place of the enum"
        ) from error


def _unwrap(content: Any) -> Mapping[str, Any]:
    """Find the state dict inside of a checkpoint."""
    if not isinstance(content, Mapping):
        return {}
    deployed = content.get("deploy")
    for key in (deployed, *_WRAPPERS):
        if isinstance(key, str) and isinstance(content.get(key), Mapping):
            return content[key]
    return content


def _without_counters(names: Any) -> set[str]:
    """Leave out `num_batches_tracked`: old files lack it and frozen batch norms have none."""
    return {name for name in names if not name.endswith("num_batches_tracked")}


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
