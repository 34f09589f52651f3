"""Backbones of lane networks: ResNets cut before their classifier, features at three strides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torchvision.models import ResNet, WeightsEnum, get_model, get_model_weights
from torchvision.models.resnet import BasicBlock

from models.lanes.frequency_attention import FcaBlock
from models.weights import CLASSIFIERS, load_strictly, read_state_dict, resolve_weights

_FCA_34 = "resnet34fca"
_FCA_34_BLOCKS = [3, 4, 6, 3]
_LANE_BACKBONE = "model."  # what the backbone's names begin with in a lane network
_KEY = "model.backbone.weights"


class ResnetFeatures(nn.Module):
    """The stem and the four layers of a ResNet, under torchvision's names.

    Args:
        network: has `conv1`, `bn1`, `relu`, `maxpool` and `layer1` to `layer4`; what else it has
            is left out.
        widths: channels of the last three layers.
    """

    def __init__(self, network: Any, widths: tuple[int, int, int]) -> None:
        super().__init__()
        self.widths = widths
        self.conv1, self.bn1 = network.conv1, network.bn1
        self.relu, self.maxpool = network.relu, network.maxpool
        self.layer1, self.layer2 = network.layer1, network.layer2
        self.layer3, self.layer4 = network.layer3, network.layer4

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the features at strides 8, 16 and 32 of images (N, 3, H, W).

        They are (N, widths[k], H / stride, W / stride); H and W are multiples of 32.
        """
        stem = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        features8 = self.layer2(self.layer1(stem))
        features16 = self.layer3(features8)
        return features8, features16, self.layer4(features16)


class SlimResnet(nn.Module):
    """A narrow ResNet of basic blocks for small pictures; the backbone of the embedded example.

    Args:
        widths: channels of the four layers; the stem has the first one's.
        blocks: basic blocks per layer.

    Source: He et al., Deep Residual Learning (CVPR 2016), section 4.1, with other widths.
    """

    def __init__(self, widths: Sequence[int], blocks: Sequence[int]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, widths[0], 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = _layer(widths[0], widths[0], blocks[0], stride=1)
        self.layer2 = _layer(widths[0], widths[1], blocks[1], stride=2)
        self.layer3 = _layer(widths[1], widths[2], blocks[2], stride=2)
        self.layer4 = _layer(widths[2], widths[3], blocks[3], stride=2)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def build_backbone(backbone: Any, *, pretrained: bool) -> ResnetFeatures:
    """Return the backbone, with its configured weights if it is to have any.

    Args:
        backbone: a `ResnetLaneBackboneConfig`, `FcaBackboneConfig` or `SlimLaneBackboneConfig`.
        pretrained: false: weights are left alone, as something else is going to fill all of it.

    Raises:
        WeightsError: if the weights cannot be read or do not fit.
    """
    if backbone.name == "slim_resnet":
        slim = SlimResnet(backbone.widths, backbone.blocks)
        return ResnetFeatures(slim, tuple(backbone.widths[1:]))
    if backbone.name == _FCA_34:
        network, enum = ResNet(FcaBlock, _FCA_34_BLOCKS), None
    else:
        network, enum = get_model(backbone.name, weights=None), get_model_weights(backbone.name)
    weights = resolve_weights(backbone.weights, enum, key=_KEY) if pretrained else None
    if weights is not None:
        _fill(network, weights)
    width = network.fc.in_features
    return ResnetFeatures(network, (width // 4, width // 2, width))


def _fill(network: nn.Module, weights: WeightsEnum | Path) -> None:
    """Load a classification network's weights, or the backbone's of a lane network.

    Frequency attention may stay as it is, so that a plain ResNet-34 fits too.
    """
    attention = [name for name in network.state_dict() if ".att." in name]
    tensors = _without_lanes(read_state_dict(weights))
    load_strictly(network, tensors, free=[*CLASSIFIERS, *attention], source=str(weights))


def _without_lanes(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the backbone's entries of a lane network, under their own names; else all entries."""
    inner = {
        name.removeprefix(_LANE_BACKBONE): value
        for name, value in tensors.items()
        if name.startswith(_LANE_BACKBONE)
    }
    return inner or dict(tensors)


def _layer(channels_in: int, channels: int, blocks: int, *, stride: int) -> nn.Sequential:
    shortcut = None
    if stride > 1 or channels_in != channels:
        shortcut = nn.Sequential(
            nn.Conv2d(channels_in, channels, 1, stride=stride, bias=False),
            nn.BatchNorm2d(channels),
        )
    first = BasicBlock(channels_in, channels, stride=stride, downsample=shortcut)
    return nn.Sequential(first, *(BasicBlock(channels, channels) for _ in range(blocks - 1)))
