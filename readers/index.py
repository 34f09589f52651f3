"""The prepared data set on disk: one Arrow file, a row per picture, read through the page cache.

Ten million boxes cost no Python objects, and worker processes share the pages. N is the number of
boxes of one picture.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from readers.records import DatasetError, ImageBoxes, ImageBoxesSet

SCHEMA = pa.schema(
    [
        ("image_id", pa.large_string()),
        ("path", pa.large_string()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("turn", pa.int8()),
        ("content", pa.large_string()),
        ("boxes_xyxy", pa.large_list(pa.float64())),  # four values a box
        ("labels", pa.large_list(pa.int64())),
        ("is_crowd", pa.large_list(pa.uint8())),
        ("areas", pa.large_list(pa.float64())),
        ("annotation_ids", pa.large_list(pa.large_string())),
    ]
)
LIST_COLUMNS = ("boxes_xyxy", "labels", "is_crowd", "areas")
FORMAT = "sightflow-image-boxes-1"


class ImageBoxesIndex(Sequence[ImageBoxes]):
    """Pictures and boxes by number, as `ImageBoxes` whose arrays are views of the table.

    Args:
        table: columns of `SCHEMA`; its metadata holds class names and ids.
        rows: which rows of the table, in which order; None: all of them.
        file: the file that the table is mapped from, if it is.
    """

    def __init__(
        self, table: pa.Table, *, rows: np.ndarray | None = None, file: Path | None = None
    ) -> None:
        self._table = table.combine_chunks()
        self._rows = np.arange(table.num_rows) if rows is None else np.asarray(rows, np.int64)
        self._file = file
        self._digest = ""
        metadata = table.schema.metadata or {}
        self.class_names: tuple[str, ...] = tuple(json.loads(metadata[b"class_names"]))
        self.class_ids: tuple[int, ...] = tuple(json.loads(metadata[b"class_ids"]))
        if rows is None and b"digest" in metadata:
            self._digest = metadata[b"digest"].decode()
        self._lists = {name: _ListColumn(self._table[name]) for name in LIST_COLUMNS}
        self._scalars = {name: self._table[name].to_numpy() for name in ("width", "height", "turn")}

    @classmethod
    def open(cls, path: str | Path) -> ImageBoxesIndex:
        """Return the index in a file, memory-mapped.

        Raises:
            DatasetError: if there is no such file or it is no index.
        """
        path = Path(path)
        try:
            with pa.memory_map(str(path)) as source:
                table = pa.ipc.open_file(source).read_all()
        except (OSError, pa.ArrowInvalid) as error:
            raise DatasetError(f"{path}: no data index can be read from it: {error}") from error
        if (table.schema.metadata or {}).get(b"format") != FORMAT.encode():
            raise DatasetError(f"{path}: an Arrow file, but no data index of this version")
        return cls(table, file=path.absolute())

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[ImageBoxes]:
        return (self._record(row) for row in self._rows.tolist())

    def __getitem__(self, index: Any) -> Any:  # overloads of Sequence; slices give an index
        if isinstance(index, slice):
            return self.subset(range(*index.indices(len(self))))
        return self._record(int(self._rows[index]))

    def __reduce__(self) -> tuple[Any, ...]:
        """Send the file's name to other processes, not its content."""
        return _restore, (self._file or self._table, self._rows, self._digest)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of labels, sizes and the content of the picture files, in row order.

        Paths and file times do not count: a copied data set has the same digest.
        """
        if not self._digest:
            self._digest = _digest(self)
        return self._digest

    @property
    def sizes(self) -> np.ndarray:
        """(len, 2) int64, width and height of each picture, px."""
        columns = [self._scalars[name][self._rows] for name in ("width", "height")]
        return np.stack(columns, axis=1).astype(np.int64)

    @property
    def image_ids(self) -> list[str]:
        """The pictures' ids, in row order."""
        return self._table["image_id"].take(pa.array(self._rows)).to_pylist()

    @property
    def contents(self) -> list[str]:
        """SHA-256 of each picture's file, hex, in row order."""
        return self._table["content"].take(pa.array(self._rows)).to_pylist()

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
        chosen = np.zeros(len(lists.values), np.bool_)
        for row in self._rows.tolist():
            chosen[lists.offsets[row] : lists.offsets[row + 1]] = True
        is_crowd = self._lists["is_crowd"].values != 0
        per_class = np.bincount(lists.values[chosen & ~is_crowd], minlength=len(self.class_names))
        return {
            "pictures": len(self),
            "boxes": int(chosen.sum()),
            "crowd": int((chosen & is_crowd).sum()),
            "without_boxes": int((self.num_trainable_boxes() == 0).sum()),
            "per_class": dict(zip(self.class_names, per_class.tolist(), strict=True)),
        }

    def subset(self, indices: Sequence[int] | np.ndarray) -> ImageBoxesIndex:
        """Return the pictures of these numbers, in that order; the table is shared."""
        rows = self._rows[np.asarray(indices, np.int64)]
        return ImageBoxesIndex(self._table, rows=rows, file=self._file)

    def with_classes(self, class_names: Sequence[str], class_ids: Sequence[int]) -> ImageBoxesIndex:
        """Return the same pictures, labelled in another class table; held in memory.

        Args:
            class_names: must hold every name of this table that has a box.
            class_ids: their ids in the files.
        """
        number = {name: index for index, name in enumerate(class_names)}
        moved = np.array([number.get(name, -1) for name in self.class_names], np.int64)
        table = self._taken()
        labels = table["labels"].combine_chunks()
        values = moved[labels.flatten().to_numpy()]
        if (values < 0).any():
            raise ValueError("a class with boxes is not in the new class table")
        column = pa.LargeListArray.from_arrays(_offsets(labels), pa.array(values))
        position = table.schema.get_field_index("labels")
        table = table.set_column(position, SCHEMA.field("labels"), column)
        return ImageBoxesIndex(table.replace_schema_metadata(_metadata(class_names, class_ids)))

    def save(self, path: Path) -> ImageBoxesIndex:
        """Write the pictures to a file and return it opened; a half-written file is never seen."""
        metadata = _metadata(self.class_names, self.class_ids) | {"digest": self.digest}
        table = self._taken().replace_schema_metadata(metadata)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        with pa.OSFile(str(partial), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        partial.replace(path)
        return ImageBoxesIndex.open(path)

    def _taken(self) -> pa.Table:
        return self._table.take(pa.array(self._rows)).combine_chunks()

    def _record(self, row: int) -> ImageBoxes:
        return ImageBoxes(
            image_id=self._table["image_id"][row].as_py(),
            path=Path(self._table["path"][row].as_py()),
            width=int(self._scalars["width"][row]),
            height=int(self._scalars["height"][row]),
            turn=int(self._scalars["turn"][row]),
            boxes_xyxy=self._lists["boxes_xyxy"].of(row).reshape(-1, 4),
            labels=self._lists["labels"].of(row),
            is_crowd=self._lists["is_crowd"].of(row).view(np.bool_),
            areas=self._lists["areas"].of(row),
            annotation_ids=tuple(self._table["annotation_ids"][row].as_py()),
            content=self._table["content"][row].as_py(),
        )


def build_index(records: ImageBoxesSet) -> ImageBoxesIndex:
    """Return the records of a set as an index in memory; walks through them once.

    Raises:
        DatasetError: if two pictures have one id.
    """
    rows: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
    for record in records.records:
        for name in SCHEMA.names:
            value = getattr(record, name)
            rows[name].append(str(value) if name == "path" else value)
    _check_ids(rows["image_id"], records.source)
    columns = []
    for field in SCHEMA:
        values = rows[field.name]
        if field.name in LIST_COLUMNS:
            columns.append(_list_column(values, field.type))
        else:
            columns.append(pa.array(values, field.type))
    table = pa.Table.from_arrays(columns, schema=SCHEMA)
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
    tables, taken = [], set[str]()
    for number, index in enumerate(indexes):
        if index.class_names != indexes[0].class_names:
            raise DatasetError("data sets of different class tables cannot be joined")
        ids = [f"{number}/{key}" if key in taken else key for key in index.image_ids]
        taken.update(ids)
        table = index._taken()
        tables.append(table.set_column(0, SCHEMA.field("image_id"), pa.array(ids, SCHEMA[0].type)))
    metadata = _metadata(indexes[0].class_names, indexes[0].class_ids)
    return ImageBoxesIndex(
        pa.concat_tables([table.replace_schema_metadata(metadata) for table in tables])
    )


class _ListColumn:
    """Values of a list column as one array, and where each row's begin."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        array = column.combine_chunks()
        self.offsets = array.offsets.to_numpy()
        self.values = array.values.to_numpy()

    def of(self, row: int) -> np.ndarray:
        return self.values[self.offsets[row] : self.offsets[row + 1]]


def _list_column(rows: Sequence[np.ndarray], kind: pa.DataType) -> pa.Array:
    lengths = [0, *(row.size for row in rows)]
    flat = [np.ravel(row) for row in rows]
    values = np.concatenate(flat) if flat else np.zeros(0)
    offsets = pa.array(np.cumsum(lengths, dtype=np.int64))
    return pa.LargeListArray.from_arrays(
        offsets, pa.array(values.astype(kind.value_type.to_pandas_dtype()))
    )


def _offsets(array: pa.Array) -> pa.Array:
    """Return offsets from 0, whatever part of its buffers the array is."""
    offsets = array.offsets.to_numpy()
    return pa.array(offsets - offsets[0])


def _metadata(class_names: Sequence[str], class_ids: Sequence[int]) -> dict[str, str]:
    return {
        "format": FORMAT,
        "class_names": json.dumps(list(class_names)),
        "class_ids": json.dumps(list(class_ids)),
    }


def _check_ids(image_ids: Sequence[str], source: Path) -> None:
    seen = set[str]()
    for key in image_ids:
        if key in seen:
            raise DatasetError(f"{source}: two pictures have the id {key!r}")
        seen.add(key)


def _digest(index: ImageBoxesIndex) -> str:
    """Hash the columns one after the other, each row with its length."""
    digest = hashlib.sha256(json.dumps([FORMAT, list(index.class_names)]).encode())
    for record in index:
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


def _restore(source: Path | pa.Table, rows: np.ndarray, digest: str) -> ImageBoxesIndex:
    opened = ImageBoxesIndex.open(source) if isinstance(source, Path) else ImageBoxesIndex(source)
    index = ImageBoxesIndex(opened._table, rows=rows, file=opened._file)
    index._digest = digest
    return index
