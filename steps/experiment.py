"""One YAML file is one experiment: the root schemas, and `load`, which every step begins with.

Imports neither torch nor mlflow, so that a wrong configuration is told at once.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.config import TrainConfig
from steps import cross_checks, sections
from steps.complaints import complaints, nearest, shown
from steps.layers import expand_variables, merge, read_layers, read_overrides
from steps.paths import absolute_paths
from steps.problems import ConfigError, Problem, config_error
from steps.yaml_source import Node, dump, find, values
from tasks.config import RegisterConfig
from tasks.detection.config import (
    DataConfig,
    DetectionCompat,
    DetectionMetric,
    DetectionModelConfig,
    EvaluateConfig,
)

__all__ = [
    "DEFAULT_CONFIG",
    "EXPERIMENTS",
    "PROJECT_FOLDER",
    "ConfigError",
    "DetectionExperiment",
    "Experiment",
    "Loaded",
    "load",
]

PROJECT_FOLDER = Path(__file__).resolve().parent.parent
DEFAULT_CONFIG = PROJECT_FOLDER / "configs" / "detection" / "quickstart.yaml"

# the parameters that matter first, since MLflow lists them in the order of logging
_TELLING = (
    "name",
    "task",
    "seed",
    "model.name",
    "train.epochs",
    "train.batch_size",
    "train.optimizer.name",
    "train.optimizer.lr",
    "train.schedule.name",
)


class DetectionExperiment(BaseModel):
    """Objects in pictures: boxes, classes and scores."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(
        max_length=60,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$",
        description="Name of the experiment; the names of its runs begin with it.",
    )
    task: Literal["detection"] = Field(description="The vision task.")
    seed: int = Field(0, ge=0, lt=2**63, description="Seed of every random draw of the training.")
    compat: tuple[DetectionCompat, ...] = Field(
        (), description="Defects of a reference to keep, by name; `[all]`: the reference as it is."
    )
    data: DataConfig = Field(description="Where the pictures and labels are.")
    model: DetectionModelConfig = Field(description="The network.")
    train: TrainConfig = Field(description="The training loop.")
    evaluate: EvaluateConfig = Field(
        default_factory=lambda: EvaluateConfig(), description="What is measured, on which split."
    )
    register_: RegisterConfig | None = Field(
        None,
        alias="register",
        description="The registered model and its gate; null: nothing is registered.",
    )

    def contradictions(self) -> Iterator[cross_checks.Complaint]:
        """Yield what no single section can know to be wrong, with the path of its key."""
        yield from cross_checks.check_train(self.train)
        yield from cross_checks.check_data(self.data)
        yield from cross_checks.check_model(self.model)
        yield from cross_checks.check_split(self.evaluate, self.data)
        if self.register_ is not None:
            metrics = get_args(DetectionMetric)
            yield from cross_checks.check_gate(self.register_.gate, metrics=metrics)


# further tasks join here: Experiment = DetectionExperiment | TrackingExperiment
Experiment = DetectionExperiment
EXPERIMENTS: Mapping[str, type[Experiment]] = {"detection": DetectionExperiment}
_SCHEMAS: Any = Union[tuple(EXPERIMENTS.values())]  # noqa: UP007


@dataclass(frozen=True)
class Loaded:
    """An experiment, and where it came from.

    Args:
        experiment: the checked values, frozen; paths in it are absolute.
        path: the YAML file, absolute.
        base: its folder.
        text: the resolved YAML, with every default; loads to the same experiment.
        digest: 12 hex digits of SHA-256 over the values as canonical JSON.
        flat: dotted key -> value as text, the telling ones first; lists as JSON.
    """

    experiment: Experiment
    path: Path
    base: Path
    text: str
    digest: str
    flat: dict[str, str]


def load(
    config: str | Path | None, overrides: str = "", environ: Mapping[str, str] | None = None
) -> Loaded:
    """Return the experiment of a YAML file.

    Args:
        config: the file, relative to the current folder or else to the project's; None or '' for
            the embedded default.
        overrides: assignments such as `train.epochs=3 train.optimizer.lr=0.01`; relative paths in
            them count from the YAML's folder too.
        environ: for `${NAME}`; None: the process's environment.

    Raises:
        ConfigError: with one line per problem: file, line, key, value and what would be right.
    """
    environ = os.environ if environ is None else environ
    path = _find_config(config)
    root = read_layers(path, annotation=_SCHEMAS, environ=environ)
    assignments = read_overrides(overrides, folder=path.parent)
    if assignments is not None:
        root = merge(assignments, root, annotation=_SCHEMAS)
    root, unset = expand_variables(root, environ)
    experiment = _check(root, unset)
    tree = sections.tag_first(type(experiment), experiment.model_dump(mode="json", by_alias=True))
    canonical = json.dumps(tree, sort_keys=True, separators=(",", ":"))
    return Loaded(
        experiment=experiment,
        path=path,
        base=path.parent,
        text=dump(tree),
        digest=hashlib.sha256(canonical.encode()).hexdigest()[:12],
        flat=_flat(tree),
    )


def _find_config(config: str | Path | None) -> Path:
    """Look in the current folder first, then in the project's, where MLflow runs a project."""
    if not config:
        return DEFAULT_CONFIG
    path = Path(config).expanduser()
    in_project = PROJECT_FOLDER / path
    return (in_project if not path.exists() and in_project.is_file() else path).absolute()


def _check(root: Node, unset: list[Problem]) -> Experiment:
    """Return the experiment that a tree holds, or raise with everything that is wrong with it."""
    schema = _schema_of_task(root)
    root = absolute_paths(root, schema)
    try:
        experiment = schema.model_validate_json(json.dumps(values(root)), strict=True)
    except ValidationError as error:
        found = complaints(error.errors(include_url=False), root=root, annotation=schema)
        without_value = [problem.path for problem in unset]
        told = [problem for problem in found if problem.path not in without_value]
        raise config_error([*unset, *told]) from error
    problems = [
        Problem(find(root, path).place, path, message)
        for path, message in experiment.contradictions()
    ]
    if unset or problems:
        raise config_error([*unset, *problems])
    return experiment


def _schema_of_task(root: Node) -> type[Experiment]:
    assert isinstance(root.value, dict)
    tasks = list(EXPERIMENTS)
    node = root.value.get("task")
    if node is None:
        message = f"missing key 'task': {nearest(None, tasks)}"
        raise config_error([Problem(root.place, (), message)])
    task = values(node)
    if not isinstance(task, str) or task not in EXPERIMENTS:
        message = f"{shown(task)} is not allowed: must be {nearest(task, tasks)}"
        raise config_error([Problem(node.place, ("task",), message)])
    return EXPERIMENTS[task]


def _flat(tree: Mapping[str, Any]) -> dict[str, str]:
    flat = dict(_flatten(tree))
    first = {key: flat[key] for key in _TELLING if key in flat}
    return {**first, **flat}


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            yield f"{prefix}{key}", text
