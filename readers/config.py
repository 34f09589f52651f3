"""The `format` variants of a data source. Paths count from the folder of the YAML file.

Fields marked with the JSON Schema format `path` are made absolute when a file is loaded.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class SourceSchema(BaseModel):
    """Base of every data source: unknown keys are refused and values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class CocoSource(SourceSchema):
    """COCO instances JSON."""

    format: Literal["coco"]
    images: str = Field(
        min_length=1,
        json_schema_extra={"format": "path"},
        description="Folder that `file_name` counts from.",
    )
    annotations: str = Field(
        min_length=1, json_schema_extra={"format": "path"}, description="The instances JSON."
    )


class YoloSource(SourceSchema):
    """YOLO text labels: a data.yaml, a list file or a folder."""

    format: Literal["yolo"]
    path: str = Field(
        min_length=1,
        json_schema_extra={"format": "path"},
        description="A data.yaml (with `split`), a text file that lists pictures, or a folder of "
        "pictures; labels lie in the same place with `images` replaced by `labels`.",
    )
    split: Literal["train", "val", "test"] | None = Field(
        None, description="Which entry of the data.yaml; null for a list file or a folder."
    )
    names: str | tuple[str, ...] | None = Field(
        None,
        json_schema_extra={"format": "path"},
        description="Class names, or a file that holds one a line; null: from the data.yaml.",
    )


class VocSource(SourceSchema):
    """Pascal VOC: a folder with JPEGImages, Annotations and ImageSets/Main."""

    format: Literal["voc"]
    root: str = Field(
        min_length=1,
        json_schema_extra={"format": "path"},
        description="The folder (VOCdevkit/VOC2012, say).",
    )
    image_set: str = Field(
        min_length=1, description="Name of the list in ImageSets/Main, without `.txt`."
    )
    classes: tuple[str, ...] | None = Field(
        None, description="Class names in order; null: every name in the labels, sorted."
    )


class TusimpleSource(SourceSchema):
    """TuSimple: a folder with clips and label files of JSON lines."""

    format: Literal["tusimple"]
    root: str = Field(
        min_length=1,
        json_schema_extra={"format": "path"},
        description="The folder that `raw_file` counts from.",
    )
    labels: tuple[str, ...] = Field(
        min_length=1, description="Label files in `root`, e.g. [label_data_0601.json]."
    )


class CulaneSource(SourceSchema):
    """CULane: a folder with drives, lists, `.lines.txt` files and, for training, masks."""

    format: Literal["culane"]
    root: str = Field(
        min_length=1,
        json_schema_extra={"format": "path"},
        description="The folder that the lists' paths count from.",
    )
    list: str = Field(
        min_length=1, description="List in `root`, e.g. list/train_gt.txt or list/test.txt."
    )
    scenes: str | None = Field(
        None, description="Folder in `root` of the scene lists, e.g. list/test_split; null: none."
    )


class CurvelanesSource(SourceSchema):
    """CurveLanes: a folder with train and valid, each with images and labels."""

    format: Literal["curvelanes"]
    root: str = Field(
        min_length=1,
        json_schema_extra={"format": "path"},
        description="The folder that holds `train` and `valid`.",
    )
    split: Literal["train", "valid"] = Field(description="Which of its folders.")


class LabelmeSource(SourceSchema):
    """LabelMe: one JSON file per picture; each line or linestrip is a lane."""

    format: Literal["labelme"]
    root: str = Field(
        min_length=1,
        json_schema_extra={"format": "path"},
        description="Folder of the JSON files; pictures lie where `imagePath` says.",
    )
    labels: tuple[str, ...] | None = Field(
        None, description="Labels that are lanes; null: every line and linestrip."
    )


class CvatSource(SourceSchema):
    """CVAT for images 1.1: one XML file; each polyline is a lane."""

    format: Literal["cvat"]
    annotations: str = Field(
        min_length=1, json_schema_extra={"format": "path"}, description="The XML file."
    )
    images: str = Field(
        min_length=1,
        json_schema_extra={"format": "path"},
        description="Folder that the picture names count from.",
    )
    labels: tuple[str, ...] | None = Field(
        None, description="Labels that are lanes; null: every polyline."
    )
