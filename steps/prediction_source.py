"""From what a user calls a model (registry address, run, checkpoint, folder) to a predictor."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from readers.plain_yaml import load_plain_yaml
from steps.model_package import (
    CLASSES_FILE,
    CONFIG_FILE,
    ModelFiles,
    UnknownModelError,
    fetch_model_files,
    model_files_in,
    model_of_run,
)
from steps.tracking_store import open_client, use_tracking_store

if TYPE_CHECKING:
    import torch

    from tasks.predictor import Predictor

SOURCE_FORMS = (
    "models:/NAME@champion, models:/NAME/3, models:/m-..., runs:/RUN_ID, a run's id, "
    "a model's folder or a checkpoint's path"
)
_RUN_ID = re.compile(r"[0-9a-f]{32}")


def open_source(
    source: str, *, config: str, overrides: str = "", device: torch.device
) -> Predictor:
    """Return the predictor behind a name.

    The project's present code builds the network; a model logged by other code says so when it
    does not fit. (`mlflow models serve` runs the code that is packed with the model.)

    Args:
        source: one of SOURCE_FORMS.
        config: YAML of a checkpoint's experiment; empty: the one beside the checkpoint.
        overrides: values in place of those of `config`.
        device: where the network runs.

    Raises:
        UnknownModelError: if there is no such model.
        ModelError: if its files do not fit together.
        WeightsError: if a checkpoint holds no network.
    """
    from steps.serving import load_predictor

    path = Path(source)
    if path.is_file():
        return _from_checkpoint(path, config=config, overrides=overrides, device=device)
    if path.is_dir():
        files = model_files_in(path)
        return load_predictor(files.weights, files.config, files.classes, device=device)
    with tempfile.TemporaryDirectory() as folder:
        files = _fetch(source, Path(folder))
        return load_predictor(files.weights, files.config, files.classes, device=device)


def _fetch(source: str, folder: Path) -> ModelFiles:
    """Copy a model's files from the store."""
    run_id = source.removeprefix("runs:/").strip("/")
    if _RUN_ID.fullmatch(run_id):
        open_client(use_tracking_store())
        return fetch_model_files(f"models:/{model_of_run(run_id)}", folder)
    if source.startswith("models:/"):
        open_client(use_tracking_store())
        return fetch_model_files(source, folder)
    raise UnknownModelError(f"source {source!r}: no such file; right are {SOURCE_FORMS}")


def _from_checkpoint(path: Path, *, config: str, overrides: str, device: torch.device) -> Predictor:
    """Read the deployable weights of a training state, or another program's of the same network."""
    from engine.checkpoint import require_whole
    from engine.weights import read_weights
    from steps.experiment import load
    from steps.serving import build_predictor, read_experiment

    require_whole(path)
    weights = read_weights(path)
    if config:
        experiment = load_plain_yaml(load(config, overrides).text)
    else:
        experiment = read_experiment(_beside(path, CONFIG_FILE, "give it with --config"))
    return build_predictor(weights, experiment, _classes_of(path, experiment), device=device)


def _classes_of(path: Path, experiment: Mapping[str, Any]) -> dict[str, Any]:
    """Return the class table beside a checkpoint; some tasks need none."""
    from steps.serving import read_classes
    from tasks.catalogue import WITHOUT_CLASSES

    if experiment.get("task") in WITHOUT_CLASSES:
        return {"names": [], "ids": []}
    return read_classes(_beside(path, CLASSES_FILE, "the train step writes it; copy it there"))


def _beside(path: Path, name: str, advice: str) -> Path:
    """Find a file in a checkpoint's folder or the one above (`checkpoints/` of a run's folder)."""
    places = [path.resolve().parent / name, path.resolve().parent.parent / name]
    for place in places:
        if place.is_file():
            return place
    raise UnknownModelError(f"{path}: no {name} beside it or in the folder above; {advice}")
