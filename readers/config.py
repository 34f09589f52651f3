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
