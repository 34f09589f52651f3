"""What contradicts itself in a detection experiment and no single key can know."""

from __future__ import annotations

from collections.abc import Iterator

from steps.cross_checks import Complaint, check_enum_weights, check_file_weights, check_scale
from tasks.detection.config import (
    DataConfig,
    DetectionModelConfig,
    FasterRcnnConfig,
    JitterAugmentConfig,
    SlimBackboneConfig,
)
from tasks.detection.weight_names import DETECTOR_WEIGHTS, builder_backbone
from tasks.weight_names import BACKBONE_WEIGHTS


def check_data(data: DataConfig) -> Iterator[Complaint]:
    """Yield what contradicts itself in a `data` section."""
    if isinstance(data.augment, JitterAugmentConfig):
        yield from check_scale(data.augment.scale)


def check_model(model: DetectionModelConfig) -> Iterator[Complaint]:
    """Yield sizes and weights that do not fit the network."""
    if model.min_size and model.max_size and model.min_size > model.max_size:
        yield (
            ("model", "min_size"),
            f"{model.min_size} is not allowed: must be at most model.max_size ({model.max_size})",
        )
    if isinstance(model, FasterRcnnConfig):
        yield from _check_faster_rcnn(model)
        return
    yield from check_enum_weights(("model", "weights"), model.weights, DETECTOR_WEIGHTS[model.name])
    yield from check_enum_weights(
        ("model", "backbone_weights"),
        model.backbone_weights,
        BACKBONE_WEIGHTS[builder_backbone(model.name)],
    )


def _check_faster_rcnn(model: FasterRcnnConfig) -> Iterator[Complaint]:
    yield from check_file_weights(
        ("model", "weights"),
        model.weights,
        reason="torchvision has no weights of this detector, only of its backbone",
    )
    if not isinstance(model.backbone, SlimBackboneConfig):
        known = BACKBONE_WEIGHTS[model.backbone.name]
        yield from check_enum_weights(
            ("model", "backbone", "weights"), model.backbone.weights, known
        )
