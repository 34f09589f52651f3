"""torchvision's weight enums by builder, as text: a wrong name costs no import of torch.

tests/tasks/detection/test_weight_names.py holds the tables against the library.
"""

from __future__ import annotations

from collections.abc import Mapping

# builder -> enum class, members
DETECTOR_WEIGHTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "fasterrcnn_resnet50_fpn": ("FasterRCNN_ResNet50_FPN_Weights", ("COCO_V1",)),
    "fasterrcnn_resnet50_fpn_v2": ("FasterRCNN_ResNet50_FPN_V2_Weights", ("COCO_V1",)),
    "fasterrcnn_mobilenet_v3_large_fpn": (
        "FasterRCNN_MobileNet_V3_Large_FPN_Weights",
        ("COCO_V1",),
    ),
    "fasterrcnn_mobilenet_v3_large_320_fpn": (
        "FasterRCNN_MobileNet_V3_Large_320_FPN_Weights",
        ("COCO_V1",),
    ),
    "retinanet_resnet50_fpn": ("RetinaNet_ResNet50_FPN_Weights", ("COCO_V1",)),
    "retinanet_resnet50_fpn_v2": ("RetinaNet_ResNet50_FPN_V2_Weights", ("COCO_V1",)),
    "fcos_resnet50_fpn": ("FCOS_ResNet50_FPN_Weights", ("COCO_V1",)),
    "ssd300_vgg16": ("SSD300_VGG16_Weights", ("COCO_V1",)),
    "ssdlite320_mobilenet_v3_large": ("SSDLite320_MobileNet_V3_Large_Weights", ("COCO_V1",)),
}

_V1 = ("IMAGENET1K_V1",)
_V1_V2 = ("IMAGENET1K_V1", "IMAGENET1K_V2")

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


def builder_backbone(builder: str) -> str:
    """Return the backbone inside of a detector builder's name."""
    return next(name for name in ("resnet50", "mobilenet_v3_large", "vgg16") if name in builder)
