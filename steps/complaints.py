"""pydantic's errors -> sentences with file, line, key, value and what would be right."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic_core import ErrorDetails

from steps import sections
from steps.problems import Problem
from steps.yaml_source import Node, find, values

Path = tuple[str | int, ...]

_LONGEST_VALUE = 60
_QUOTED = re.compile(r"'([^']*)'")
_SECTION_TYPES = ("model_type", "model_attributes_type", "dict_type", "dataclass_type")
_TYPES = {
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "string_type": "must be text",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
}
_LIMITS = {
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be {ge} or more",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be {le} or less",
    "string_too_long": "must have at most {max_length} characters",
    "too_long": "must have {max_length} entries, has {actual_length}",
    "too_short": "must have {min_length} entries, has {actual_length}",
    "string_pattern_mismatch": "must match {pattern}",
}


def complaints(errors: Iterable[ErrorDetails], *, root: Node, annotation: Any) -> list[Problem]:
    """Return one problem per faulty value.

    Args:
        errors: pydantic's error list.
        root: the tree that was checked.
        annotation: the schema that it was checked against.
    """
    by_path: dict[Path, list[ErrorDetails]] = {}
    for details in errors:
        by_path.setdefault(_key_path(details, root), []).append(details)
    return [
        _problem(path, group, root=root, annotation=annotation)
        for path, group in by_path.items()
        if not _only_a_refused_alternative(path, group, by_path)
    ]


def nearest(word: Any, choices: Sequence[str]) -> str:
    """Return `one of a, b, c`, the most similar first and named if it is very similar."""
    text = str(word)
    ranked = sorted(choices, key=lambda choice: -_similarity(text, choice))
    listed = ranked[0] if len(ranked) == 1 else f"one of {', '.join(ranked)}"
    if isinstance(word, str) and ranked and _similarity(text, ranked[0]) >= 0.6:
        return f"{listed}; did you mean {ranked[0]!r}?"
    return listed


def shown(value: Any) -> str:
    """Return a value as it is printed in a message."""
    if isinstance(value, dict):
        return "a section of keys"
    text = repr(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."


def _key_path(details: ErrorDetails, root: Node) -> Path:
    """Drop the names of union members, which pydantic puts among the keys."""
    location = details["loc"]
    kept: list[str | int] = []
    node = root
    for position, part in enumerate(location):
        is_last = position == len(location) - 1
        inner = find(node, (part,))
        if inner is not node:
            kept.append(part)
            node = inner
        elif is_last and details["type"] in ("missing", "extra_forbidden"):
            kept.append(part)
    return tuple(kept)


def _only_a_refused_alternative(
    path: Path, group: Sequence[ErrorDetails], by_path: Mapping[Path, Any]
) -> bool:
    """Whether `text or list` complains that a list is no text, while an entry is what is wrong."""
    is_type_error = all(details["type"] in _TYPES for details in group)
    return is_type_error and any(len(o) > len(path) and o[: len(path)] == path for o in by_path)


def _problem(path: Path, group: Sequence[ErrorDetails], *, root: Node, annotation: Any) -> Problem:
    details = group[0]
    kind = details["type"]
    node = find(root, path)
    if kind == "missing":
        section = path[:-1]
        return Problem(
            find(root, section).place, section, _missing(path, root=root, annotation=annotation)
        )
    if kind == "extra_forbidden":
        return Problem(node.place, path[:-1], _unknown(path, root=root, annotation=annotation))
    if kind in ("value_error", "assertion_error"):
        return Problem(node.place, path, str(details["ctx"]["error"]))
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        return _wrong_kind(path, root=root, annotation=annotation)
    value = values(node)
    if kind in _SECTION_TYPES:
        return Problem(node.place, path, _not_a_section(path, root=root, annotation=annotation))
    right = " or ".join(dict.fromkeys(_requirement(each, value) for each in group))
    if kind == "string_pattern_mismatch":
        right += _description(path, root=root, annotation=annotation)
    return Problem(node.place, path, f"{shown(value)} is not allowed: {right}")


def _requirement(details: ErrorDetails, value: Any) -> str:
    """Say what would be right, as `must ...`."""
    kind, context = details["type"], details.get("ctx", {})
    if kind in _TYPES:
        return _TYPES[kind] + _type_hint(kind, value)
    if kind == "string_too_short" and context.get("min_length") == 1:
        return "must not be empty"
    if kind in _LIMITS:
        return _LIMITS[kind].format(**{key: _short(entry) for key, entry in context.items()})
    if kind == "literal_error":
        return "must be " + nearest(value, _QUOTED.findall(context["expected"]))
    return details["msg"]


def _type_hint(kind: str, value: Any) -> str:
    if kind == "bool_type" and isinstance(value, str):
        return " (only these two words, without quotes)"
    if kind in ("int_type", "float_type") and isinstance(value, str) and _is_number(value):
        return ", without quotes"
    if kind == "string_type" and isinstance(value, bool | int | float):
        return f'; write it in quotes: "{json.dumps(value)}"'
    return ""


def _missing(path: Path, *, root: Node, annotation: Any) -> str:
    key = path[-1]
    section = values(find(root, path[:-1]))
    if isinstance(key, int):
        return f"{shown(section)} is not allowed: must have more entries, has {len(section)}"
    return f"missing key {key!r}{_description(path, root=root, annotation=annotation)}"


def _unknown(path: Path, *, root: Node, annotation: Any) -> str:
    """Name the nearest key of the section, else where in the schema such a key is."""
    key = str(path[-1])
    here = _annotation_at(path[:-1], root, annotation)
    model = sections.choose(here, values(find(root, path[:-1])))
    known = list(sections.fields(model)) if model else []
    near = difflib.get_close_matches(key, known, n=1)
    section, dot, _ = key.partition(".")
    if dot and section in known:
        return f"unknown key {key!r}; in a file, sections are nested: write it below `{section}:`"
    if near:
        return f"unknown key {key!r}; did you mean {near[0]!r}?"
    elsewhere = dict.fromkeys(
        ".".join(each) for each in sections.paths(annotation) if each[-1] == key
    )
    if elsewhere:
        return f"unknown key {key!r}; did you mean {' or '.join(list(elsewhere)[:3])}?"
    return f"unknown key {key!r}; the keys here are {', '.join(known)}"


def _wrong_kind(path: Path, *, root: Node, annotation: Any) -> Problem:
    """Complain of the key that picks a kind (`name`, `format`, `preset`)."""
    node = find(root, path)
    models = sections.models_in(_annotation_at(path, root, annotation))
    key = sections.tag_key(models) or ""
    choices = sections.choices(models)
    if isinstance(node.value, dict) and key in node.value:
        tag = node.value[key]
        right = nearest(values(tag), choices)
        return Problem(
            tag.place, (*path, key), f"{shown(values(tag))} is not allowed: must be {right}"
        )
    return Problem(node.place, path, f"missing key {key!r}: {nearest(None, choices)}")


def _not_a_section(path: Path, *, root: Node, annotation: Any) -> str:
    value = values(find(root, path))
    models = sections.models_in(_annotation_at(path, root, annotation))
    key = sections.tag_key(models) if len(models) > 1 else None
    if key and isinstance(value, str) and value in sections.choices(models):
        return f"{shown(value)} is not allowed: write {{{key}: {value}, ...}}"
    keys = [key] if key else list(sections.fields(models[0])) if models else []
    known = f" with the keys {', '.join(keys)}" if len(keys) > 1 else ""
    known = known or (f" with the key {keys[0]}" if keys else "")
    what = "is empty" if value is None else f"{shown(value)} is not allowed"
    return f"{what}: must be a section{known}"


def _annotation_at(path: Path, root: Node, annotation: Any) -> Any:
    node = root
    for part in path:
        annotation = sections.below(annotation, values(node), part)
        node = find(node, (part,))
    return annotation


def _description(path: Path, *, root: Node, annotation: Any) -> str:
    section = values(find(root, path[:-1]))
    above = _annotation_at(path[:-1], root, annotation)
    field = sections.field_at(above, section, str(path[-1]))
    return f" ({field.description.rstrip('.')})" if field and field.description else ""


def _similarity(word: str, choice: str) -> float:
    return difflib.SequenceMatcher(None, word.lower(), choice.lower()).ratio()


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _short(value: Any) -> Any:
    """Print 0.0 as 0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
