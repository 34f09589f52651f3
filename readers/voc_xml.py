"""One Pascal VOC XML file, parsed with the line of each object."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from readers.boxes import Box
from readers.records import DatasetError
from readers.xml_files import walk_xml

CORNERS = ("xmin", "ymin", "xmax", "ymax")


@dataclass(frozen=True, slots=True)
class VocObject:
    """One `<object>`.

    Args:
        name: class name, stripped.
        corners: xmin, ymin, xmax, ymax as written; None where one is missing or no number.
        is_difficult: the `difficult` flag.
        line: where it begins.
    """

    name: str
    corners: Box | None
    is_difficult: bool
    line: int


@dataclass(frozen=True, slots=True)
class VocAnnotation:
    """One file.

    Args:
        filename: what it calls its picture; may be empty.
        size: width and height, px; None where absent or 0.
        objects: in order.
    """

    filename: str
    size: tuple[int, int] | None
    objects: tuple[VocObject, ...]


def parse_annotation(path: Path) -> VocAnnotation:
    """Return what a VOC XML file says.

    Raises:
        FileNotFoundError: if there is no such file.
        DatasetError: if it is no XML, with the line, or no VOC annotation.
    """
    walk = _Walk()
    walk_xml(path, start=walk.start, end=walk.end, text=walk.text)
    if walk.root != "annotation":
        raise DatasetError(f"{path}: <annotation> is expected, not <{walk.root}>")
    sides = [_number(walk.texts.get(f"size/{key}")) for key in ("width", "height")]
    size = None
    if sides[0] and sides[1] and math.isfinite(sides[0]) and math.isfinite(sides[1]):
        size = (int(sides[0]), int(sides[1]))
    return VocAnnotation(walk.texts.get("filename", ""), size, tuple(walk.objects))


@dataclass
class _Walk:
    """Collects texts by their path below the root; objects one by one."""

    root: str = ""
    texts: dict[str, str] = field(default_factory=dict)
    objects: list[VocObject] = field(default_factory=list)
    _path: list[str] = field(default_factory=list)
    _text: list[str] = field(default_factory=list)
    _object: dict[str, str] = field(default_factory=dict)
    _line: int = 0

    def text(self, text: str) -> None:
        """Take a piece of text."""
        self._text.append(text)

    def start(self, name: str, _: dict[str, str], line: int) -> None:
        """Take the beginning of an element."""
        self._text.clear()
        if not self.root:
            self.root = name
            return
        self._path.append(name)
        if self._path == ["object"]:
            self._object = {}
            self._line = line

    def end(self, _: str) -> None:
        """Take the end of an element."""
        if not self._path:
            return
        text = "".join(self._text).strip()
        self._text.clear()
        path = "/".join(self._path)
        self._path.pop()
        if path == "object":
            self.objects.append(self._made_object())
        elif path.startswith("object/"):
            # `part` holds boxes of its own, deeper down: its path tells them apart.
            self._object[path.removeprefix("object/")] = text
        else:
            self.texts[path] = text

    def _made_object(self) -> VocObject:
        numbers = [_number(self._object.get(f"bndbox/{key}")) for key in CORNERS]
        given = [number for number in numbers if number is not None]
        corners = (given[0], given[1], given[2], given[3]) if len(given) == 4 else None
        is_difficult = self._object.get("difficult", "0") not in ("0", "", "Unspecified")
        return VocObject(self._object.get("name", ""), corners, is_difficult, self._line)


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None
