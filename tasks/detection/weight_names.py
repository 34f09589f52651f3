"""torchvision's detector weight enums by builder, as text: a wrong name costs no import of torch.

tests/tasks/detection/test_weight_names.py holds the table against the library.
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


def builder_backbone(builder: str) -> str:
    """Return the backbone inside of a detector builder's name."""
    return next(name for name in ("resnet50", "mobilenet_v3_large", "vgg16") if name in builder)
