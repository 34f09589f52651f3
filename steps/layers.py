"""One experiment out of its layers: the file that `extends` names, the file itself, `--set`.

An upper layer's mappings are merged into the lower one's key by key; lists and scalars replace.
Where the upper layer picks another kind (`optimizer.name: adamw` over `sgd`), the lower layer's
keys of that section are dropped, since they belong to the other kind.
"""

from __future__ import annotations

import difflib
import os
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from steps import sections
from steps.problems import ConfigError, Place, Problem, config_error
from steps.variables import expand, has_variable
from steps.yaml_source import Node, plain_scalar, read_file, read_text, values


def read_layers(path: Path, *, annotation: Any, environ: Mapping[str, str]) -> Node:
    """Return a YAML file merged over the one that it extends, variables not yet replaced.

    Args:
        path: the file.
        annotation: the schemas of the root.
        environ: for variables in the value of `extends`.

    Raises:
        ConfigError: if a file cannot be read, or the extended file extends another.
    """
    root = _read(path)
    assert isinstance(root.value, dict)
    extends = root.value.get("extends")
    if extends is None:
        return root
    own = replace(root, value={k: v for k, v in root.value.items() if k != "extends"})
    below = _extended_path(extends, environ)
    lower = _read(below, named_at=extends.place)
    assert isinstance(lower.value, dict)
    if "extends" in lower.value:
        message = "may not extend another file: at most one `extends`, so that two files tell all"
        raise config_error([Problem(lower.value["extends"].place, ("extends",), message)])
    return merge(own, lower, annotation=annotation)


def read_overrides(text: str, *, folder: Path) -> Node | None:
    """Return the tree of a `--set` text; None for an empty one.

    Args:
        text: assignments `key.path=value`, separated by blanks, quoted as in a shell; the values
            are YAML scalars, flow lists or flow mappings.
        folder: what relative paths in the values count from.

    Raises:
        ConfigError: if the text is not a list of assignments, or a value is not YAML.
    """
    try:
        assignments = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"--set {text}: cannot be split at blanks: {error}") from error
    if not assignments:
        return None
    root = Node({}, Place("--set", None, folder))
    for assignment in assignments:
        place = Place(f"--set {assignment}", None, folder)
        key, equals, value = assignment.partition("=")
        path = key.split(".")
        if not equals or not all(path):
            message = "must be key.path=value, e.g. train.optimizer.lr=0.01"
            raise config_error([Problem(place, (), message)])
        _assign(root, path, read_text(value, place=place))
    return root


def merge(upper: Node, lower: Node, *, annotation: Any, path: tuple[str, ...] = ()) -> Node:
    """Return the upper layer over the lower one.

    Args:
        upper: a file's own tree, or one of assignments.
        lower: what is below.
        annotation: the schemas of this section; None where the schemas have no such section.
        path: keys from the root, for messages.

    Raises:
        ConfigError: if an assignment of `--set` names a list entry that is not there.
    """
    if not isinstance(upper.value, dict):
        return upper
    if isinstance(lower.value, list) and upper.place.line is None:
        return _merge_entries(upper, lower, annotation=annotation, path=path)
    if not isinstance(lower.value, dict):
        return upper
    below = {} if _picks_another_kind(upper, lower, annotation) else lower.value
    section = {**values(replace(lower, value=below)), **values(upper)}
    merged = dict(below)
    for key, node in upper.value.items():
        if key in below:
            inner = sections.below(annotation, section, key)
            node = merge(node, below[key], annotation=inner, path=(*path, key))
        merged[key] = node
    # a section that `--set` only touches is still the file's
    return replace(upper if upper.place.line else lower, value=merged)


