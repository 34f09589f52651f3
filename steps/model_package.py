"""Logs a trained network as an MLflow model that can be served, and finds such models again.

A deployable model is a folder: `serving.py` (run to load it), safetensors, the resolved experiment,
the class table and the sources that rebuild the network. Nothing in it is pickled.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steps.secrets import without_user_info

if TYPE_CHECKING:
    import torch
    from mlflow.entities import LoggedModel

PROJECT_FOLDER = Path(__file__).resolve().parent.parent
BUNDLED_PACKAGES = ("models", "readers", "tasks", "engine")
WEIGHTS_FILE = "weights.safetensors"
CONFIG_FILE = "config.yaml"
CLASSES_FILE = "classes.json"
DIGEST_TAG = "digest"

# what the bundled packages import on the way to a prediction; tests/steps/test_serving.py and
# test_lane_predictor.py block everything else
_REQUIRED = (
    "joblib",
    "mlflow",
    "numpy",
    "pandas",
    "pillow",
    "pyarrow",
    "pydantic",
    "pyyaml",
    "safetensors",
    "torch",
    "torchvision",
)


class UnknownModelError(Exception):
    """No deployable model where one was asked for; the message says where and what to do."""

    exit_code = 1


@dataclass(frozen=True)
class Deployable:
    """A trained network, ready to be packed.

    Args:
        network_state: the state dict that predicts (the EMA weights where there are any).
        config_text: the resolved experiment, YAML.
        class_names: label -> name, labels from 0.
        class_ids: label -> id in the data set's files.
        example: bytes of a small JPEG that goes in as the input example; None: a drawn one.
    """

    network_state: Mapping[str, torch.Tensor]
    config_text: str
    class_names: Sequence[str]
    class_ids: Sequence[int]
    example: bytes | None = None


@dataclass(frozen=True)
class ModelFiles:
    """The files of a deployable model, in a local folder."""

    weights: Path
    config: Path
    classes: Path


def log_deployable(
    deployable: Deployable,
    *,
    run_id: str,
    name: str,
    step: int,
    params: Mapping[str, Any],
    tags: Mapping[str, str],
) -> LoggedModel:
    """Log the model as an output of a run; the run gets no new metrics or params.

    MLflow's own `log_model` is not used: it reads the whole history of every metric of the run, and
    links the points of a step to the model, which the UI shows as a group without a data set.

    Args:
        deployable: the network and what it needs.
        run_id: the training run.
        name: short and unique, `7f3k@2700` (run token @ update); the UI's charts show it.
        step: the update count of the weights; shown beside the model, nothing is linked by it.
        params: what the Models tab can be filtered by (network, update, ...).
        tags: short facts; `digest` (12 digits, the same for the same weights) is added.

    Returns:
        The LoggedModel; its `model_id` is what `register` needs.
    """
    import mlflow
    from mlflow.entities import LoggedModelOutput

    client = mlflow.MlflowClient()
    with tempfile.TemporaryDirectory() as folder:
        files = write_model_files(deployable, Path(folder))
        model = client.create_logged_model(
            experiment_id=client.get_run(run_id).info.experiment_id,
            name=name,
            source_run_id=run_id,
            tags={**tags, DIGEST_TAG: content_digest(files)},
            params={key: str(value) for key, value in params.items()},
            model_type="sightflow",
        )
        try:
            packed = Path(folder) / "packed"
            _pack(deployable, files, model=model, packed=packed)
            client.log_model_artifacts(model.model_id, str(packed))
        except BaseException:
            client.finalize_logged_model(model.model_id, "FAILED")
            raise
    client.log_outputs(run_id, [LoggedModelOutput(model.model_id, step=step)])
    return client.finalize_logged_model(model.model_id, "READY")


def write_model_files(deployable: Deployable, folder: Path) -> ModelFiles:
    """Write weights, config and class table of a deployable model into a folder."""
    from safetensors.torch import save_file

    files = _model_files(folder)
    # cloned, since safetensors refuses tensors that share memory
    state = {
        key: tensor.detach().cpu().contiguous().clone()
        for key, tensor in deployable.network_state.items()
    }
    save_file(state, files.weights)
    files.config.write_text(without_user_info(deployable.config_text), encoding="utf-8")
    classes = {"names": list(deployable.class_names), "ids": [int(i) for i in deployable.class_ids]}
    files.classes.write_text(json.dumps(classes, indent=1) + "\n", encoding="utf-8")
    return files


def content_digest(files: ModelFiles) -> str:
    """Return 12 hex digits that are the same for the same weights and class table."""
    digest = hashlib.sha256()
    for path in (files.weights, files.classes):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


def _model_files(folder: Path) -> ModelFiles:
    return ModelFiles(folder / WEIGHTS_FILE, folder / CONFIG_FILE, folder / CLASSES_FILE)


def _pack(deployable: Deployable, files: ModelFiles, *, model: LoggedModel, packed: Path) -> None:
    """Write the model in MLflow's layout into the folder `packed`."""
    import mlflow.pyfunc
    import pandas as pd
    from mlflow.models import Model

    quiet_mlflow()
    mlflow.pyfunc.save_model(
        path=str(packed),
        mlflow_model=Model(
            artifact_path=model.artifact_location,
            model_uuid=model.model_id,
            run_id=model.source_run_id,
            model_id=model.model_id,
        ),
        python_model=str(PROJECT_FOLDER / "steps" / "serving.py"),
        artifacts={
            "weights": str(files.weights),
            "config": str(files.config),
            "classes": str(files.classes),
        },
        code_paths=[str(PROJECT_FOLDER / package) for package in BUNDLED_PACKAGES],
        signature=_signature(),
        input_example=pd.DataFrame({"image": [deployable.example or _drawn_example()]}),
        pip_requirements=pip_requirements(),
    )


