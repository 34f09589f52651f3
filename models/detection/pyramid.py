"""Backbones with a feature pyramid, chosen by the strides of its levels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torchvision.models import get_model, get_model_weights
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.ops import Conv2dNormActivation, FrozenBatchNorm2d

from models.detection.slim_resnet import SlimResnet
from models.weights import load_backbone, resolve_weights

_PROBE = 64  # px; side of the picture that the strides are read off with
_RESNET_PARTS = ("conv1", "layer1", "layer2", "layer3", "layer4")


def build_pyramid(backbone: Any, *, strides: Sequence[int], channels: int) -> BackboneWithFPN:
    """Return the backbone with a feature pyramid and one pooled level above it.

    Without weights every layer trains, with batch norm. With weights the batch norms are frozen
    (torchvision's `FrozenBatchNorm2d`) and only the last `trainable_layers` train.

    Args:
        backbone: a `ResnetBackboneConfig`, `MobilenetBackboneConfig` or `SlimBackboneConfig`.
        strides: of the pyramid's levels, rising; the pooled level has twice the last one's.
        channels: of every level.

    Raises:
        ValueError: if the backbone has no level of one of the strides.
        WeightsError: if the weights cannot be read or do not fit.
    """
    if backbone.name == "slim_resnet":
        return _with_fpn(SlimResnet(backbone.widths, backbone.blocks), strides, channels)
    weights = resolve_weights(backbone.weights, get_model_weights(backbone.name))
    norm_layer = nn.BatchNorm2d if weights is None else FrozenBatchNorm2d
    network = get_model(backbone.name, weights=None, norm_layer=norm_layer)
    if weights is not None:
        load_backbone(network, weights)
    is_resnet = hasattr(network, "layer4")
    body = network if is_resnet else network.features
    if weights is not None:
        freeze = freeze_resnet if is_resnet else freeze_mobilenet
        freeze(body, backbone.trainable_layers)
    return _with_fpn(body, strides, channels)


def freeze_resnet(body: nn.Module, trainable_layers: int) -> None:
    """Stop the training of all but the last layers (of stem, layer1 ... layer4).

    Args:
        body: a network with torchvision's ResNet names.
        trainable_layers: how many of the five parts train, counted from the end, in [0, 5].
    """
    frozen = _RESNET_PARTS[: len(_RESNET_PARTS) - trainable_layers]
    for name, parameter in body.named_parameters():
        part = "conv1" if name.startswith("bn1.") else name.split(".")[0]
        if part in frozen:
            parameter.requires_grad_(False)


def freeze_mobilenet(features: nn.Sequential, trainable_layers: int) -> None:
    """Stop the training of all but the last stages.

    A stage begins at the first block of a new stride; the closing 1x1 convolution is a stage of
    its own, as in torchvision. It is no part of the pyramid, so that 1 trains nothing of it.

    Args:
        features: the `features` of a torchvision MobileNet.
        trainable_layers: how many of the six stages train, counted from the end, in [0, 6].
    """
    strides = [stride for stride, _ in _strides_and_channels(list(features))]
    # the first block of stride 2 is the stem, of which the following ones of stride 2 are part
    starts = [i for i in range(len(strides)) if i == 0 or strides[i] > strides[i - 1]]
    starts.append(len(strides) - 1)
    kept = min(trainable_layers, len(starts))
    first_trained = len(strides) if kept == 0 else starts[len(starts) - kept]
    for block in features[:first_trained]:
        block.requires_grad_(False)


def _with_fpn(body: nn.Module, strides: Sequence[int], channels: int) -> BackboneWithFPN:
    """Put the pyramid over the last block of each stride."""
    names, blocks = zip(*_blocks(body), strict=True)
    last = {
        stride: (name, width)
        for name, (stride, width) in zip(names, _strides_and_channels(blocks), strict=True)
    }
    absent = [stride for stride in strides if stride not in last]
    if absent:
        raise ValueError(
            f"model.fpn_levels: the backbone has no features of stride {absent[0]}; it has "
            f"{', '.join(map(str, sorted(last)))}"
        )
    levels = [last[stride] for stride in strides]
    return BackboneWithFPN(
        body,
        return_layers={name: str(k) for k, (name, _) in enumerate(levels)},
        in_channels_list=[width for _, width in levels],
        out_channels=channels,
    )


def _blocks(body: nn.Module) -> list[tuple[str, nn.Module]]:
    """Name the top modules that the features go through, up to the last one of use."""
    blocks = [(name, block) for name, block in body.named_children() if name not in _HEAD]
    # MobileNets end in a 1x1 convolution that widens the features for the classifier: eight times
    # the cost in a pyramid, and no new stride
    if isinstance(body, nn.Sequential) and isinstance(blocks[-1][1], Conv2dNormActivation):
        blocks.pop()
    return blocks


_HEAD = ("avgpool", "fc", "classifier")


def _strides_and_channels(blocks: Sequence[nn.Module]) -> list[tuple[int, int]]:
    """Run a small picture through the blocks and read stride and channels off each one's output."""
    training = [block.training for block in blocks]
    features = torch.zeros(1, 3, _PROBE, _PROBE)
    found = []
    with torch.no_grad():
        for block in blocks:
            features = block.eval()(features)
            found.append((_PROBE // features.shape[-1], features.shape[1]))
    for block, was_training in zip(blocks, training, strict=True):
        block.train(was_training)
    return found
