"""Relative paths in a configuration count from the file that holds them."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from steps import sections
from steps.yaml_source import Node, values

_WEIGHT_FILES = (".pt", ".pth", ".safetensors", ".bin", ".model")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def is_path(weights: str) -> bool:
    """Whether a value of `weights` names a file, and not one of torchvision's enums."""
    return "/" in weights or os.sep in weights or weights.endswith(_WEIGHT_FILES)


def absolute_paths(node: Node, annotation: Any) -> Node:
    """Return the tree with the paths of marked fields made absolute.

    Args:
        node: a section.
        annotation: its schemas; fields of JSON Schema format `path` hold paths, those of format
            `weights` hold one if `is_path` says so.
    """
    if isinstance(node.value, list):
        items = [
            absolute_paths(item, sections.below(annotation, None, i))
            for i, item in enumerate(node.value)
        ]
        return replace(node, value=items)
    if not isinstance(node.value, dict):
        return node
    section = values(node)
    entries = {}
    for key, entry in node.value.items():
        field = sections.field_at(annotation, section, key)
        extra = field.json_schema_extra if field else None
        form = extra.get("format") if isinstance(extra, dict) else None
        if isinstance(entry.value, str) and _holds_path(entry.value, form):
            entries[key] = replace(entry, value=_absolute(entry.value, entry.place.folder))
        else:
            entries[key] = absolute_paths(entry, sections.below(annotation, section, key))
    return replace(node, value=entries)


def _holds_path(value: str, form: Any) -> bool:
    return bool(value) and (form == "path" or (form == "weights" and is_path(value)))


def _absolute(text: str, folder: Path) -> str:
    if _URL.match(text):
        return text
    return os.path.normpath(folder / Path(text).expanduser())
