"""A narrow ResNet for small pictures; the backbone of the embedded examples.

Its modules carry torchvision's ResNet names (`conv1`, `bn1`, `layer1` to `layer4`), so that the
pyramid takes it like any ResNet.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torchvision.models.resnet import BasicBlock


class SlimResnet(nn.Module):
    """Four stages of basic blocks at strides 4, 8, 16 and 32, after a 3x3 stem of stride 2.

    Args:
        widths: channels of the four stages; the stem has the first one's.
        blocks: basic blocks per stage.

    Source: He et al., Deep Residual Learning (CVPR 2016), section 3.3, with a 3x3 stem and without
    its pooling, so that objects of 20 px still span a few cells.
    """

    def __init__(self, widths: Sequence[int], blocks: Sequence[int]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, widths[0], 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = _stage(widths[0], widths[0], blocks[0])
        self.layer2 = _stage(widths[0], widths[1], blocks[1])
        self.layer3 = _stage(widths[1], widths[2], blocks[2])
        self.layer4 = _stage(widths[2], widths[3], blocks[3])
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, pictures: Tensor) -> Tensor:
        """Return the last stage's features, (B, widths[3], H / 32, W / 32)."""
        features = self.relu(self.bn1(self.conv1(pictures)))
        return self.layer4(self.layer3(self.layer2(self.layer1(features))))


def _stage(channels_in: int, channels: int, blocks: int) -> nn.Sequential:
    shortcut = nn.Sequential(
        nn.Conv2d(channels_in, channels, 1, stride=2, bias=False), nn.BatchNorm2d(channels)
    )
    first = BasicBlock(channels_in, channels, stride=2, downsample=shortcut)
    return nn.Sequential(first, *(BasicBlock(channels, channels) for _ in range(blocks - 1)))
