"""The prepared boxes on disk: one Arrow file, a row per picture, read through the page cache.

Ten million boxes cost no Python objects, and worker processes share the pages. N is the number of
boxes of one picture.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from readers.arrow_index import (
    PICTURE_FIELDS,
    ArrowIndex,
    check_ids,
    joined_tables,
    table_of,
    with_list_values,
)
from readers.records import DatasetError, ImageBoxes, ImageBoxesSet

FORMAT = "sightflow-image-boxes-1"


class ImageBoxesIndex(ArrowIndex[ImageBoxes]):
    """Pictures and boxes by number, as `ImageBoxes` whose arrays are views of the table.

    Args:
        table: columns of `SCHEMA`; its metadata holds class names and ids.
        rows: which rows of the table, in which order; None: all of them.
        file: the file that the table is mapped from, if it is.
    """

    SCHEMA = pa.schema(
        [
            *PICTURE_FIELDS,
            ("boxes_xyxy", pa.large_list(pa.float64())),  # four values a box
            ("labels", pa.large_list(pa.int64())),
            ("is_crowd", pa.large_list(pa.uint8())),
            ("areas", pa.large_list(pa.float64())),
            ("annotation_ids", pa.large_list(pa.large_string())),
        ]
    )
    LIST_COLUMNS = ("boxes_xyxy", "labels", "is_crowd", "areas")
    FORMAT = FORMAT

    def __init__(
        self, table: pa.Table, *, rows: np.ndarray | None = None, file: Path | None = None
    ) -> None:
        super().__init__(table, rows=rows, file=file)
        self.class_names: tuple[str, ...] = tuple(json.loads(self._metadata[b"class_names"]))
        self.class_ids: tuple[int, ...] = tuple(json.loads(self._metadata[b"class_ids"]))

    def num_trainable_boxes(self) -> np.ndarray:
        """Return how many boxes that are no crowd each picture has, (len,) int64."""
        crowd, offsets = self._lists["is_crowd"].values, self._lists["is_crowd"].offsets
        running = np.concatenate([[0], np.cumsum(crowd == 0)])
        return (running[offsets[1:]] - running[offsets[:-1]])[self._rows]

    def counts(self) -> dict[str, Any]:
        """Return how much there is: pictures, boxes, crowd, without_boxes, and boxes per_class.

        `crowd` is a part of `boxes`; `per_class` leaves it out and is in class order.
        """
        lists = self._lists["labels"]
        chosen = lists.mask(self._rows)
        is_crowd = self._lists["is_crowd"].values != 0
        per_class = np.bincount(lists.values[chosen & ~is_crowd], minlength=len(self.class_names))
        return {
            "pictures": len(self),
            "boxes": int(chosen.sum()),
            "crowd": int((chosen & is_crowd).sum()),
            "without_boxes": int((self.num_trainable_boxes() == 0).sum()),
            "per_class": dict(zip(self.class_names, per_class.tolist(), strict=True)),
        }

    def with_classes(self, class_names: Sequence[str], class_ids: Sequence[int]) -> ImageBoxesIndex:
        """Return the same pictures, labelled in another class table; held in memory.

        Args:
            class_names: must hold every name of this table that has a box.
            class_ids: their ids in the files.
        """
        number = {name: index for index, name in enumerate(class_names)}
        moved = np.array([number.get(name, -1) for name in self.class_names], np.int64)
        table = self._taken()
        values = moved[table["labels"].combine_chunks().flatten().to_numpy()]
        if (values < 0).any():
            raise ValueError("a class with boxes is not in the new class table")
        table = with_list_values(table, "labels", values)
        return ImageBoxesIndex(table.replace_schema_metadata(_metadata(class_names, class_ids)))

    def _record(self, row: int) -> ImageBoxes:
        return ImageBoxes(
            **self._picture(row),
            boxes_xyxy=self._lists["boxes_xyxy"].of(row).reshape(-1, 4),
            labels=self._lists["labels"].of(row),
            is_crowd=self._lists["is_crowd"].of(row).view(np.bool_),
            areas=self._lists["areas"].of(row),
            annotation_ids=tuple(self._table["annotation_ids"][row].as_py()),
        )

    def _computed_digest(self) -> str:
        """Hash the columns one after the other, each row with its length."""
        digest = hashlib.sha256(json.dumps([FORMAT, list(self.class_names)]).encode())
        for record in self:
            row = [record.image_id, record.content, record.width, record.height, record.turn]
            digest.update(json.dumps([*row, len(record.labels)]).encode())
            for values, kind in (
                (record.boxes_xyxy, "<f8"),
                (record.labels, "<i8"),
                (record.is_crowd, "u1"),
                (record.areas, "<f8"),
            ):
                digest.update(values.astype(kind).tobytes())
        return digest.hexdigest()


def build_index(records: ImageBoxesSet) -> ImageBoxesIndex:
    """Return the records of a set as an index in memory; walks through them once.

    Raises:
        DatasetError: if two pictures have one id.
    """
    schema = ImageBoxesIndex.SCHEMA
    rows: dict[str, list[Any]] = {name: [] for name in schema.names}
    for record in records.records:
        for name in schema.names:
            value = getattr(record, name)
            rows[name].append(str(value) if name == "path" else value)
    check_ids(rows["image_id"], records.source)
    table = table_of(rows, schema, list_columns=ImageBoxesIndex.LIST_COLUMNS)
    return ImageBoxesIndex(
        table.replace_schema_metadata(_metadata(records.class_names, records.class_ids))
    )


def write_index(records: ImageBoxesSet, path: Path) -> ImageBoxesIndex:
    """Write the records of a set to a file and return it opened."""
    return build_index(records).save(path)


def concat(indexes: Sequence[ImageBoxesIndex]) -> ImageBoxesIndex:
    """Return several indexes of one class table as one, in memory.

    An image id that an earlier index holds as well gets its index's number put before it.

    Raises:
        DatasetError: if the class tables differ.
    """
    if any(index.class_names != indexes[0].class_names for index in indexes):
        raise DatasetError("data sets of different class tables cannot be joined")
    metadata = _metadata(indexes[0].class_names, indexes[0].class_ids)
    tables = [table.replace_schema_metadata(metadata) for table in joined_tables(indexes)]
    return ImageBoxesIndex(pa.concat_tables(tables))


def _metadata(class_names: Sequence[str], class_ids: Sequence[int]) -> dict[str, str]:
    return {
        "format": FORMAT,
        "class_names": json.dumps(list(class_names)),
        "class_ids": json.dumps(list(class_ids)),
    }
