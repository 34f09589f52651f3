"""The auxiliary segmentation head of lane networks, used in training only."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

_WIDTH = 128


class ConvNormRelu(nn.Module):
    """A 3x3 convolution that keeps the map's size, then batch norm and ReLU.

    Args:
        channels_in: channels of the input.
        channels: channels of the output.
        dilation: of the kernel, and the padding.
    """

    def __init__(self, channels_in: int, channels: int, *, dilation: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(
            channels_in, channels, 3, padding=dilation, dilation=dilation, bias=False
        )
        self.bn = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, features: Tensor) -> Tensor:
        """Return (N, channels, H, W) of (N, channels_in, H, W)."""
        return self.relu(self.bn(self.conv(features)))


class SegmentationHead(nn.Module):
    """Says of every cell of stride 8 which lane it is on, from the features of three strides.

    Args:
        widths: channels of the features at strides 8, 16 and 32.
        classes: of the output, the ground being 0.

    Source: Qin et al., Ultra Fast Structure-aware Deep Lane Detection (ECCV 2020), section 3.4;
    seed UFLDv2. Unlike the seed, any number of classes and any backbone.
    """

    def __init__(self, widths: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        self.aux_header2 = _header(widths[0], 4)
        self.aux_header3 = _header(widths[1], 3)
        self.aux_header4 = _header(widths[2], 2)
        self.aux_combine = nn.Sequential(
            ConvNormRelu(3 * _WIDTH, 2 * _WIDTH, dilation=2),
            ConvNormRelu(2 * _WIDTH, _WIDTH, dilation=2),
            ConvNormRelu(_WIDTH, _WIDTH, dilation=2),
            ConvNormRelu(_WIDTH, _WIDTH, dilation=4),
            nn.Conv2d(_WIDTH, classes, 1),
        )

    def forward(self, features: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """Return logits (N, classes, H / 8, W / 8) of features at strides 8, 16 and 32."""
        features8, features16, features32 = features
        parts = [
            self.aux_header2(features8),
            _enlarged(self.aux_header3(features16), 2),
            _enlarged(self.aux_header4(features32), 4),
        ]
        return self.aux_combine(torch.cat(parts, dim=1))


def _header(channels_in: int, layers: int) -> nn.Sequential:
    first = ConvNormRelu(channels_in, _WIDTH)
    return nn.Sequential(first, *(ConvNormRelu(_WIDTH, _WIDTH) for _ in range(layers - 1)))


def _enlarged(features: Tensor, factor: int) -> Tensor:
    return functional.interpolate(
        features, scale_factor=factor, mode="bilinear", align_corners=False
    )