def quiet_mlflow() -> None:
    """Spare the user MLflow's remarks on what is meant to be so."""
    # the requirements are explicit: no uv lock file of the working folder is to be taken instead
    os.environ.setdefault("MLFLOW_UV_AUTO_DETECT", "false")
    os.environ.setdefault("MLFLOW_SKIP_PIP_REQUIREMENTS_CHECK", "true")
    # a server gets another OpenCV than the machine that trains
    logging.getLogger("mlflow.utils.requirements_utils").setLevel(logging.ERROR)
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")


def _signature() -> Any:
    """Return the signature; answers are nested, so they are left unstated."""
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema

    from steps.serving import DEFAULT_SCORE_THRESHOLD, IMAGE_COLUMN

    threshold = ParamSpec("score_threshold", DataType.double, DEFAULT_SCORE_THRESHOLD)
    return ModelSignature(
        inputs=Schema([ColSpec(DataType.binary, IMAGE_COLUMN)]), params=ParamSchema([threshold])
    )


def pip_requirements() -> list[str]:
    """Return the pinned requirements of a served model, from what is installed here.

    A server has no screen: OpenCV comes without its windows (`opencv-python-headless`). A local
    build's suffix (`+cpu`) is left out: which build fits is up to the server.
    """
    pins = [f"{name}=={_installed(name)}" for name in _REQUIRED]
    return sorted([*pins, f"opencv-python-headless=={_installed_opencv()}"])


def _installed(name: str) -> str:
    return re.sub(r"\+.*$", "", metadata.version(name))


def _installed_opencv() -> str:
    try:
        return _installed("opencv-python")
    except metadata.PackageNotFoundError:
        return _installed("opencv-python-headless")


def _drawn_example() -> bytes:
    """Return a small JPEG, the same every time: a colour ramp."""
    import cv2
    import numpy as np

    ramp = np.linspace(0, 255, 48, dtype=np.uint8)
    picture = np.stack([np.tile(ramp, (32, 1)), np.tile(ramp[::-1], (32, 1))] * 2, axis=-1)
    _, encoded = cv2.imencode(".jpg", np.ascontiguousarray(picture[:, :, :3]))
    return bytes(encoded)


def fetch_model_files(uri: str, folder: Path) -> ModelFiles:
    """Copy the files of a logged or registered model into a folder.

    Args:
        uri: `models:/NAME@champion`, `models:/NAME/3`, `models:/m-...`.
        folder: where they go.

    Raises:
        UnknownModelError: if there is no such model, or it is not one of ours.
    """
    import mlflow
    from mlflow.exceptions import MlflowException

    quiet_mlflow()
    try:
        local = mlflow.artifacts.download_artifacts(uri, dst_path=str(folder))
    except (MlflowException, OSError) as error:
        raise UnknownModelError(f"{uri}: cannot be read ({error})") from error
    return model_files_in(Path(local))


def model_files_in(folder: Path) -> ModelFiles:
    """Return the files of a model in a local folder, or in its `artifacts` folder.

    Raises:
        UnknownModelError: if a file is missing.
    """
    inner = folder / "artifacts"
    files = _model_files(inner if inner.is_dir() else folder)
    wanted = (files.weights, files.config, files.classes)
    if missing := [path.name for path in wanted if not path.exists()]:
        raise UnknownModelError(f"{folder}: not a model of this project (no {', '.join(missing)})")
    return files


def model_of_run(run_id: str) -> str:
    """Return the id of the model that a run logged or scored.

    Raises:
        UnknownModelError: if there is no such run or it names no model.
    """
    import mlflow
    from mlflow.exceptions import MlflowException

    try:
        run = mlflow.MlflowClient().get_run(run_id)
    except MlflowException as error:
        raise UnknownModelError(f"run {run_id}: cannot be read ({error})") from error
    if model_id := run.data.tags.get("model_id"):
        return model_id
    outputs = run.outputs.model_outputs if run.outputs else []
    if not outputs:
        raise UnknownModelError(
            f"run {run_id} (step {run.data.tags.get('step', 'unknown')}): has no model; give a "
            "train or evaluate run that ended well"
        )
    return outputs[-1].model_id
