"""One YAML file is one experiment: the root schema, and `load`, which every step begins with."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.config import TrainConfig
from tasks.config import RegisterConfig
from tasks.detection.config import (
    DataConfig,
    DetectionCompat,
    DetectionModelConfig,
    EvaluateConfig,
)

PROJECT_FOLDER = Path(__file__).resolve().parent.parent
DEFAULT_CONFIG = PROJECT_FOLDER / "configs" / "detection" / "quickstart.yaml"


class ConfigError(Exception):
    """A configuration that cannot be used; one line per problem."""

    exit_code = 2


class DetectionExperiment(BaseModel):
    """An object detection experiment."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(
        max_length=60,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$",
        description="Name of the experiment; it begins the names of its runs.",
    )
    task: Literal["detection"]
    seed: int = Field(0, ge=0, description="Seed of every random draw.")
    compat: tuple[DetectionCompat, ...] = Field((), description="Reference defects to keep.")
    data: DataConfig
    model: DetectionModelConfig
    train: TrainConfig
    evaluate: EvaluateConfig = Field(default_factory=lambda: EvaluateConfig())
    register_: RegisterConfig | None = Field(
        None, alias="register", description="Registered model; null: the job ends before."
    )


Experiment = DetectionExperiment


@dataclass(frozen=True)
class Loaded:
    """An experiment, and where it came from.

    Args:
        experiment: the checked values.
        path: the YAML file, absolute.
        base: its folder.
        text: the resolved YAML; loads to the same experiment.
        digest: 12 hex digits of the values.
        flat: dotted key -> value as text.
    """

    experiment: Experiment
    path: Path
    base: Path
    text: str
    digest: str
    flat: dict[str, str]


def load(
    config: str | Path | None, overrides: str = "", environ: Mapping[str, str] = os.environ
) -> Loaded:
    """Return the experiment of a YAML file; without one, the embedded default."""
    path = Path(config or DEFAULT_CONFIG).resolve()
    tree = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    for item in overrides.split():
        _set(tree, *item.split("=", 1))
    try:
        experiment = DetectionExperiment.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(f"{path}: {error}") from error
    values = experiment.model_dump(mode="json", by_alias=True)
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return Loaded(
        experiment=experiment,
        path=path,
        base=path.parent,
        text=yaml.safe_dump(values, sort_keys=False),
        digest=hashlib.sha256(canonical.encode()).hexdigest()[:12],
        flat=dict(_flatten(values)),
    )


def _set(tree: dict[str, Any], key: str, value: str) -> None:
    *sections, last = key.split(".")
    for section in sections:
        tree = tree.setdefault(section, {})
    tree[last] = yaml.safe_load(value)


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value if isinstance(value, str) else json.dumps(value)
