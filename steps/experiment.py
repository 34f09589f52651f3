"""One YAML file is one experiment: `load`, which every step begins with.

Imports neither torch nor mlflow, so that a wrong configuration is told at once.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union

from pydantic import ValidationError

from steps import sections
from steps.complaints import complaints, nearest, shown
from steps.layers import expand_variables, merge, read_layers, read_overrides
from steps.paths import absolute_paths
from steps.problems import ConfigError, Problem, config_error
from steps.schemas import EXPERIMENTS, Experiment
from steps.yaml_source import Node, dump, find, values

__all__ = [
    "DEFAULT_CONFIG",
    "EXPERIMENTS",
    "PROJECT_FOLDER",
    "ConfigError",
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
    "model.backbone.name",
)


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
        message = f"missing key 'task': {nearest('', tasks)}"
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
