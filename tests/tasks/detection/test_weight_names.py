"""The weight enums that the configuration knows are torchvision's."""

from __future__ import annotations

from typing import get_args

import pytest
from torchvision.models import detection, get_model_weights, list_models

from tasks.detection.config import BuilderName, MobilenetName, ResnetName
from tasks.detection.weight_names import DETECTOR_WEIGHTS, builder_backbone
from tasks.weight_names import BACKBONE_WEIGHTS


@pytest.mark.parametrize(
    ("builder", "enum", "members"),
    [(name, *known) for name, known in {**DETECTOR_WEIGHTS, **BACKBONE_WEIGHTS}.items()],
)
def test_enums_and_members_are_those_of_the_library(
    builder: str, enum: str, members: tuple[str, ...]
) -> None:
    weights = get_model_weights(builder)
    assert weights.__name__ == enum
    assert set(members) == {member.name for member in weights}


def test_every_network_of_the_schema_has_an_entry() -> None:
    assert set(DETECTOR_WEIGHTS) == set(get_args(BuilderName))
    assert set(BACKBONE_WEIGHTS) == {*get_args(ResnetName), *get_args(MobilenetName), "vgg16"}
    assert {builder_backbone(name) for name in DETECTOR_WEIGHTS} <= set(BACKBONE_WEIGHTS)


def test_every_box_detector_of_the_library_is_in_the_schema() -> None:
    others = ("maskrcnn", "keypointrcnn")
    detectors = {name for name in list_models(detection) if not name.startswith(others)}
    assert detectors == set(get_args(BuilderName))
