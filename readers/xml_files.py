"""XML label files, walked element by element with their lines; entities are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.parsers import expat

from readers.records import DatasetError
from readers.regular_files import read_regular


def walk_xml(
    path: Path,
    *,
    start: Callable[[str, dict[str, str], int], None],
    end: Callable[[str], None],
    text: Callable[[str], Any] = lambda _: None,
) -> None:
    """Call functions for each element of a file, in order.

    Args:
        path: the file.
        start: gets name, attributes and line of an element that begins.
        end: gets the name of one that ends.
        text: gets pieces of text.

    Raises:
        FileNotFoundError: if there is no such file.
        DatasetError: if it cannot be read, is no XML, or declares an entity, with the line.
    """
    try:
        data = read_regular(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # a null byte in the name
        raise DatasetError(f"{str(path)!r}: cannot be read: {error}") from error
    parser = expat.ParserCreate()

    def refuse(*_: Any) -> None:
        line = parser.CurrentLineNumber
        raise DatasetError(f"{path}:{line}: declares an entity, which no label file needs")

    parser.StartElementHandler = lambda name, attributes: start(
        name, attributes, parser.CurrentLineNumber
    )
    parser.EndElementHandler = end
    parser.CharacterDataHandler = text
    parser.EntityDeclHandler = refuse  # entities of entities fill any memory
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise DatasetError(f"{path}:{error.lineno}: broken XML: {reason}") from error
