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
    enum = get_model_weights(backbone.name)
    weights = resolve_weights(backbone.weights, enum, key="model.backbone.weights")
    norm_layer = nn.BatchNorm2d if weights is None else FrozenBatchNorm2d
    network = get_model(backbone.name, weights=None, norm_layer=norm_layer)
    if weights is not None:
        load_backbone(network, weights)
    body = network if hasattr(network, "layer4") else network.features
    if weights is not None and body is network:
        freeze_resnet(body, backbone.trainable_layers)
    elif weights is not None:
        freeze_blocks(list(body), mobilenet_stages(list(body)), backbone.trainable_layers)
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


def freeze_blocks(
    blocks: Sequence[nn.Module], stages: Sequence[int], trainable_layers: int
) -> None:
    """Stop the training of all blocks before the last stages.

    Args:
        blocks: of the backbone, in order.
        stages: index of each stage's first block, rising from 0.
        trainable_layers: how many stages train, counted from the end.
    """
    first_trained = [len(blocks), *reversed(stages)][trainable_layers]
    for block in blocks[:first_trained]:
        block.requires_grad_(False)


def mobilenet_stages(blocks: Sequence[nn.Module]) -> list[int]:
    """Return the index of each stage's first block: six of them.

    A stage begins at the first block of a new stride; the closing 1x1 convolution is a stage of
    its own, as in torchvision. Our pyramids end before it, so that the last stage alone trains
    nothing of them.

    Args:
        blocks: the `features` of a torchvision MobileNet.
    """
    strides = [0, *(stride for stride, _ in _strides_and_channels(blocks))]
    starts = [k for k in range(len(blocks)) if strides[k + 1] > strides[k]]
    return [*starts, len(blocks) - 1]


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
