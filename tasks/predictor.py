"""What prediction, serving and evaluation need of a trained network, whatever its task.

`tasks/<task>/predictor.py` has the task's `build_predictor`; `tasks/catalogue.py` finds it by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn


class ModelError(Exception):
    """A model's files that do not make a model; the message says which and why."""

    exit_code = 1


class Predictor(Protocol):
    """A network with what is needed to say what it finds.

    Args:
        network: in eval mode, on the device.
        device: where the network is.
        unit: the word for what is counted, and the key of an answer whose entries are counted.
        columns: names of the values in each of `rows`.
    """

    network: nn.Module
    device: torch.device
    unit: str
    columns: tuple[str, ...]

    def predict(
        self, pictures: Sequence[np.ndarray], *, score_threshold: float
    ) -> list[dict[str, Any]]:
        """Return one answer per (H, W, 3) uint8 RGB picture, made of JSON values."""
        ...

    def rows(self, answer: Mapping[str, Any]) -> list[list[Any]]:
        """Return an answer as rows of a table, values in the order of `columns`."""
        ...

    def draw(self, picture: np.ndarray, answer: Mapping[str, Any]) -> np.ndarray:
        """Return a copy of the picture with the answer drawn on it."""
        ...

    def files(self, item: str, answer: Mapping[str, Any]) -> Mapping[str, str]:
        """Return an answer in the benchmarks' own formats, one file or more of its own.

        Args:
            item: relative path of the picture; `VIDEO/NUMBER` for a frame.
            answer: what was found on it.

        Returns:
            Relative path -> text.
        """
        return {}

    def lines(self, item: str, answer: Mapping[str, Any]) -> Mapping[str, str]:
        """Return an answer as lines of files that all answers share: name -> line."""
        return {}


class PredictorBuilder(Protocol):
    """A task's `build_predictor`."""

    def __call__(
        self,
        state: Mapping[str, torch.Tensor],
        experiment: Mapping[str, Any],
        classes: Mapping[str, Any],
        *,
        device: torch.device,
    ) -> Predictor:
        """Build the network that an experiment describes and give it these weights, every one.

        Args:
            state: the network's state dict.
            experiment: the resolved experiment as plain data.
            classes: `names` and `ids` by label.
            device: where the network runs.

        Raises:
            ModelError: if a weight is missing, left over or of another shape.
        """
        ...


def give_weights(network: nn.Module, state: Mapping[str, torch.Tensor]) -> None:
    """Load a state dict into a network, every entry of it and nothing else.

    Raises:
        ModelError: if a weight is missing, left over or of another shape.
    """
    try:
        network.load_state_dict(dict(state), strict=True)
    except RuntimeError as error:
        raise ModelError(
            "the weights do not fit the network that this version of the code builds from the "
            f"model's config ({_misfits(network, state)}); use the config and the code that the "
            "model was trained with"
        ) from error


def _misfits(network: nn.Module, state: Mapping[str, torch.Tensor]) -> str:
    """Return the first entry that is missing, left over or of another shape, and their number."""
    own = network.state_dict()
    shapes = {name: list(tensor.shape) for name, tensor in own.items()}
    others = {name: list(tensor.shape) for name, tensor in state.items()}
    names = sorted(n for n in {*shapes, *others} if shapes.get(n) != others.get(n))
    if not names:
        return "values that cannot be copied"
    first, shape, other = names[0], shapes.get(names[0]), others.get(names[0])
    what = f"{first} is {other or 'missing'}, {shape or 'none'} is right"
    return what if len(names) == 1 else f"{what}, and {len(names) - 1} more"


def without_starting_weights(section: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a config section so that nothing is downloaded or looked for: the weights are here."""
    copy: dict[str, Any] = {}
    for key, value in section.items():
        if key in ("weights", "backbone_weights"):
            copy[key] = "none"
        else:
            copy[key] = without_starting_weights(value) if isinstance(value, Mapping) else value
    return copy
