"""Label files of text: lines and JSON, with one clear sentence where they cannot be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from readers.records import DatasetError
from readers.regular_files import read_regular


def read_text(path: Path) -> str:
    """Return a file's text, without a byte order mark.

    Raises:
        DatasetError: if it cannot be read or is not UTF-8.
    """
    try:
        return read_regular(path).decode("utf-8-sig")
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path}: not UTF-8 text ({error.reason})") from error
    except ValueError as error:  # a null byte in the name
        raise DatasetError(f"{str(path)!r}: cannot be read: {error}") from error


def read_lines(path: Path) -> list[str]:
    """Return a file's lines without blanks at their ends; any line ends are fine.

    Raises:
        DatasetError: as `read_text`.
    """
    # not splitlines: names of pictures may hold the rarer characters that it splits at
    return [line.strip() for line in read_text(path).split("\n")]


def load_json(path: Path) -> Any:
    """Return what a JSON file holds.

    Raises:
        DatasetError: if it cannot be read or is no JSON, with the line.
    """
    return parse_json(read_text(path), name=str(path))


def parse_json(text: str, *, name: str, line: int | None = None) -> Any:
    """Return what a JSON text holds.

    Args:
        text: the whole of it.
        name: what messages call the file.
        line: the line of the file that the text is; None: it is all of the file.

    Raises:
        DatasetError: if it is no JSON, with the line.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        at = error.lineno if line is None else line
        raise DatasetError(f"{name}:{at}: not JSON: {error.msg}") from error
    except (RecursionError, ValueError) as error:  # nested without end, numbers of 5000 digits
        at_line = "" if line is None else f":{line}"
        raise DatasetError(f"{name}{at_line}: not readable as JSON: {error}") from error
