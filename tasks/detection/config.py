"""The `data`, `model` and `evaluate` sections of a detection experiment. Imports no torch.

Names that torchvision owns (builders, backbones, weight enums) are literals here, so that a wrong
one is told without importing torch; tests/tasks/detection/test_config.py holds them against the
library.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, model_validator

from readers.config import CocoSource, SourceSchema, VocSource, YoloSource


class SyntheticSource(SourceSchema):
    """Scenes drawn from a seed, written as COCO JSON + JPEG and read back by the COCO reader."""

    format: Literal["synthetic"]
    images: int = Field(gt=0, description="How many scenes.")
    size: int = Field(160, ge=64, le=2048, description="Side of a scene, px.")
    seed: int = Field(
        ge=0, lt=2**32, description="Seed of the drawing; other splits take other seeds."
    )


DetectionSource = Annotated[
    CocoSource | YoloSource | VocSource | SyntheticSource, Field(discriminator="format")
]


class SplitsConfig(SourceSchema):
    """One source cut into train, val and test by names sorted, then shuffled with a seed."""

    source: DetectionSource
    fractions: tuple[float, float, float] = Field(
        (0.6, 0.2, 0.2), description="Shares of train, val and test; they sum to 1."
    )
    seed: int = Field(0, ge=0, description="Seed of Python's `random.Random(seed).shuffle`.")

    @model_validator(mode="after")
    def _sum_is_one(self) -> SplitsConfig:
        if min(self.fractions) < 0 or abs(sum(self.fractions) - 1) > 1e-6 or not self.fractions[0]:
            raise ValueError("fractions must be three shares >= 0 that sum to 1, the first above 0")
        return self


class PresetAugmentConfig(SourceSchema):
    """One of torchvision's reference presets."""

    preset: Literal["none", "hflip", "multiscale", "lsj", "ssd", "ssdlite"]


class JitterAugmentConfig(SourceSchema):
    """Flips, geometry and colour, each drawn per picture; sizes stay as they are."""

    preset: Literal["jitter"]
    hflip: float = Field(0.5, ge=0, le=1, description="Probability of a horizontal flip.")
    vflip: float = Field(0.0, ge=0, le=1, description="Probability of a vertical flip.")
    transpose: float = Field(0.0, ge=0, le=1, description="Probability of swapping x and y.")
    scale: tuple[float, float] = Field((1.0, 1.0), description="Range of the zoom factor, > 0.")
    aspect: float = Field(0.0, ge=0, lt=1, description="Largest relative stretch of a side.")
    shift: float = Field(0.0, ge=0, lt=1, description="Largest shift, share of the side.")
    min_visible: float = Field(
        0.35, ge=0, le=1, description="Boxes with less of their area left in the frame are dropped."
    )
    channel_permutation: float = Field(0.0, ge=0, le=1, description="Probability.")
    gain: float = Field(0.0, ge=0, lt=1, description="Largest relative change of brightness.")
    channel_gain: float = Field(0.0, ge=0, lt=1, description="The same, per channel.")
    offset: float = Field(0.0, ge=0, le=1, description="Largest added value, share of 255.")
    contrast: float = Field(0.0, ge=0, lt=1, description="Largest relative change of contrast.")
    saturation: float = Field(0.0, ge=0, lt=1, description="Largest relative change of saturation.")


AugmentConfig = Annotated[PresetAugmentConfig | JitterAugmentConfig, Field(discriminator="preset")]


