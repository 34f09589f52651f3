"""What no single key can know: values that contradict each other, or name what is not there."""

from __future__ import annotations

from collections.abc import Iterator

from engine.config import (
    AdamConfig,
    AdamWConfig,
    MultistepConfig,
    SteppedWarmupConfig,
    TrainConfig,
)
from steps.complaints import nearest, shown
from steps.paths import is_path
from tasks.config import GateConfig
from tasks.detection.config import (
    DataConfig,
    DetectionModelConfig,
    EvaluateConfig,
    FasterRcnnConfig,
    JitterAugmentConfig,
    SlimBackboneConfig,
)
from tasks.detection.weight_names import BACKBONE_WEIGHTS, DETECTOR_WEIGHTS, builder_backbone

Complaint = tuple[tuple[str | int, ...], str]
"""Key path from the root, and a sentence."""


def check_train(train: TrainConfig) -> Iterator[Complaint]:
    """Yield what contradicts itself in a `train` section."""
    schedule, warmup = train.schedule, train.warmup
    if isinstance(schedule, MultistepConfig) and schedule.per == "epoch":
        late = [milestone for milestone in schedule.milestones if milestone >= train.epochs]
        if late:
            yield (
                ("train", "schedule", "milestones"),
                f"milestone {late[0]} never comes: epochs count from 0 and train.epochs is "
                f"{train.epochs}, so milestones must be less than {train.epochs}",
            )
    if isinstance(warmup, SteppedWarmupConfig) and warmup.epochs >= train.epochs:
        yield (
            ("train", "warmup", "epochs"),
            f"{warmup.epochs} is not allowed: the warm-up must be shorter than train.epochs "
            f"({train.epochs})",
        )
    if isinstance(train.optimizer, AdamConfig | AdamWConfig):
        for i, beta in enumerate(train.optimizer.betas):
            if not 0 <= beta < 1:
                yield (
                    ("train", "optimizer", "betas", i),
                    f"{beta} is not allowed: must be 0 or more and less than 1",
                )


def check_gate(gate: GateConfig, *, metrics: tuple[str, ...]) -> Iterator[Complaint]:
    """Yield scores in a gate that the task does not measure."""
    named = [(("register", "gate", "thresholds", name), name) for name in gate.thresholds]
    if gate.champion is not None:
        named.append((("register", "gate", "champion", "metric"), gate.champion.metric))
    for path, name in named:
        bare = name.rpartition("/")[2]
        if name in metrics:
            continue
        if bare in metrics:
            yield path, f"{name!r} is not allowed: write {bare!r}, without the split before it"
        else:
            yield path, f"{name!r} is not a score of this task: must be {nearest(name, metrics)}"


def check_data(data: DataConfig) -> Iterator[Complaint]:
    """Yield what contradicts itself in a detection `data` section."""
    if data.splits is not None and data.splits.fractions[1] == 0:
        yield (
            ("data", "splits", "fractions", 1),
            "0 is not allowed: training is watched on the validation split, so it needs a share",
        )
    if isinstance(data.augment, JitterAugmentConfig):
        low, high = data.augment.scale
        if not 0 < low <= high:
            yield (
                ("data", "augment", "scale"),
                f"[{low}, {high}] is not allowed: must be [least, largest], both above 0",
            )


def check_split(evaluate: EvaluateConfig, data: DataConfig) -> Iterator[Complaint]:
    """Yield a split to evaluate on that the data do not have."""
    if "test" not in evaluate.split.split("+"):
        return
    path = ("evaluate", "split")
    if data.splits is None and data.test is None:
        yield path, f"{evaluate.split} needs data.test; give it, or write `split: val`"
    elif data.splits is not None and data.splits.fractions[2] == 0:
        yield (
            path,
            f"{evaluate.split} needs a test split, but the third of data.splits.fractions is 0; "
            "give it a share, or write `split: val`",
        )


def check_model(model: DetectionModelConfig) -> Iterator[Complaint]:
    """Yield sizes and weights that do not fit the network."""
    if model.min_size and model.max_size and model.min_size > model.max_size:
        yield (
            ("model", "min_size"),
            f"{model.min_size} is not allowed: must be at most model.max_size ({model.max_size})",
        )
    if isinstance(model, FasterRcnnConfig):
        if not (model.weights == "none" or is_path(model.weights)):
            yield (
                ("model", "weights"),
                f"{model.weights!r} is not allowed: torchvision has no weights of this detector, "
                "only of its backbone; must be none or the path of a file",
            )
        if not isinstance(model.backbone, SlimBackboneConfig):
            known = BACKBONE_WEIGHTS[model.backbone.name]
            yield from _check_weights(
                ("model", "backbone", "weights"), model.backbone.weights, known
            )
        return
    yield from _check_weights(("model", "weights"), model.weights, DETECTOR_WEIGHTS[model.name])
    yield from _check_weights(
        ("model", "backbone_weights"),
        model.backbone_weights,
        BACKBONE_WEIGHTS[builder_backbone(model.name)],
    )


def _check_weights(
    path: tuple[str, ...], weights: str, known: tuple[str, tuple[str, ...]]
) -> Iterator[Complaint]:
    enum, members = known
    name = weights.removeprefix(f"{enum}.")
    if weights == "none" or is_path(weights) or name in (*members, "DEFAULT"):
        return
    right = nearest(weights, ["none", *(f"{enum}.{member}" for member in members)])
    yield path, f"{shown(weights)} is not allowed: must be the path of a file or {right}"
