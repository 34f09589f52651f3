"""What contradicts itself in a lane experiment and no single key can know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import get_args

from readers.config import CulaneSource, TusimpleSource
from steps.complaints import nearest
from steps.cross_checks import (
    Complaint,
    check_enum_weights,
    check_file_weights,
    check_scale,
    gate_scores,
)
from tasks.config import GateConfig
from tasks.lanes.config import (
    AnchorsConfig,
    DecodeConfig,
    FcaBackboneConfig,
    LaneDataConfig,
    LaneEvaluateConfig,
    LaneLossConfig,
    LaneScore,
    LaneSource,
    ResnetLaneBackboneConfig,
    RoadsSource,
    TusimpleMetricConfig,
    UfldModelConfig,
)
from tasks.weight_names import BACKBONE_WEIGHTS

_TUSIMPLE_ONLY = ("accuracy", "FP", "FN")
# metric -> scores that it gives
SCORES: Mapping[str, tuple[str, ...]] = {
    "tusimple": ("F1", *_TUSIMPLE_ONLY),
    "f1": tuple(name for name in get_args(LaneScore) if name not in _TUSIMPLE_ONLY),
}
# weights of the terms that every network has
_TERMS = (
    "row", "column", "row_existence", "column_existence", "mean", "distance", "similarity", "shape"
)  # fmt: skip
LOWER_IS_BETTER = ("FP", "FN", "FP_count", "FN_count", "FP_cross")


def check_data(data: LaneDataConfig) -> Iterator[Complaint]:
    """Yield what contradicts itself in a `data` section."""
    height = data.frame[1]
    if data.grid is not None and data.grid.last > height:
        yield (
            ("data", "grid", "last"),
            f"{data.grid.last} is not allowed: lies below the frame, whose height is {height} px "
            "(data.frame)",
        )
    if data.augment is not None:
        yield from check_scale(data.augment.scale)
    others = [each for each in _sources(data, ("train", "val", "test")) if not _is_culane(each[1])]
    if data.slots.rule == "mask" and others:
        key, source = others[0]
        yield (
            ("data", "slots", "rule"),
            "mask is not allowed: only CULane has masks with the lanes' numbers, and "
            f"{key} has the format {source.format}; write by_format",
        )


def check_model(model: UfldModelConfig, frame: tuple[int, int]) -> Iterator[Complaint]:
    """Yield anchors beyond the frame, an output that is too narrow and weights of no name."""
    width, height = frame
    yield from _check_anchors("rows", model.rows, side=height, what="height")
    yield from _check_anchors("columns", model.columns, side=width, what="width")
    yield from _check_crop(model, height)
    aux = model.aux
    if aux is not None and aux.classes is not None and aux.classes < model.lanes + 1:
        yield (
            ("model", "aux", "classes"),
            f"{aux.classes} is not allowed: the ground and {model.lanes} slots (model.lanes) need "
            f"{model.lanes + 1} or more",
        )
    yield from _check_weights(model)


def check_loss(loss: LaneLossConfig, model: UfldModelConfig) -> Iterator[Complaint]:
    """Yield a loss without a term, and class weights that do not fit the auxiliary head."""
    terms = _terms(model)
    if not any(getattr(loss, term) for term in terms):
        yield ("loss",), f"has no term: one of {', '.join(terms)} must be above 0"
    weights, path = loss.segmentation_weights, ("loss", "segmentation_weights")
    if weights is None:
        return
    if model.aux is None:
        yield path, "has no effect without model.aux; leave it out, or give `model.aux: {}`"
        return
    classes = model.aux.classes or model.lanes + 1
    if len(weights) != classes:
        source = "model.aux.classes" if model.aux.classes else "model.lanes + 1"
        yield (
            path,
            f"must have one entry per class of the auxiliary head, {classes} ({source}), has "
            f"{len(weights)}",
        )


def check_decode(decode: DecodeConfig, model: UfldModelConfig) -> Iterator[Complaint]:
    """Yield ways of reading lanes that the network does not offer, or that give none."""
    yield from _check_column_slots(decode, lanes=model.lanes)
    if decode.tta and model.head == "group_instance":
        yield (
            ("decode", "tta"),
            "true is not allowed with model.head group_instance: shifted features need the head "
            "`joined`",
        )
    yield from _check_thresholds(decode, model)


def check_evaluate(evaluate: LaneEvaluateConfig, data: LaneDataConfig) -> Iterator[Complaint]:
    """Yield a metric that the data do not allow and a headline that it does not give."""
    if not isinstance(evaluate.metric, TusimpleMetricConfig):
        if evaluate.headline == "accuracy":
            yield (
                ("evaluate", "headline"),
                "accuracy is not allowed: only the metric `tusimple` measures it; write F1, or "
                "`metric: {name: tusimple}`",
            )
        return
    for where, source in _sources(data, ("val", *evaluate.split.split("+"))):
        if not _is_tusimple(source):
            yield (
                ("evaluate", "metric", "name"),
                f"tusimple is not allowed: its rows are those of TuSimple's labels, and {where} "
                f"has the format {source.format}; write f1",
            )
            return


def check_gate(
    gate: GateConfig, evaluate: LaneEvaluateConfig, data: LaneDataConfig
) -> Iterator[Complaint]:
    """Yield scores in a gate that the experiment's metric does not give, or that should be low.

    Names that are no score of any lane metric are left to `cross_checks.check_gate`.
    """
    metric = evaluate.metric.name
    given = SCORES[metric]
    splits = evaluate.split.split("+")
    has_scenes = any(_has_scenes(source) for _, source in _sources(data, splits))
    for path, name in gate_scores(gate):
        if name not in get_args(LaneScore):
            continue
        if name not in given:
            right = nearest(name, [each for each in given if each not in LOWER_IS_BETTER])
            yield path, f"the metric {metric} does not give {name}: must be {right}"
        elif name in LOWER_IS_BETTER:
            yield (
                path,
                f"{name} is not allowed: less of it is better, and a gate asks for at least a "
                "value; gate on F1",
            )
        elif name.startswith("F1_") and not has_scenes:
            yield (
                path,
                f"{name} is not measured: no source of evaluate.split ({evaluate.split}) has "
                "`scenes`; give them to a culane source, or gate on F1",
            )


def _terms(model: UfldModelConfig) -> list[str]:
    """Return the keys of `loss` that weigh terms which the network has."""
    terms = [*_TERMS]
    if model.head == "group_instance":
        terms += ["variance", "token"]
    if model.aux is not None:
        terms.append("segmentation")
    return terms


def _check_anchors(
    key: str, anchors: AnchorsConfig, *, side: int, what: str
) -> Iterator[Complaint]:
    last = anchors.range[1]
    if anchors.unit == "px" and last > side:
        yield (
            ("model", key, "range", 1),
            f"{last:g} is not allowed: lies beyond the frame, whose {what} is {side} px "
            "(data.frame)",
        )


def _check_crop(model: UfldModelConfig, height: int) -> Iterator[Complaint]:
    """Yield row anchors above the part of the frame that the network sees."""
    in_px = model.rows.unit == "px"
    seen = (1 - model.crop) * (height if in_px else 1)
    first = model.rows.range[0]
    if first < seen - 1e-6:
        yield (
            ("model", "rows", "range", 0),
            f"{first:g} is not allowed: the network sees the lowest {model.crop:.0%} of the frame "
            f"(model.crop), so must be {seen:g}{' px' if in_px else ''} or more",
        )


def _check_weights(model: UfldModelConfig) -> Iterator[Complaint]:
    yield from check_file_weights(
        ("model", "weights"),
        model.weights,
        reason="torchvision has no weights of lane networks, only of their backbones",
    )
    path, backbone = ("model", "backbone", "weights"), model.backbone
    if isinstance(backbone, ResnetLaneBackboneConfig):
        yield from check_enum_weights(path, backbone.weights, BACKBONE_WEIGHTS[backbone.name])
    elif isinstance(backbone, FcaBackboneConfig):
        yield from check_file_weights(
            path, backbone.weights, reason="torchvision has no weights of this backbone"
        )


def _check_column_slots(decode: DecodeConfig, *, lanes: int) -> Iterator[Complaint]:
    path = ("decode", "column_slots")
    slots = decode.column_slots
    if slots is None:
        return
    if decode.mode != "mixed":
        yield path, f"has no effect with decode.mode {decode.mode}; leave it out"
    if len(set(slots)) < len(slots):
        yield path, f"{list(slots)} is not allowed: names a slot twice"
    for position, slot in enumerate(slots):
        if not 0 <= slot < lanes:
            yield (
                (*path, position),
                f"{slot} is not allowed: slots count from 0 and there are {lanes} (model.lanes), "
                f"so must be 0 to {lanes - 1}",
            )


def _check_thresholds(decode: DecodeConfig, model: UfldModelConfig) -> Iterator[Complaint]:
    """Yield shares and counts that no lane can exceed."""
    for key, share in (("row_share", decode.row_share), ("column_share", decode.column_share)):
        if share == 1:
            yield (
                ("decode", key),
                "1 is not allowed: a lane needs more than this share of its anchors; must be less "
                "than 1",
            )
    most = max(model.rows.anchors, model.columns.anchors)
    if decode.least_anchors >= most:
        yield (
            ("decode", "least_anchors"),
            f"{decode.least_anchors} is not allowed: a lane needs more anchors than this and has "
            f"at most {most} (model.rows.anchors, model.columns.anchors)",
        )


def _sources(data: LaneDataConfig, splits: Sequence[str]) -> list[tuple[str, LaneSource]]:
    """Return the key and source of each split that there is."""
    if data.splits is not None:
        return [("data.splits.source", data.splits.source)]
    found = {f"data.{split}": getattr(data, split) for split in splits}
    return [(key, source) for key, source in found.items() if source is not None]


def _is_tusimple(source: LaneSource) -> bool:
    return isinstance(source, TusimpleSource) or (
        isinstance(source, RoadsSource) and source.layout == "tusimple"
    )


def _is_culane(source: LaneSource) -> bool:
    return isinstance(source, CulaneSource) or (
        isinstance(source, RoadsSource) and source.layout == "culane"
    )


def _has_scenes(source: LaneSource) -> bool:
    return _is_culane(source) and getattr(source, "scenes", "drawn") is not None
