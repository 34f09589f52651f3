"""torchvision's detectors by builder name, with weights from an enum or a file.

A network is built without weights and then filled, so that an enum and a file take the same way
and the class count may differ from that of the weights. What torchvision does otherwise when it
is given weights (frozen batch norms, frozen layers, no reduced tail) is done here.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn
from torchvision.models import (
    MobileNet_V3_Large_Weights,
    ResNet50_Weights,
    VGG16_Weights,
    WeightsEnum,
    get_model,
    get_model_weights,
    mobilenet_v3_large,
)
from torchvision.models.detection._utils import retrieve_out_channels
from torchvision.models.detection.ssdlite import SSDLiteFeatureExtractorMobileNet, SSDLiteHead
from torchvision.ops import FrozenBatchNorm2d

from models.detection.pyramid import freeze_blocks, freeze_resnet, mobilenet_stages
from models.weights import (
    CLASSIFIERS,
    WeightsError,
    load_strictly,
    read_state_dict,
    resolve_weights,
)

logger = logging.getLogger(__name__)

_VGG_STAGES = (0, 4, 9, 16, 23)  # the first block and the pooling layers but the last
_VGG_SPLIT = 23  # SSD takes features from before this layer of VGG16
_MOBILENET_SPLIT = 13  # SSDlite takes features from inside of this block of MobileNetV3


@dataclass(frozen=True)
class _Builder:
    """What torchvision's builder does with weights.

    Args:
        family: of the backbone.
        predictor: start of the names that depend on the class count.
        trainable_layers: number that trains from weights, when none is given.
        frozen_norms: whether the backbone's batch norms are frozen with weights.
        zero_eps: whether the published weights want frozen batch norms without epsilon.
    """

    family: Literal["resnet", "mobilenet", "vgg", "ssdlite"]
    predictor: str
    trainable_layers: int = 3
    frozen_norms: bool = False
    zero_eps: bool = False


_BOX_PREDICTOR = "roi_heads.box_predictor."
_DENSE_PREDICTOR = "head.classification_head.cls_logits."
_SSD_PREDICTOR = "head.classification_head.module_list."
_MOBILE_RCNN = _Builder("mobilenet", _BOX_PREDICTOR, frozen_norms=True)
_BUILDERS: Mapping[str, _Builder] = {
    "fasterrcnn_resnet50_fpn": _Builder("resnet", _BOX_PREDICTOR, frozen_norms=True, zero_eps=True),
    "fasterrcnn_resnet50_fpn_v2": _Builder("resnet", _BOX_PREDICTOR),
    "fasterrcnn_mobilenet_v3_large_fpn": _MOBILE_RCNN,
    "fasterrcnn_mobilenet_v3_large_320_fpn": _MOBILE_RCNN,
    "retinanet_resnet50_fpn": _Builder(
        "resnet", _DENSE_PREDICTOR, frozen_norms=True, zero_eps=True
    ),
    "retinanet_resnet50_fpn_v2": _Builder("resnet", _DENSE_PREDICTOR),
    "fcos_resnet50_fpn": _Builder("resnet", _DENSE_PREDICTOR, frozen_norms=True),
    "ssd300_vgg16": _Builder("vgg", _SSD_PREDICTOR, trainable_layers=4),
    "ssdlite320_mobilenet_v3_large": _Builder("ssdlite", _SSD_PREDICTOR, trainable_layers=6),
}
_BACKBONE_WEIGHTS: Mapping[str, type[WeightsEnum]] = {
    "resnet": ResNet50_Weights,
    "mobilenet": MobileNet_V3_Large_Weights,
    "vgg": VGG16_Weights,
    "ssdlite": MobileNet_V3_Large_Weights,
}
_NUM_STAGES: Mapping[str, int] = {"resnet": 5, "mobilenet": 6, "vgg": 5, "ssdlite": 6}


def build_torchvision_detector(model: Any, num_classes: int) -> nn.Module:
    """Return the network a `TorchvisionModelConfig` describes.

    Where whole weights are given, `backbone_weights` has no effect.

    Args:
        model: an object with the fields of `tasks.detection.config.TorchvisionModelConfig`.
        num_classes: classes without background. Where the weights have another count, the class
            predictor starts from random values and the rest is loaded.

    Raises:
        WeightsError: if weights are unknown, cannot be read, or do not fit.
        ValueError: if the builder has no such setting.
    """
    builder = _BUILDERS[model.name]
    whole = resolve_weights(model.weights, get_model_weights(model.name), key="model.weights")
    backbone = resolve_weights(
        model.backbone_weights, _BACKBONE_WEIGHTS[builder.family], key="model.backbone_weights"
    )
    _check_trainable_layers(model, builder, is_pretrained=(whole or backbone) is not None)
    network = get_model(
        model.name,
        weights=None,
        weights_backbone=None,
        num_classes=num_classes + 1,
        **_settings(model, builder),
    )
    if whole is None and backbone is None:
        return network
    if builder.frozen_norms:
        _freeze_norms(network.backbone.body)
    if whole is not None:
        tensors = read_state_dict(whole)
        load_strictly(network, tensors, free=[builder.predictor], source=str(whole))
        if builder.zero_eps and _is_published(whole, get_model_weights(model.name)["COCO_V1"]):
            _set_norm_eps(network, 0.0)
    elif backbone is not None:
        if builder.family == "ssdlite":
            _restore_tail(network, num_classes + 1)
        _load_backbone(network, builder.family, backbone)
    _freeze_layers(network.backbone, builder, model.trainable_backbone_layers)
    return network


def _settings(model: Any, builder: _Builder) -> dict[str, Any]:
    """Return the builder's keywords for what the configuration sets."""
    prefix = "box_" if builder.predictor == _BOX_PREDICTOR else ""
    settings = {
        f"{prefix}score_thresh": model.score_threshold,
        f"{prefix}nms_thresh": model.nms_threshold,
        f"{prefix}detections_per_img": model.detections_per_image,
    }
    for key in ("min_size", "max_size"):
        value = getattr(model, key)
        if value is not None and builder.predictor == _SSD_PREDICTOR:
            raise ValueError(f"model.{key}: {model.name} takes pictures of one fixed size; omit it")
        settings[key] = value
    return {key: value for key, value in settings.items() if value is not None}


