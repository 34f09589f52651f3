"""torchvision's weight enums of backbones, as text: a wrong name costs no import of torch.

tests/tasks/detection/test_weight_names.py holds the table against the library.
"""

from __future__ import annotations

from collections.abc import Mapping

_V1 = ("IMAGENET1K_V1",)
_V1_V2 = ("IMAGENET1K_V1", "IMAGENET1K_V2")

# builder -> enum class, members
BACKBONE_WEIGHTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "resnet18": ("ResNet18_Weights", _V1),
    "resnet34": ("ResNet34_Weights", _V1),
    "resnet50": ("ResNet50_Weights", _V1_V2),
    "resnet101": ("ResNet101_Weights", _V1_V2),
    "resnet152": ("ResNet152_Weights", _V1_V2),
    "resnext50_32x4d": ("ResNeXt50_32X4D_Weights", _V1_V2),
    "resnext101_32x8d": ("ResNeXt101_32X8D_Weights", _V1_V2),
    "resnext101_64x4d": ("ResNeXt101_64X4D_Weights", _V1),
    "wide_resnet50_2": ("Wide_ResNet50_2_Weights", _V1_V2),
    "wide_resnet101_2": ("Wide_ResNet101_2_Weights", _V1_V2),
    "mobilenet_v2": ("MobileNet_V2_Weights", _V1_V2),
    "mobilenet_v3_small": ("MobileNet_V3_Small_Weights", _V1),
    "mobilenet_v3_large": ("MobileNet_V3_Large_Weights", _V1_V2),
    "vgg16": ("VGG16_Weights", ("IMAGENET1K_V1", "IMAGENET1K_FEATURES")),
}
