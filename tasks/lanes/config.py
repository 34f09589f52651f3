"""The `data`, `model`, `loss`, `decode` and `evaluate` sections of a lane experiment. No torch.

Frame: the picture size that all labels, anchors and scores count in (`data.frame`). Slot: the place
of a lane from left to right, from 0; every slot has its own outputs of the network.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from readers.config import (
    CulaneSource,
    CurvelanesSource,
    CvatSource,
    LabelmeSource,
    SourceSchema,
    TusimpleSource,
)

Size = tuple[Annotated[int, Field(gt=0)], Annotated[int, Field(gt=0)]]
Share = Annotated[float, Field(ge=0, le=1)]


class RoadsSource(SourceSchema):
    """Roads drawn from a seed, written as a data set of a real layout and read back."""

    format: Literal["synthetic"]
    roads: int = Field(gt=0, description="How many pictures.")
    size: Size = Field((640, 240), description="Width and height, px; 64 to 4096 each.")
    seed: int = Field(
        ge=0, lt=2**32, description="Seed of the drawing; other splits take other seeds."
    )
    layout: Literal["culane", "tusimple"] = Field(
        "culane", description="Layout that is written: CULane (with scene lists) or TuSimple."
    )
    lanes: tuple[int, int] = Field((2, 5), description="Least and largest number of lane lines.")

    @model_validator(mode="after")
    def _can_be_drawn(self) -> RoadsSource:
        if not all(64 <= side <= 4096 for side in self.size):
            raise ValueError("size must be two sides of 64 to 4096 px")
        if not 1 <= self.lanes[0] <= self.lanes[1] <= 8:
            raise ValueError("lanes must be [least, largest], from 1 to 8")
        return self


LaneSource = Annotated[
    TusimpleSource | CulaneSource | CurvelanesSource | LabelmeSource | CvatSource | RoadsSource,
    Field(discriminator="format"),
]


class LaneSplitsConfig(SourceSchema):
    """One source cut into train, val and test by names sorted, then shuffled with a seed."""

    source: LaneSource
    fractions: tuple[float, float, float] = Field(
        (0.6, 0.2, 0.2), description="Shares of train, val and test; they sum to 1."
    )
    seed: int = Field(0, ge=0, description="Seed of Python's `random.Random(seed).shuffle`.")

    @model_validator(mode="after")
    def _sum_is_one(self) -> LaneSplitsConfig:
        if min(self.fractions) < 0 or abs(sum(self.fractions) - 1) > 1e-6 or not self.fractions[0]:
            raise ValueError("fractions must be three shares >= 0 that sum to 1, the first above 0")
        return self


class GridConfig(SourceSchema):
    """Heights at which labels are kept, in px of the frame: first, first + step, ..., last."""

    first: int = Field(ge=0, description="Highest row.")
    last: int = Field(gt=0, description="Lowest row, reached exactly.")
    step: int = Field(10, gt=0, description="Rows between two heights.")

    @model_validator(mode="after")
    def _ends_on_a_step(self) -> GridConfig:
        if self.last <= self.first or (self.last - self.first) % self.step:
            raise ValueError("last must lie a whole number of steps below first")
        return self


class SlotsConfig(SourceSchema):
    """How lanes get their slots."""

    rule: Literal["by_format", "angle", "mask", "outermost"] = Field(
        "by_format",
        description="`angle`: by the slope of a straight fit, the lanes nearest to the vertical in "
        "the middle (TuSimple); `mask`: by the lane number in the mask at the lane's middle point "
        "(CULane); `outermost`: CurveLanes' order; `by_format`: that of the source's benchmark, "
        "else `angle`.",
    )
    shortest: float = Field(
        90.0, ge=0, description="Lanes of less px between their ends get no slot (not for `mask`)."
    )


class LaneAugmentConfig(SourceSchema):
    """Variation of training pictures: scale, then rotation, then shift; then flip and light."""

    scale: tuple[float, float] = Field(
        (0.8, 1.2), description="Range of the zoom, drawn for x and y apart, about the centre."
    )
    rotate: float = Field(6.0, ge=0, le=180, description="Largest rotation, degrees.")
    shift: tuple[float, float] = Field(
        (200.0, 100.0), description="Largest shift in x and y, px of the frame."
    )
    flip: Share = Field(0.0, description="Probability of mirroring; slots change sides.")
    gain: float = Field(0.0, ge=0, lt=1, description="Largest relative change of brightness.")
    contrast: float = Field(0.0, ge=0, lt=1, description="Largest relative change of contrast.")


class LaneDataConfig(SourceSchema):
    """Where the pictures and labels are, and how training pictures are varied."""

    frame: Size = Field(description="Width and height that labels and scores count in, px.")
    train: LaneSource | None = Field(None, description="Training split.")
    val: LaneSource | None = Field(None, description="Validation split.")
    test: LaneSource | None = Field(None, description="Test split; null: none.")
    splits: LaneSplitsConfig | None = Field(
        None, description="One source to cut, in place of the three."
    )
    grid: GridConfig | None = Field(
        None,
        description="Heights of the kept labels; null: the benchmark's own at its own frame, else "
        "about 72 heights over the whole frame.",
    )
    slots: SlotsConfig = Field(default_factory=lambda: SlotsConfig())
    augment: LaneAugmentConfig | None = Field(
        None, description="Variation of training pictures; null: none."
    )
    drop_last: bool = Field(False, description="Whether an incomplete last batch is left out.")

    @model_validator(mode="after")
    def _one_way_to_say_it(self) -> LaneDataConfig:
        if self.splits is not None and (self.train or self.val or self.test):
            raise ValueError("give either `splits` or `train`, `val` and `test`, not both")
        if self.splits is None and (self.train is None or self.val is None):
            raise ValueError("`train` and `val` are needed, or one source in `splits`")
        return self


class ResnetLaneBackboneConfig(SourceSchema):
    """Any torchvision ResNet (UFLD's names: 18, 34, ..., 50next, 101next, 50wide, 101wide)."""

    name: Literal[
        "resnet18", "resnet34", "resnet50", "resnet101", "resnet152",
        "resnext50_32x4d", "resnext101_32x8d", "wide_resnet50_2", "wide_resnet101_2",
    ]  # fmt: skip
    weights: str = Field(
        "none",
        json_schema_extra={"format": "weights"},
        description="`none`, a torchvision weight enum, or a path.",
    )


class FcaBackboneConfig(SourceSchema):
    """ResNet-34 with frequency channel attention (FcaNet-34)."""

    name: Literal["resnet34fca"]
    weights: str = Field(
        "none",
        json_schema_extra={"format": "weights"},
        description="`none` or a path; ResNet-34's weights fit in part.",
    )


class SlimLaneBackboneConfig(SourceSchema):
    """A slim ResNet for small pictures: 7x7 stem, basic blocks, strides 4, 8, 16 and 32."""

    name: Literal["slim_resnet"]
    widths: tuple[int, int, int, int] = Field((24, 48, 96, 192), description="Channels per stage.")
    blocks: tuple[int, int, int, int] = Field((2, 2, 2, 2), description="Blocks per stage.")


LaneBackboneConfig = Annotated[
    ResnetLaneBackboneConfig | FcaBackboneConfig | SlimLaneBackboneConfig,
    Field(discriminator="name"),
]


class AnchorsConfig(SourceSchema):
    """Rows (or columns) at which every lane is classified into cells."""

    anchors: int = Field(gt=3, description="How many.")
    range: tuple[float, float] = Field(
        (0.0, 1.0), description="First and last anchor, spaced evenly between."
    )
    unit: Literal["share", "px"] = Field(
        "share", description="Whether `range` is a share of the frame or px of it."
    )
    cells: int = Field(gt=3, description="Cells across the frame.")

    @model_validator(mode="after")
    def _rising(self) -> AnchorsConfig:
        if not 0 <= self.range[0] < self.range[1]:
            raise ValueError("range must be [first, last], rising from 0 or more")
        if self.unit == "share" and self.range[1] > 1:
            raise ValueError("range must end at 1 or less with unit: share")
        return self


class AuxConfig(SourceSchema):
    """The auxiliary segmentation head, used in training only."""

    classes: int | None = Field(
        None, gt=1, description="Outputs of the head; null: lanes + 1. UFLDv2's own: 2 lanes + 1."
    )


class UfldModelConfig(SourceSchema):
    """Ultra-Fast Lane Detection v2."""

    name: Literal["ufldv2"]
    backbone: LaneBackboneConfig
    lanes: int = Field(4, gt=0, le=32, description="Slots.")
    input: Size = Field(description="Width and height of the network's input, multiples of 32, px.")
    crop: float = Field(
        1.0,
        gt=0,
        le=1,
        description="The frame is resized to the input's width and its height / crop; the lowest "
        "rows are kept.",
    )
    rows: AnchorsConfig = Field(description="Row anchors.")
    columns: AnchorsConfig = Field(description="Column anchors.")
    head: Literal["joined", "group_instance"] = Field(
        "joined",
        description="`joined`: one output for all slots (TuSimple, CULane); `group_instance`: one "
        "token per slot (CurveLanes).",
    )
    norm: bool = Field(False, description="LayerNorm before the head; always on in group_instance.")
    hidden: int = Field(2048, gt=0, description="Width of the head.")
    pool_channels: int = Field(8, gt=0, description="Channels that the head sees.")
    aux: AuxConfig | None = Field(None, description="Auxiliary segmentation; null: none.")
    weights: str = Field(
        "none",
        json_schema_extra={"format": "weights"},
        description="`none`, or the path of a whole network's weights, the reference's or ours.",
    )

    @model_validator(mode="after")
    def _strides_fit(self) -> UfldModelConfig:
        if any(side % 32 for side in self.input):
            raise ValueError(f"input must be multiples of 32, not {list(self.input)}")
        return self


class HardestConfig(SourceSchema):
    """Which pixels are hard: those that their own class gets too small a share of."""

    share: float = Field(0.7, gt=0, lt=1, description="Pixels below this share are hard.")
    least: int = Field(gt=0, description="Average over so many pixels if fewer are hard.")


class LaneLossConfig(SourceSchema):
    """Weights of the loss terms; a term of weight 0 is not computed."""

    soft: bool = Field(True, description="Focal loss on smoothed labels; false: on hard ones.")
    gamma: float = Field(2.0, ge=0, description="Focusing exponent.")
    row: float = Field(1.0, ge=0, description="Classification over row cells.")
    column: float = Field(1.0, ge=0, description="Classification over column cells.")
    row_existence: float = Field(1.0, ge=0, description="Whether a lane crosses a row.")
    column_existence: float = Field(1.0, ge=0, description="Whether a lane crosses a column.")
    mean: float = Field(0.05, ge=0, description="Smooth L1 of the expectation, rows and columns.")
    distance: float = Field(
        0.0, ge=0, description="Mean squared distance of the cells to the label, rows and columns."
    )
    similarity: float = Field(0.0, ge=0, description="Likeness of neighbouring rows' logits.")
    shape: float = Field(0.0, ge=0, description="Second difference of row positions.")
    variance: float = Field(0.01, ge=0, description="Spread about the mean; group_instance only.")
    variance_power: float = Field(2.0, gt=0, description="Exponent of that spread.")
    token: float = Field(1.0, ge=0, description="Tokens against the mask; group_instance only.")
    segmentation: float = Field(1.0, ge=0, description="Auxiliary head; with model.aux only.")
    segmentation_weights: tuple[float, ...] | None = Field(
        None, description="Class weights of that; null: 0.6 for the ground, 1 for each lane."
    )
    segmentation_hardest: HardestConfig | None = Field(
        None, description="Average over the hardest pixels of it only, unweighted; null: over all."
    )


class DecodeConfig(SourceSchema):
    """How lanes are read off the network's output."""

    mode: Literal["mixed", "rows", "columns", "pooled"] = Field(
        "mixed",
        description="`mixed`: inner slots from rows, outer ones from columns (CULane, 2row2col); "
        "`rows` (4row) or `columns` (4col): all slots; `pooled`: both kinds' points in one "
        "quadratic curve (CurveLanes).",
    )
    column_slots: tuple[int, ...] | None = Field(
        None, description="Slots read from columns in `mixed`; null: the first and the last."
    )
    window: int = Field(1, ge=0, description="Cells on each side of the peak in the expectation.")
    row_share: Share = Field(0.5, description="A row lane needs more than this share of anchors.")
    column_share: Share = Field(0.25, description="The same for a column lane.")
    least_anchors: int = Field(0, ge=0, description="Any lane needs more anchors than this.")
    tta: bool = Field(False, description="Average over shifted features (joined head only).")


class TusimpleMetricConfig(SourceSchema):
    """TuSimple's accuracy, false positives and false negatives."""

    name: Literal["tusimple"]
    pixels: float = Field(20.0, gt=0, description="Distance that counts as right, for a vertical.")
    accuracy: float = Field(0.85, gt=0, le=1, description="Accuracy of a lane that is found.")


class F1MetricConfig(SourceSchema):
    """CULane's F1: lanes drawn with a width, matched by IoU. CurveLanes: size [224, 224], width 5.

    Any data set can be scored by it.
    """

    name: Literal["f1"]
    size: Size | None = Field(None, description="Picture that is drawn in, px; null: the frame.")
    lane_width: int | None = Field(
        None, gt=0, description="Width drawn, px of `size`; null: 30 of 1640 of the width."
    )
    iou: float = Field(0.5, gt=0, lt=1, description="A match needs more than this.")


LaneMetricConfig = Annotated[TusimpleMetricConfig | F1MetricConfig, Field(discriminator="name")]

LaneScene = Literal[
    "normal", "crowd", "night", "noline", "shadow", "arrow", "hlight", "curve", "cross"
]
LaneScore = Literal[
    "F1", "precision", "recall", "TP_count", "FP_count", "FN_count", "accuracy", "FP", "FN",
    "F1_normal", "F1_crowd", "F1_night", "F1_noline", "F1_shadow", "F1_arrow", "F1_hlight",
    "F1_curve", "FP_cross",
]  # fmt: skip


class LaneEvaluateConfig(SourceSchema):
    """What is measured, on which split."""

    split: Literal["train", "val", "test", "val+test"] = Field(
        "test", description="Split that the evaluate step scores; `val+test` joins two."
    )
    metric: LaneMetricConfig = Field(
        default_factory=lambda: F1MetricConfig(name="f1"), description="The benchmark's metric."
    )
    headline: Literal["F1", "accuracy"] = Field("F1", description="The score that ranks.")
    batch_size: int = Field(8, gt=0, description="Pictures per forward pass.")
    pictures: int = Field(4, ge=0, le=16, description="Fixed pictures drawn at every evaluation.")
    worst: int = Field(12, ge=0, le=100, description="Worst pictures drawn by the evaluate step.")
    jobs: int = Field(0, ge=0, description="Processes that score; 0: one per CPU.")


LaneCompat = Literal["all", "lr_curve", "measures", "tta_shift", "file_centre"]