def _check_trainable_layers(model: Any, builder: _Builder, *, is_pretrained: bool) -> None:
    asked = model.trainable_backbone_layers
    if asked is None:
        return
    most = _NUM_STAGES[builder.family]
    if asked > most:
        raise ValueError(
            f"model.trainable_backbone_layers: {asked} is more than {model.name} has ({most})"
        )
    if not is_pretrained:
        logger.warning(
            "model.trainable_backbone_layers has no effect without weights: all layers train"
        )


def _freeze_norms(module: nn.Module) -> None:
    """Put batch norms with fixed statistics and weights in the place of all batch norms."""
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(module, name, FrozenBatchNorm2d(child.num_features, child.eps))
        else:
            _freeze_norms(child)


def _is_published(weights: WeightsEnum | Path, published: WeightsEnum) -> bool:
    """Return whether these are the given weights: the enum, or a file of the name it has."""
    if isinstance(weights, Path):
        return weights.name == published.url.rpartition("/")[2]
    return weights is published


def _set_norm_eps(network: nn.Module, eps: float) -> None:
    for module in network.modules():
        if isinstance(module, FrozenBatchNorm2d):
            module.eps = eps


def _restore_tail(network: Any, num_outputs: int) -> None:
    """Give SSDlite the whole MobileNetV3, which ImageNet weights are for.

    Without weights torchvision builds it with a last stage of half the width.
    """
    norm_layer = partial(nn.BatchNorm2d, eps=0.001, momentum=0.03)
    features = mobilenet_v3_large(weights=None, norm_layer=norm_layer).features
    backbone = SSDLiteFeatureExtractorMobileNet(features, _MOBILENET_SPLIT, norm_layer)
    channels = retrieve_out_channels(backbone, (320, 320))
    num_anchors = network.anchor_generator.num_anchors_per_location()
    network.backbone = backbone
    network.head = SSDLiteHead(channels, num_anchors, num_outputs, norm_layer)


def _load_backbone(network: Any, family: str, weights: WeightsEnum | Path) -> None:
    """Fill the part of the network that the backbone's classification weights are for."""
    tensors = {
        name: value
        for name, value in read_state_dict(weights).items()
        if not name.startswith(CLASSIFIERS)
    }
    if family == "resnet":
        load_strictly(network.backbone.body, tensors, free=[], source=str(weights))
        return
    blocks = nn.ModuleList(_backbone_blocks(network.backbone, family))
    renamed = _named_by_block(tensors, family)
    if not renamed:
        raise WeightsError(f"{weights}: has no entry that begins with 'features.'")
    load_strictly(blocks, renamed, free=[], source=str(weights))


def _named_by_block(tensors: Mapping[str, Tensor], family: str) -> dict[str, Tensor]:
    """Cut `features.` off; split the names of the block that SSDlite cuts in two."""
    renamed = {}
    split = f"{_MOBILENET_SPLIT}.block."
    for name, value in tensors.items():
        if not name.startswith("features."):
            continue
        short = name.removeprefix("features.")
        if family == "ssdlite" and short.startswith(split):
            layer, _, rest = short.removeprefix(split).partition(".")
            # the second half is a slice, in which the layers keep their numbers
            half = f"0.{rest}" if layer == "0" else f"1.{layer}.{rest}"
            short = f"{_MOBILENET_SPLIT}.{half}"
        renamed[short] = value
    return renamed


def _backbone_blocks(backbone: Any, family: str) -> list[nn.Module]:
    """Return the classification network's `features`, as far as the detector has them."""
    if family == "mobilenet":
        return list(backbone.body.children())
    if family == "vgg":
        # the last module of the second part is SSD's own
        return [*backbone.features, *list(backbone.extra[0])[:-1]]
    first, second = backbone.features
    return [*first[:-1], nn.ModuleList([first[-1], second[0]]), *second[1:]]


def _freeze_layers(backbone: Any, builder: _Builder, asked: int | None) -> None:
    kept = builder.trainable_layers if asked is None else asked
    if builder.family == "resnet":
        freeze_resnet(backbone.body, kept)
        return
    blocks = _backbone_blocks(backbone, builder.family)
    freeze_blocks(blocks, _stages(builder.family), kept)


def _stages(family: str) -> Sequence[int]:
    if family == "vgg":
        return _VGG_STAGES
    return mobilenet_stages(list(mobilenet_v3_large(weights=None).features))
