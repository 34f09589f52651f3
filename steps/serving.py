"""The deployable model: from pictures to answers, in process and behind HTTP.

MLflow copies this file into every logged model and runs it to load one ("models from code"), next
to the bundled packages models, readers, tasks and engine; so it imports nothing else of `steps`.
`steps/model_package.py` writes such models, `steps/predict.py` uses `load_predictor` directly.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import torch
import yaml
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE
from pydantic import ValidationError
from safetensors.torch import load_file

from readers.images import decode_image
from readers.plain_yaml import load_plain_yaml
from readers.records import DatasetError
from readers.regular_files import LARGEST_PICTURE, read_regular
from tasks.catalogue import PREDICTORS
from tasks.predictor import ModelError, Predictor

DEFAULT_SCORE_THRESHOLD = 0.5
IMAGE_COLUMN = "image"


def load_predictor(
    weights: Path, config: Path, classes: Path, *, device: torch.device | None = None
) -> Predictor:
    """Load the files of a deployable model.

    Args:
        weights: safetensors with the network's state dict.
        config: the resolved experiment, YAML.
        classes: JSON with `names` and `ids` by label.
        device: where the network runs; None: as `serving_device` says.

    Raises:
        ModelError: if a file cannot be read, or they do not fit together.
    """
    try:
        state = load_file(weights)
    except Exception as error:  # the library's own class is not exported
        raise ModelError(f"{weights}: not a readable safetensors file: {error}") from error
    return build_predictor(state, read_experiment(config), read_classes(classes), device=device)


def read_experiment(path: Path) -> dict[str, Any]:
    """Return the resolved experiment in a YAML file, as plain data.

    Raises:
        ModelError: if it is no such file.
    """
    try:
        experiment = load_plain_yaml(path.read_text(encoding="utf-8-sig"))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ModelError(f"{path}: not the YAML of an experiment: {_first_line(error)}") from error
    if not isinstance(experiment, dict):
        raise ModelError(f"{path}: holds no experiment")
    return experiment


def read_classes(path: Path) -> dict[str, Any]:
    """Return the class table in a JSON file.

    Raises:
        ModelError: if it holds no `names` and `ids`.
    """
    try:
        classes = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: not JSON: {error}") from error
    if not isinstance(classes, dict) or not {"names", "ids"} <= set(classes):
        raise ModelError(f"{path}: holds no class table (`names` and `ids`)")
    return classes


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def build_predictor(
    state: Mapping[str, torch.Tensor],
    experiment: Mapping[str, Any],
    classes: Mapping[str, Any],
    *,
    device: torch.device | None = None,
) -> Predictor:
    """Build the network that an experiment describes and give it these weights, every one.

    Args:
        state: the network's state dict.
        experiment: the resolved experiment as plain data.
        classes: `names` and `ids` by label.
        device: where the network runs; None: as `serving_device` says.

    Raises:
        ModelError: if the task or its config is unknown, or a weight is missing, left over or of
            another shape.
    """
    builder = PREDICTORS.get(str(experiment.get("task")))
    if builder is None:
        raise ModelError(
            f"config: task is {experiment.get('task')!r}; one of {', '.join(PREDICTORS)} is right"
        )
    try:
        return builder()(state, experiment, classes, device=device or serving_device())
    except ValidationError as error:
        raise ModelError(
            "config: not one that this version of the code knows; use the code that the model was "
            f"logged with ({error})"
        ) from error


def serving_device() -> torch.device:
    """Return the device named by SIGHTFLOW_DEVICE, else CUDA where there is one, else the CPU."""
    name = os.environ.get("SIGHTFLOW_DEVICE", "")
    if name in ("", "auto"):
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def open_picture(value: Any, *, where: str) -> np.ndarray:
    """Return the upright picture that a caller gave in one of the accepted forms.

    Args:
        value: bytes of a picture file; the same as base64 text; a `pathlib.Path`; or an array
            (H, W, 3) uint8 RGB. Text is never taken for a path: a server must not read its own
            files for whoever asks.
        where: what the message calls this value, e.g. `row 3`.

    Returns:
        (H, W, 3) uint8 RGB.

    Raises:
        MlflowException: with INVALID_PARAMETER_VALUE (HTTP 400) if there is no picture in it.
    """
    if isinstance(value, np.ndarray):
        if value.dtype != np.uint8 or value.ndim != 3 or value.shape[2] != 3 or value.size == 0:
            raise _invalid(f"{where}: array of {value.dtype} {value.shape}; (H, W, 3) uint8 needed")
        return value
    try:
        if isinstance(value, Path):
            value = read_regular(value, largest=LARGEST_PICTURE)
        if isinstance(value, str):
            value = _decode_base64(value, where=where)
        if isinstance(value, bytes | bytearray | memoryview):
            return decode_image(bytes(value), turn=None)
    except (DatasetError, OSError) as error:
        raise _invalid(f"{where}: not a readable picture ({error})") from error
    raise _invalid(
        f"{where}: {type(value).__name__} given; bytes of a picture file, base64 text, a "
        "pathlib.Path or a (H, W, 3) uint8 array is needed"
    )


def _decode_base64(text: str, *, where: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise _invalid(
            f"{where}: text that is not base64 ({error}); a path is given as pathlib.Path"
        ) from error


def _invalid(message: str) -> MlflowException:
    return MlflowException(message, error_code=INVALID_PARAMETER_VALUE)


class ServedModel(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
    """What MLflow calls: `load_context` once, `predict` for each request."""

    def load_context(self, context: Any) -> None:
        """Load the network from the model's files."""
        files = {name: Path(path) for name, path in context.artifacts.items()}
        self.predictor = load_predictor(files["weights"], files["config"], files["classes"])

    def predict(
        self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Answer for each picture of a table's column `image`, a list, or one array.

        Raises:
            MlflowException: with INVALID_PARAMETER_VALUE (HTTP 400), naming the row.
        """
        threshold = float((params or {}).get("score_threshold", DEFAULT_SCORE_THRESHOLD))
        if not 0 <= threshold <= 1:
            raise _invalid(f"score_threshold is {threshold}; a number from 0 to 1 is right")
        # one by one: an answer must not depend on which other pictures were asked for with it, and
        # a small request may hold pictures that fill the memory together
        return [
            self.predictor.predict(
                [open_picture(value, where=f"row {row}")], score_threshold=threshold
            )[0]
            for row, value in enumerate(_picture_values(model_input))
        ]


def _picture_values(model_input: Any) -> Iterable[Any]:
    """Yield the pictures of any accepted input, undecoded."""
    if isinstance(model_input, pd.DataFrame):
        if IMAGE_COLUMN not in model_input.columns:
            columns = ", ".join(str(column) for column in model_input.columns)
            raise _invalid(f"no column `{IMAGE_COLUMN}`; the columns are: {columns or 'none'}")
        return model_input[IMAGE_COLUMN].tolist()
    if isinstance(model_input, np.ndarray) and model_input.ndim == 3:
        return [model_input]
    if isinstance(model_input, list | tuple | np.ndarray):
        return list(model_input)
    return [model_input]


mlflow.models.set_model(ServedModel())
