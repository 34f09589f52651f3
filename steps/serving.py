"""The deployable model: from pictures to boxes with names, in process and behind HTTP.

MLflow copies this file into every logged model and runs it to load one ("models from code"), next
to the bundled packages models, readers, tasks and engine; so it imports nothing else of `steps`.
`steps/model_package.py` writes such models, `steps/predict.py` uses `load_predictor` directly.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import mlflow
import numpy as np
import pandas as pd
import torch
import yaml
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE
from safetensors.torch import load_file
from torch import nn

from readers.images import decode_image
from readers.records import DatasetError

DEFAULT_SCORE_THRESHOLD = 0.5
IMAGE_COLUMN = "image"


class ModelError(Exception):
    """A model's files that do not make a model; the message says which and why."""

    exit_code = 1


class Predictor(Protocol):
    """A network with what is needed to name its answers."""

    def predict(
        self, pictures: Sequence[np.ndarray], *, score_threshold: float
    ) -> list[dict[str, Any]]:
        """Return one answer per (H, W, 3) uint8 RGB picture, made of JSON values."""
        ...

    def draw(self, picture: np.ndarray, answer: Mapping[str, Any]) -> np.ndarray:
        """Return a copy of the picture with the answer drawn on it."""
        ...


class DetectionPredictor:
    """Finds boxes.

    Args:
        network: a detector that holds its weights.
        class_names: label -> name, labels from 0.
        class_ids: label -> id in the training set's own files.
        device: where the network runs.
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        class_names: Sequence[str],
        class_ids: Sequence[int],
        device: torch.device,
    ) -> None:
        self.network = network.to(device).eval()
        self.class_names = tuple(class_names)
        self.class_ids = tuple(class_ids)
        self.device = device

    def predict(
        self, pictures: Sequence[np.ndarray], *, score_threshold: float
    ) -> list[dict[str, Any]]:
        """Find the boxes of a batch of pictures.

        Args:
            pictures: each (H, W, 3) uint8 RGB, upright.
            score_threshold: lowest score that is reported, in [0, 1]; below the model's own
                `score_threshold` it has no effect.

        Returns:
            Per picture `boxes` ([x1, y1, x2, y2], px, end exclusive), `scores`, `labels` (names),
            `label_ids` (ids in the training set's files), best score first, `width` and `height`.
        """
        from tasks.detection.predictions import predict

        found = predict(self.network, pictures, device=self.device, score_threshold=score_threshold)
        return [
            self._answer(boxes, picture) for boxes, picture in zip(found, pictures, strict=True)
        ]

    def draw(self, picture: np.ndarray, answer: Mapping[str, Any]) -> np.ndarray:
        """Return a copy of the picture with the boxes, their names and scores."""
        from tasks.detection.drawing import draw_boxes

        texts = [
            f"{name} {score:.2f}"
            for name, score in zip(answer["labels"], answer["scores"], strict=True)
        ]
        labels = [self.class_ids.index(class_id) for class_id in answer["label_ids"]]
        boxes_xyxy = np.asarray(answer["boxes"], dtype=np.float64).reshape(-1, 4)
        return draw_boxes(picture, boxes_xyxy, labels, texts)

    def _answer(self, found: Mapping[str, Any], picture: np.ndarray) -> dict[str, Any]:
        labels = [int(label) for label in found["labels"]]
        return {
            "boxes": [[round(float(x), 3) for x in box] for box in found["boxes_xyxy"]],
            "scores": [round(float(score), 6) for score in found["scores"]],
            "labels": [self.class_names[label] for label in labels],
            "label_ids": [int(self.class_ids[label]) for label in labels],
            "width": int(picture.shape[1]),
            "height": int(picture.shape[0]),
        }


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
        ModelError: if the files do not fit together.
    """
    return build_predictor(
        load_file(weights),
        yaml.safe_load(config.read_text(encoding="utf-8")),
        json.loads(classes.read_text(encoding="utf-8")),
        device=device,
    )


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
        experiment: the resolved experiment as plain data; `task` and `model` are read.
        classes: `names` and `ids` by label.
        device: where the network runs; None: as `serving_device` says.

    Raises:
        ModelError: if the task is unknown or a weight is missing, left over or of another shape.
    """
    build = _NETWORKS.get(str(experiment.get("task")))
    if build is None:
        raise ModelError(
            f"config: task is {experiment.get('task')!r}; one of {', '.join(_NETWORKS)} is right"
        )
    network = build(experiment["model"], classes)
    try:
        network.load_state_dict(dict(state), strict=True)
    except RuntimeError as error:
        raise ModelError(
            "the weights do not fit the network that this version of the code builds from the "
            f"model's config; use the code that the model was logged with ({error})"
        ) from error
    return DetectionPredictor(
        network,
        class_names=classes["names"],
        class_ids=classes["ids"],
        device=device or serving_device(),
    )


def serving_device() -> torch.device:
    """Return the device named by SIGHTFLOW_DEVICE, else CUDA where there is one, else the CPU."""
    name = os.environ.get("SIGHTFLOW_DEVICE", "")
    if name in ("", "auto"):
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def _detector(model: Mapping[str, Any], classes: Mapping[str, Any]) -> nn.Module:
    """Build a detector without starting weights."""
    from pydantic import TypeAdapter

    from models.detection.build import build_detector
    from tasks.detection.config import DetectionModelConfig

    schema: TypeAdapter[Any] = TypeAdapter(DetectionModelConfig)
    config = schema.validate_python(_without_starting_weights(model))
    return build_detector(config, num_classes=len(classes["names"]))


_NETWORKS: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any]], nn.Module]] = {
    "detection": _detector,
}


def _without_starting_weights(section: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a config section so that nothing is downloaded or looked for: the weights are here."""
    copy: dict[str, Any] = {}
    for key, value in section.items():
        if key in ("weights", "backbone_weights"):
            copy[key] = "none"
        else:
            copy[key] = _without_starting_weights(value) if isinstance(value, Mapping) else value
    return copy


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
            value = value.read_bytes()
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
        pictures = [
            open_picture(value, where=f"row {row}")
            for row, value in enumerate(_picture_values(model_input))
        ]
        # one by one: an answer must not depend on which other pictures were asked for with it
        return [
            self.predictor.predict([picture], score_threshold=threshold)[0] for picture in pictures
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
