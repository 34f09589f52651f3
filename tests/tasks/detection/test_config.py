"""The schemas of the `data`, `model` and `evaluate` sections; names against the library."""

from typing import get_args

import pytest
import torchvision
from pydantic import TypeAdapter, ValidationError
from torchvision.models import list_models

from models.detection.torchvision_builders import _BACKBONE_WEIGHTS, _BUILDERS
from tasks.detection.config import (
    BuilderName,
    DataConfig,
    DetectionMetric,
    DetectionModelConfig,
    FasterRcnnConfig,
    MobilenetName,
    ResnetName,
)
from tasks.detection.metrics import coco_stats
from tasks.detection.weight_names import builder_backbone
from tasks.weight_names import BACKBONE_WEIGHTS

SYNTHETIC = {"format": "synthetic", "images": 4, "seed": 0}
FASTER_RCNN = {"name": "fasterrcnn", "backbone": {"name": "slim_resnet"}}


def test_every_builder_of_the_schema_can_be_built():
    assert set(_BUILDERS) == set(get_args(BuilderName))


def test_every_backbone_of_the_schema_is_the_librarys():
    families = ("resnet", "resnext", "wide_resnet", "mobilenet")
    known = {name for name in list_models(torchvision.models) if name.startswith(families)}

    assert {*get_args(ResnetName), *get_args(MobilenetName)} == known


def test_schema_and_builder_agree_on_the_backbones_weights():
    for name, builder in _BUILDERS.items():
        enum, _ = BACKBONE_WEIGHTS[builder_backbone(name)]
        assert enum == _BACKBONE_WEIGHTS[builder.family].__name__


def test_the_headline_is_one_of_the_numbers_that_are_computed():
    computed = coco_stats({"images": [], "annotations": [], "categories": []}, []).stats

    assert tuple(computed) == get_args(DetectionMetric)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"train": SYNTHETIC}, "`train` and `val` are needed"),
        ({"train": SYNTHETIC, "splits": {"source": SYNTHETIC}}, "not both"),
        (
            {"splits": {"source": SYNTHETIC, "fractions": (0.5, 0.5, 0.5)}},
            "three shares >= 0 that sum to 1",
        ),
        ({"train": SYNTHETIC, "val": SYNTHETIC, "augment": {"preset": "mixup"}}, "preset"),
    ],
    ids=["no-val", "two-ways", "shares", "preset"],
)
def test_wrong_data_is_told(data, message):
    with pytest.raises(ValidationError, match=message):
        DataConfig.model_validate(data)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"fpn_levels": (16, 8), "anchor_sizes": (8, 16, 32)}, "fpn_levels must rise"),
        ({"fpn_levels": (8, 16)}, "anchor_sizes has 5 entries; fpn_levels has 2.* 3 are needed"),
        ({"fpn_level": (8, 16)}, "fpn_level"),
    ],
)
def test_wrong_pyramids_are_told(settings, message):
    with pytest.raises(ValidationError, match=message):
        FasterRcnnConfig.model_validate({**FASTER_RCNN, **settings})


@pytest.mark.parametrize("name", ["fasterrcnn_resnet50", "yolo"])
def test_an_unknown_detector_is_refused(name):
    with pytest.raises(ValidationError, match=name):
        TypeAdapter(DetectionModelConfig).validate_python({"name": name})