def expand_variables(
    node: Node, environ: Mapping[str, str], *, path: tuple[str | int, ...] = ()
) -> tuple[Node, list[Problem]]:
    """Return the tree with variables replaced, and what was wrong with them.

    A text without quotes is read again afterwards, so `epochs: ${EPOCHS:-3}` is a number.
    """
    problems: list[Problem] = []
    if isinstance(node.value, dict):
        entries = {}
        for key, entry in node.value.items():
            entries[key], found = expand_variables(entry, environ, path=(*path, key))
            problems += found
        return replace(node, value=entries), problems
    if isinstance(node.value, list):
        items = [
            expand_variables(item, environ, path=(*path, i)) for i, item in enumerate(node.value)
        ]
        problems = [problem for _, found in items for problem in found]
        return replace(node, value=[item for item, _ in items]), problems
    if not isinstance(node.value, str) or not has_variable(node.value):
        return node, problems
    try:
        text = expand(node.value, environ)
        return replace(node, value=plain_scalar(text) if node.is_plain else text), problems
    except ValueError as error:
        return node, [Problem(node.place, path, str(error))]


def shown_path(path: Path) -> str:
    """Return a path as a user would name it: relative if it lies below the current folder."""
    absolute = path.absolute()
    try:
        return str(absolute.relative_to(Path.cwd()))
    except ValueError:
        return str(absolute)


def _read(path: Path, *, named_at: Place | None = None) -> Node:
    if path.is_file():
        return read_file(path, source=shown_path(path))
    what = "is a folder, not a YAML file" if path.is_dir() else "does not exist"
    message = f"{shown_path(path)} {what}{_nearest_file(path)}"
    if named_at is None:
        # `mlflow run` works in the project's folder, or in a copy of it, not in the user's
        raise ConfigError(f"{message} (looked for in {path.absolute().parent})")
    raise config_error([Problem(named_at, ("extends",), message)])


def _nearest_file(path: Path) -> str:
    folder = path if path.is_dir() else path.parent
    if not folder.is_dir():
        return ""
    names = sorted(file.name for file in folder.iterdir() if file.suffix in (".yaml", ".yml"))
    near = difflib.get_close_matches(path.name, names, n=1)
    if near:
        return f"; did you mean {shown_path(folder / near[0])}?"
    return f"; that folder has {', '.join(names[:12])}" if names else ""


def _extended_path(extends: Node, environ: Mapping[str, str]) -> Path:
    expanded, problems = expand_variables(extends, environ, path=("extends",))
    if not isinstance(expanded.value, str) or not expanded.value:
        message = "must be the path of one YAML file, relative to this one"
        problems = [Problem(extends.place, ("extends",), message)]
    if problems:
        raise config_error(problems)
    path = Path(str(expanded.value)).expanduser()
    return Path(os.path.normpath(extends.place.folder / path))


def _assign(root: Node, path: list[str], value: Node) -> None:
    """Put a value into the tree of assignments; a later one wins."""
    node = root
    for key in path[:-1]:
        assert isinstance(node.value, dict)
        entry = node.value.get(key)
        if entry is None or not isinstance(entry.value, dict):
            entry = Node({}, value.place)
            node.value[key] = entry
        node = entry
    assert isinstance(node.value, dict)
    node.value[path[-1]] = value


def _merge_entries(upper: Node, lower: Node, *, annotation: Any, path: tuple[str, ...]) -> Node:
    """Put `freeze.0.prefix=...` into the list that is there."""
    assert isinstance(upper.value, dict)
    assert isinstance(lower.value, list)
    entries = list(lower.value)
    for key, node in upper.value.items():
        if not (key.isascii() and key.isdigit() and int(key) < len(entries)):
            if len(entries) == 0:
                right = "it is an empty list; set the whole list"
            else:
                right = f"it is a list; its entries are 0 to {len(entries) - 1}"
            raise config_error([Problem(node.place, path, f"has no entry {key!r}: {right}")])
        index = int(key)
        inner = sections.below(annotation, None, index)
        entries[index] = merge(node, entries[index], annotation=inner, path=(*path, key))
    return replace(lower, value=entries)


def _picks_another_kind(upper: Node, lower: Node, annotation: Any) -> bool:
    assert isinstance(upper.value, dict)
    assert isinstance(lower.value, dict)
    models = sections.models_in(annotation)
    key = sections.tag_key(models) if len(models) > 1 else None
    if key is None or key not in upper.value or key not in lower.value:
        return False
    return bool(values(upper.value[key]) != values(lower.value[key]))