class DataConfig(SourceSchema):
    """Where the pictures and labels are, and how training pictures are varied."""

    train: DetectionSource | None = Field(None, description="Training split.")
    val: DetectionSource | None = Field(None, description="Validation split.")
    test: DetectionSource | None = Field(None, description="Test split; null: none.")
    splits: SplitsConfig | None = Field(
        None, description="One source to cut, in place of the three."
    )
    augment: AugmentConfig = Field(
        default_factory=lambda: PresetAugmentConfig(preset="hflip"),
        description="Augmentation of training pictures.",
    )
    aspect_ratio_group_factor: int = Field(
        3, ge=-1, description="Batches of like width/height: 2k+1 bins; 0: two bins; -1: off."
    )
    drop_last: bool = Field(True, description="Whether an incomplete last batch is left out.")
    drop_empty: bool = Field(False, description="Leave pictures without a box out of training.")

    @model_validator(mode="after")
    def _one_way_to_say_it(self) -> DataConfig:
        if self.splits is not None and (self.train or self.val or self.test):
            raise ValueError("give either `splits` or `train`, `val` and `test`, not both")
        if self.splits is None and (self.train is None or self.val is None):
            raise ValueError("`train` and `val` are needed, or one source in `splits`")
        return self


ResnetName = Literal[
    "resnet18", "resnet34", "resnet50", "resnet101", "resnet152",
    "resnext50_32x4d", "resnext101_32x8d", "resnext101_64x4d", "wide_resnet50_2",
    "wide_resnet101_2",
]  # fmt: skip
MobilenetName = Literal["mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large"]
BuilderName = Literal[
    "fasterrcnn_resnet50_fpn", "fasterrcnn_resnet50_fpn_v2", "fasterrcnn_mobilenet_v3_large_fpn",
    "fasterrcnn_mobilenet_v3_large_320_fpn", "retinanet_resnet50_fpn", "retinanet_resnet50_fpn_v2",
    "fcos_resnet50_fpn", "ssd300_vgg16", "ssdlite320_mobilenet_v3_large",
]  # fmt: skip


class TorchvisionModelConfig(SourceSchema):
    """A detector by torchvision's own builder name."""

    name: BuilderName
    weights: str = Field(
        "none",
        json_schema_extra={"format": "weights"},
        description="`none`, a torchvision weight enum, or a path.",
    )
    backbone_weights: str = Field(
        "none",
        json_schema_extra={"format": "weights"},
        description="`none`, a torchvision weight enum, or a path.",
    )
    trainable_backbone_layers: int | None = Field(
        None,
        ge=0,
        le=6,
        description="Layers that train, counted from the end; null: the builder's.",
    )
    min_size: int | None = Field(None, gt=0, description="Short side, px; null: the builder's.")
    max_size: int | None = Field(None, gt=0, description="Limit of the long side, px.")
    score_threshold: float | None = Field(
        None, ge=0, lt=1, description="Lowest score of a detection; null: the builder's."
    )
    nms_threshold: float | None = Field(None, gt=0, le=1, description="IoU; null: the builder's.")
    detections_per_image: int = Field(100, gt=0, description="At most so many per picture.")


class ResnetBackboneConfig(SourceSchema):
    """Any torchvision ResNet."""

    name: ResnetName
    weights: str = Field(
        "none",
        json_schema_extra={"format": "weights"},
        description="`none`, a torchvision weight enum, or a path.",
    )
    trainable_layers: int = Field(3, ge=0, le=5, description="Layers that train, from the end.")


class MobilenetBackboneConfig(SourceSchema):
    """Any torchvision MobileNet."""

    name: MobilenetName
    weights: str = Field(
        "none",
        json_schema_extra={"format": "weights"},
        description="`none`, a torchvision weight enum, or a path.",
    )
    trainable_layers: int = Field(
        6, ge=0, le=6, description="Stages (between two strides) that train, from the end."
    )


class SlimBackboneConfig(SourceSchema):
    """A slim ResNet for small pictures: 3x3/2 stem, basic blocks, strides 4, 8, 16 and 32."""

    name: Literal["slim_resnet"]
    widths: tuple[int, int, int, int] = Field((24, 48, 96, 160), description="Channels per stage.")
    blocks: tuple[int, int, int, int] = Field((1, 2, 2, 2), description="Blocks per stage.")


BackboneConfig = Annotated[
    ResnetBackboneConfig | MobilenetBackboneConfig | SlimBackboneConfig,
    Field(discriminator="name"),
]


