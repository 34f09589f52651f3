"""Channel attention by frequencies, and the residual block of FcaNet-34 that has it."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

# The 16 strongest frequencies of a 7x7 map by FcaNet's ranking: along its height, along its width.
_HEIGHT_FREQUENCIES = (0, 0, 6, 0, 0, 1, 1, 4, 5, 1, 3, 0, 0, 0, 3, 2)
_WIDTH_FREQUENCIES = (0, 1, 0, 5, 2, 0, 2, 0, 0, 6, 0, 4, 6, 3, 5, 2)
_RANKED_ON = 7
_REDUCTION = 16
# channels of a stage -> side of its map for pictures of 224 px, which the basis is made for
_SIDES = {64: 56, 128: 28, 256: 14, 512: 7}


def cosine_basis(channels: int, side: int) -> Tensor:
    """Return what each channel's map is weighted by: (channels, side, side) float32.

    The channels fall into 16 equal groups of one frequency each: the product over both axes of
    cos(pi f (t + 1/2) / side) / sqrt(side), times sqrt(2) where f > 0, at t = 0 ... side - 1.

    Args:
        channels: a multiple of 16.
        side: px of the map, 7 or more.

    Source: Qin et al., FcaNet (ICCV 2021), equations 2 and 10, and its code's scaling.
    """
    times = torch.arange(side, dtype=torch.float64) + 0.5
    scale = side // _RANKED_ON

    def along(frequencies: tuple[int, ...]) -> Tensor:
        scaled = torch.tensor(frequencies, dtype=torch.float64).unsqueeze(1) * scale
        waves = torch.cos(math.pi * scaled * times / side) / math.sqrt(side)
        return torch.where(scaled > 0, waves * math.sqrt(2), waves)

    waves = along(_HEIGHT_FREQUENCIES).unsqueeze(2) * along(_WIDTH_FREQUENCIES).unsqueeze(1)
    return waves.repeat_interleave(channels // len(_HEIGHT_FREQUENCIES), dim=0).float()


class CosineSum(nn.Module):
    """Sums every channel's map over space, weighted by a cosine of its own frequency.

    Args:
        channels: of the map.
        side: px; maps of another size are pooled to it.
    """

    weight: Tensor

    def __init__(self, channels: int, side: int) -> None:
        super().__init__()
        self.register_buffer("weight", cosine_basis(channels, side))

    def forward(self, features: Tensor) -> Tensor:
        """Return (N, C) of features (N, C, H, W)."""
        side = self.weight.shape[-1]
        if features.shape[-2:] != (side, side):
            features = functional.adaptive_avg_pool2d(features, (side, side))
        return (features * self.weight).sum(dim=(2, 3))


class FrequencyAttention(nn.Module):
    """Scales every channel by a factor in (0, 1) found from one frequency of each channel's map.

    Args:
        channels: of the map.
        side: px; see `CosineSum`.

    Source: Qin et al., FcaNet (ICCV 2021), section 3.3.
    """

    def __init__(self, channels: int, side: int) -> None:
        super().__init__()
        self.dct_layer = CosineSum(channels, side)
        self.fc = nn.Sequential(
            nn.Linear(channels, channels // _REDUCTION, bias=False),
            nn.ReLU(inplace=True),
            nn.Linear(channels // _REDUCTION, channels, bias=False),
            nn.Sigmoid(),
        )

    def forward(self, features: Tensor) -> Tensor:
        """Return features of the same shape (N, C, H, W)."""
        return features * self.fc(self.dct_layer(features))[:, :, None, None]


class FcaBlock(nn.Module):
    """A basic block with frequency attention before the shortcut is added.

    Its arguments are those that torchvision's `ResNet` gives to blocks; `groups`, `base_width` and
    `dilation` are always 1, 64 and 1 there. Names and their order are those of FcaNet's code.
    """

    expansion = 1

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Module | None = None,
        *_: Any,
        **__: Any,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.att = FrequencyAttention(planes, _SIDES[planes])
        self.downsample = downsample

    def forward(self, features: Tensor) -> Tensor:
        """Return features (N, planes, H / stride, W / stride) of (N, inplanes, H, W)."""
        shortcut = features if self.downsample is None else self.downsample(features)
        inner = self.relu(self.bn1(self.conv1(features)))
        inner = self.att(self.bn2(self.conv2(inner)))
        return self.relu(inner + shortcut)
