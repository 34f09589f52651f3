"""Small `model` sections of lane experiments."""

from tasks.lanes.config import (
    AnchorsConfig,
    FcaBackboneConfig,
    ResnetLaneBackboneConfig,
    SlimLaneBackboneConfig,
    UfldModelConfig,
)

SLIM = SlimLaneBackboneConfig(name="slim_resnet", widths=(8, 12, 16, 24), blocks=(1, 1, 1, 1))


def backbone(name, **given):
    if name == "resnet34fca":
        return FcaBackboneConfig(name=name, **given)
    return ResnetLaneBackboneConfig(name=name, **given)


def section(chosen=SLIM, **given):
    """Three slots, 5 rows of 7 cells, 4 columns of 6 cells, pictures of 96x64."""
    return UfldModelConfig(
        **{
            "name": "ufldv2",
            "backbone": chosen,
            "lanes": 3,
            "input": (96, 64),
            "rows": AnchorsConfig(anchors=5, cells=7),
            "columns": AnchorsConfig(anchors=4, cells=6),
            "hidden": 16,
            **given,
        }
    )