class FasterRcnnConfig(SourceSchema):
    """Faster R-CNN over a backbone with a feature pyramid."""

    name: Literal["fasterrcnn"]
    backbone: BackboneConfig
    weights: str = Field(
        "none",
        json_schema_extra={"format": "weights"},
        description="`none`, or the path of a whole detector's weights.",
    )
    min_size: int = Field(800, gt=0, description="Short side, px.")
    max_size: int = Field(1333, gt=0, description="Limit of the long side, px.")
    fpn_channels: int = Field(256, gt=0, description="Channels of the feature pyramid.")
    fpn_levels: tuple[int, ...] = Field(
        (4, 8, 16, 32),
        description="Strides of the pyramid's levels, rising; a pooled one is added.",
    )
    anchor_sizes: tuple[float, ...] = Field(
        (32, 64, 128, 256, 512), description="Anchor side per level (pooled one included), px."
    )
    anchor_ratios: tuple[float, ...] = Field((0.5, 1.0, 2.0), description="Height / width.")
    roi_size: int = Field(7, gt=0, description="Side of RoIAlign's output.")
    head_width: int = Field(1024, gt=0, description="Width of the box head's two layers.")
    rpn_samples: int = Field(256, gt=0, description="Anchors per picture in the RPN loss.")
    roi_samples: int = Field(512, gt=0, description="Regions per picture in the box loss.")
    rpn_candidates: tuple[int, int] = Field(
        (2000, 1000), description="Proposals per level before NMS, in training and at test."
    )
    rpn_proposals: tuple[int, int] = Field(
        (2000, 1000), description="Proposals per picture after NMS, in training and at test."
    )
    score_threshold: float = Field(0.05, ge=0, lt=1, description="Lowest score of a detection.")
    nms_threshold: float = Field(0.5, gt=0, le=1, description="IoU of the per-class NMS.")
    detections_per_image: int = Field(100, gt=0, description="At most so many per picture.")

    @model_validator(mode="after")
    def _levels_match(self) -> FasterRcnnConfig:
        if list(self.fpn_levels) != sorted(set(self.fpn_levels)):
            raise ValueError("fpn_levels must rise")
        if len(self.anchor_sizes) != len(self.fpn_levels) + 1:
            raise ValueError(
                f"anchor_sizes has {len(self.anchor_sizes)} entries; fpn_levels has "
                f"{len(self.fpn_levels)} and a pooled level is added, so "
                f"{len(self.fpn_levels) + 1} are needed"
            )
        return self


DetectionModelConfig = Annotated[
    TorchvisionModelConfig | FasterRcnnConfig, Field(discriminator="name")
]


def read_model_section(section: Mapping[str, Any]) -> DetectionModelConfig:
    """Return a `model` section given as plain data.

    Raises:
        ValueError: if it is none.
    """
    schema: TypeAdapter[DetectionModelConfig] = TypeAdapter(DetectionModelConfig)
    return schema.validate_python(section)


DetectionMetric = Literal[
    "mAP", "mAP_50", "mAP_75", "mAP_small", "mAP_medium", "mAP_large",
    "AR_1", "AR_10", "AR_100", "AR_small", "AR_medium", "AR_large",
]  # fmt: skip


class EvaluateConfig(SourceSchema):
    """What is measured, on which split."""

    split: Literal["train", "val", "test", "val+test"] = Field(
        "test", description="Split that the evaluate step scores; `val+test` joins two."
    )
    headline: DetectionMetric = Field("mAP", description="The score that ranks checkpoints.")
    batch_size: int = Field(1, gt=0, description="Pictures per forward pass.")
    slices: tuple[Literal["size", "crowding", "aspect"], ...] = Field(
        ("size",), description="Further tables: by object size, objects per picture, box shape."
    )
    pictures: int = Field(4, ge=0, le=16, description="Fixed pictures drawn at every evaluation.")
    worst: int = Field(12, ge=0, le=100, description="Worst pictures drawn by the evaluate step.")
    validation_loss: bool = Field(
        False, description="Also measure the training losses on `val`, batch norm in eval mode."
    )


DetectionCompat = Literal["all", "warmup_cap"]
