"""How the lane fixtures' networks, draws and terms are called and made."""

import json

import torch

from tasks.lanes.config import (
    AnchorsConfig,
    FcaBackboneConfig,
    ResnetLaneBackboneConfig,
    UfldModelConfig,
)

BACKBONES = {
    "18": "resnet18",
    "34": "resnet34",
    "50": "resnet50",
    "101": "resnet101",
    "152": "resnet152",
    "50next": "resnext50_32x4d",
    "101next": "resnext101_32x8d",
    "50wide": "wide_resnet50_2",
    "101wide": "wide_resnet101_2",
}
# (anchors, cells)
SECTIONS = {
    "tusimple": {"rows": (56, 100), "columns": (41, 100), "input": (800, 320)},
    "culane": {"rows": (72, 200), "columns": (81, 100), "input": (1600, 320), "norm": True},
    "curvelanes": {
        "rows": (72, 200),
        "columns": (41, 100),
        "input": (1600, 800),
        "lanes": 10,
        "head": "group_instance",
    },
}
# the seed's terms under our names
TERMS = {
    "cls_loss": "row",
    "cls_loss_col": "column",
    "cls_ext": "row_existence",
    "cls_ext_col": "column_existence",
    "mean_loss_row": "row_mean",
    "mean_loss_col": "column_mean",
    "relation_loss": "similarity",
    "relation_dis": "shape",
    "var_loss_row": "row_variance",
    "var_loss_col": "column_variance",
    "lane_token_seg_loss_row": "row_token",
    "lane_token_seg_loss_col": "column_token",
}


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def section(data_set, backbone, *, aux=None, **changes):
    given = {**SECTIONS[data_set], **changes}
    for kind in ("rows", "columns"):
        anchors, cells = given[kind]
        given[kind] = AnchorsConfig(anchors=anchors, cells=cells)
    if backbone == "34fca":
        chosen = FcaBackboneConfig(name="resnet34fca")
    else:
        chosen = ResnetLaneBackboneConfig(name=BACKBONES[backbone])
    return UfldModelConfig(name="ufldv2", backbone=chosen, aux=aux, **given)


def normal(shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def uniform(shape, seed):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def integers(low, high, shape, seed):
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed))
