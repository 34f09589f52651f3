"""A prepared data set as one Arrow file, a row per picture: what the indexes of all tasks share.

Millions of labels cost no Python objects, and worker processes share the pages of the file.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import pyarrow as pa

from readers.records import DatasetError

Record = TypeVar("Record")
# Columns that every index has; its own follow.
PICTURE_FIELDS = (
    ("image_id", pa.large_string()),
    ("path", pa.large_string()),
    ("width", pa.int32()),
    ("height", pa.int32()),
    ("turn", pa.int8()),
    ("content", pa.large_string()),
)


class ArrowIndex(Sequence[Record]):
    """Pictures by number, as records whose arrays are views of a table.

    Args:
        table: columns of `SCHEMA`; what holds for all rows is in its metadata.
        rows: which rows of the table, in which order; None: all of them.
        file: the file that the table is mapped from, if it is.
    """

    SCHEMA: ClassVar[pa.Schema]
    LIST_COLUMNS: ClassVar[tuple[str, ...]]  # lists of numbers
    FORMAT: ClassVar[str]

    def __init__(
        self, table: pa.Table, *, rows: np.ndarray | None = None, file: Path | None = None
    ) -> None:
        self._table = table.combine_chunks()
        self._rows = np.arange(table.num_rows) if rows is None else np.asarray(rows, np.int64)
        self._file = file
        self._digest = ""
        self._metadata: dict[bytes, bytes] = dict(table.schema.metadata or {})
        if rows is None and b"digest" in self._metadata:
            self._digest = self._metadata[b"digest"].decode()
        self._lists = {name: ListColumn(self._table[name]) for name in self.LIST_COLUMNS}
        self._scalars = {name: self._table[name].to_numpy() for name in ("width", "height", "turn")}

    @classmethod
    def open(cls, path: str | Path) -> Self:
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
        if (table.schema.metadata or {}).get(b"format") != cls.FORMAT.encode():
            raise DatasetError(f"{path}: an Arrow file, but no data index of this version")
        return cls(table, file=path.absolute())

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Record]:
        return (self._record(row) for row in self._rows.tolist())

    def __getitem__(self, index: Any) -> Any:  # overloads of Sequence; slices give an index
        if isinstance(index, slice):
            return self.subset(range(*index.indices(len(self))))
        return self._record(int(self._rows[index]))

    def __reduce__(self) -> tuple[Any, ...]:
        """Send the file's name to other processes, not its content."""
        return _restore, (type(self), self._file or self._table, self._rows, self._digest)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of labels, sizes and the content of the picture files, in row order.

        Paths and file times do not count: a copied data set has the same digest.
        """
        if not self._digest:
            self._digest = self._computed_digest()
        return self._digest

    @property
    def sizes(self) -> np.ndarray:
        """(len, 2) int64, width and height of each picture, px."""
        columns = [self._scalars[name][self._rows] for name in ("width", "height")]
        return np.stack(columns, axis=1).astype(np.int64)

    @property
    def image_ids(self) -> list[str]:
        """The pictures' ids, in row order."""
        return self._texts("image_id")

    @property
    def contents(self) -> list[str]:
        """SHA-256 of each picture's file, hex, in row order."""
        return self._texts("content")

    def subset(self, indices: Sequence[int] | np.ndarray) -> Self:
        """Return the pictures of these numbers, in that order; the table is shared."""
        rows = self._rows[np.asarray(indices, np.int64)]
        return type(self)(self._table, rows=rows, file=self._file)

    def save(self, path: Path) -> Self:
        """Write the pictures to a file and return it opened; a half-written file is never seen."""
        metadata = self._metadata | {b"digest": self.digest.encode()}
        table = self._taken().replace_schema_metadata(metadata)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        with pa.OSFile(str(partial), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        partial.replace(path)
        return type(self).open(path)

    @abstractmethod
    def _record(self, row: int) -> Record:
        """Return a row of the table."""

    @abstractmethod
    def _computed_digest(self) -> str:
        """Return the digest of the chosen rows."""

    def _texts(self, name: str) -> list[str]:
        return self._table[name].take(pa.array(self._rows)).to_pylist()

    def _taken(self) -> pa.Table:
        return self._table.take(pa.array(self._rows)).combine_chunks()

    def _picture(self, row: int) -> dict[str, Any]:
        """Return the columns that every record has, by name."""
        return {
            "image_id": self._table["image_id"][row].as_py(),
            "path": Path(self._table["path"][row].as_py()),
            "width": int(self._scalars["width"][row]),
            "height": int(self._scalars["height"][row]),
            "turn": int(self._scalars["turn"][row]),
            "content": self._table["content"][row].as_py(),
        }


class ListColumn:
    """Values of a list column as one array, and where each row's begin."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        array = column.combine_chunks()
        self.offsets = array.offsets.to_numpy()
        self.values = array.values.to_numpy()

    @property
    def lengths(self) -> np.ndarray:
        """(rows of the table,) int64, how many values each row has."""
        return np.diff(self.offsets)

    def of(self, row: int) -> np.ndarray:
        """Return one row's values, a view."""
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    def mask(self, rows: np.ndarray) -> np.ndarray:
        """Return which of all values belong to some rows, bool."""
        changes = np.zeros(len(self.values) + 1, np.int64)
        np.add.at(changes, self.offsets[rows], 1)
        np.add.at(changes, self.offsets[rows + 1], -1)
        return np.cumsum(changes)[:-1] > 0


def table_of(
    rows: Mapping[str, Sequence[Any]], schema: pa.Schema, *, list_columns: Sequence[str]
) -> pa.Table:
    """Return columns of Python values as a table; arrays of `list_columns` are flattened."""
    columns = [
        list_column(rows[field.name], field.type)
        if field.name in list_columns
        else pa.array(rows[field.name], field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def list_column(rows: Sequence[np.ndarray], kind: pa.DataType) -> pa.Array:
    """Return one array per row as a list column; arrays are flattened."""
    lengths = [0, *(row.size for row in rows)]
    flat = [np.ravel(row) for row in rows]
    values = np.concatenate(flat) if flat else np.zeros(0)
    offsets = pa.array(np.cumsum(lengths, dtype=np.int64))
    return pa.LargeListArray.from_arrays(
        offsets, pa.array(values.astype(kind.value_type.to_pandas_dtype()))
    )


def with_list_values(table: pa.Table, name: str, values: np.ndarray) -> pa.Table:
    """Return a table whose list column has other values in lists of the same lengths.

    Args:
        table: of one chunk.
        name: the column.
        values: all lists one after the other.
    """
    array = table[name].combine_chunks()
    offsets = array.offsets.to_numpy()  # of a part of a table these do not begin at 0
    column = pa.LargeListArray.from_arrays(pa.array(offsets - offsets[0]), pa.array(values))
    position = table.schema.get_field_index(name)
    return table.set_column(position, table.schema.field(name), column)


def joined_tables(indexes: Sequence[ArrowIndex]) -> list[pa.Table]:
    """Return the indexes' rows with image ids that are unique over all of them.

    An image id that an earlier index holds as well gets its index's number put before it.
    """
    tables, taken = [], set[str]()
    for number, index in enumerate(indexes):
        ids = [f"{number}/{key}" if key in taken else key for key in index.image_ids]
        taken.update(ids)
        field = index.SCHEMA.field("image_id")
        tables.append(index._taken().set_column(0, field, pa.array(ids, field.type)))
    return tables


def check_ids(image_ids: Sequence[str], source: Path | str | None) -> None:
    """Raise a DatasetError if two pictures have one id."""
    seen = set[str]()
    for key in image_ids:
        if key in seen:
            before = f"{source}: " if source else ""
            raise DatasetError(f"{before}two pictures have the id {key!r}")
        seen.add(key)


def _restore(
    kind: type[ArrowIndex], source: Path | pa.Table, rows: np.ndarray, digest: str
) -> ArrowIndex:
    opened = kind.open(source) if isinstance(source, Path) else kind(source)
    index = kind(opened._table, rows=rows, file=opened._file)
    index._digest = digest
    return index
