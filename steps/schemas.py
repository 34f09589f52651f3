"""The root schema of each task: all sections of its YAML file. Imports neither torch nor mlflow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from engine.config import TrainConfig
from steps import cross_checks, detection_checks, lane_checks
from tasks.config import RegisterConfig, kept_defects
from tasks.detection.config import (
    DataConfig,
    DetectionCompat,
    DetectionMetric,
    DetectionModelConfig,
    EvaluateConfig,
)
from tasks.lanes.config import (
    DecodeConfig,
    LaneCompat,
    LaneDataConfig,
    LaneEvaluateConfig,
    LaneLossConfig,
    LaneScore,
    UfldModelConfig,
)

Name = Annotated[
    str,
    Field(
        max_length=60,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$",
        description="Name of the experiment; the names of its runs begin with it.",
    ),
]
Seed = Annotated[
    int, Field(ge=0, lt=2**63, description="Seed of every random draw of the training.")
]
Train = Annotated[TrainConfig, Field(description="The training loop.")]
Register = Annotated[
    RegisterConfig | None,
    Field(
        alias="register",
        description="The registered model and its gate; null: nothing is registered.",
    ),
]
_COMPAT = "Defects of a reference to keep, by name; `[all]`: the reference as it is."


class _ExperimentSchema(BaseModel):
    """What all experiments share; each lists all of its sections, so that they stay in order."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DetectionExperiment(_ExperimentSchema):
    """Objects in pictures: boxes, classes and scores."""

    name: Name
    task: Literal["detection"] = Field(description="The vision task.")
    seed: Seed = 0
    compat: tuple[DetectionCompat, ...] = Field((), description=_COMPAT)
    data: DataConfig = Field(description="Where the pictures and labels are.")
    model: DetectionModelConfig = Field(description="The network.")
    train: Train
    evaluate: EvaluateConfig = Field(
        default_factory=lambda: EvaluateConfig(), description="What is measured, on which split."
    )
    register_: Register = None

    @property
    def defects(self) -> frozenset[str]:
        """Return `compat` with `all` replaced by the names that it stands for."""
        return kept_defects(self.compat, get_args(DetectionCompat))

    def contradictions(self) -> Iterator[cross_checks.Complaint]:
        """Yield what no single section can know to be wrong, with the path of its key."""
        yield from cross_checks.check_train(self.train)
        yield from cross_checks.check_splits(self.data, self.evaluate)
        yield from detection_checks.check_data(self.data)
        yield from detection_checks.check_model(self.model)
        if self.register_ is not None:
            metrics = get_args(DetectionMetric)
            yield from cross_checks.check_gate(self.register_.gate, metrics=metrics)


class LanesExperiment(_ExperimentSchema):
    """Lane lines of a road: one curve per slot, from left to right."""

    name: Name
    task: Literal["lanes"] = Field(description="The vision task.")
    seed: Seed = 0
    compat: tuple[LaneCompat, ...] = Field((), description=_COMPAT)
    data: LaneDataConfig = Field(description="Where the pictures and labels are.")
    model: UfldModelConfig = Field(description="The network.")
    loss: LaneLossConfig = Field(
        default_factory=lambda: LaneLossConfig(), description="Weights of the loss terms."
    )
    decode: DecodeConfig = Field(
        default_factory=lambda: DecodeConfig(), description="How lanes are read off the output."
    )
    train: Train
    evaluate: LaneEvaluateConfig = Field(
        default_factory=lambda: LaneEvaluateConfig(),
        description="What is measured, on which split.",
    )
    register_: Register = None

    @property
    def defects(self) -> frozenset[str]:
        """Return `compat` with `all` replaced by the names that it stands for."""
        return kept_defects(self.compat, get_args(LaneCompat))

    def contradictions(self) -> Iterator[cross_checks.Complaint]:
        """Yield what no single section can know to be wrong, with the path of its key."""
        yield from cross_checks.check_train(self.train)
        yield from cross_checks.check_splits(self.data, self.evaluate)
        yield from lane_checks.check_data(self.data)
        yield from lane_checks.check_model(self.model, self.data.frame)
        yield from lane_checks.check_loss(self.loss, self.model)
        yield from lane_checks.check_decode(self.decode, self.model)
        yield from lane_checks.check_evaluate(self.evaluate, self.data)
        if self.register_ is not None:
            gate = self.register_.gate
            yield from cross_checks.check_gate(gate, metrics=get_args(LaneScore))
            yield from lane_checks.check_gate(gate, self.evaluate, self.data)


# further tasks join here
Experiment = DetectionExperiment | LanesExperiment
EXPERIMENTS: Mapping[str, type[Experiment]] = {
    "detection": DetectionExperiment,
    "lanes": LanesExperiment,
}
