"""YAML text <-> values that remember their file and line.

The dialect is YAML 1.2's where PyYAML's 1.1 surprises: `1e-3` is a number, only `true` and `false`
are booleans (`off` and `no` are text), `010` is ten, and dates are text. Duplicate keys are
refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from yaml.nodes import MappingNode, ScalarNode, SequenceNode

from steps.problems import ConfigError, Place, Problem, config_error
from steps.variables import hide, unhide

Scalar = str | int | float | bool | None

_TAG = "tag:yaml.org,2002:"
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
# in this order: the first that matches the whole of an unquoted text wins
_PLAIN_TYPES = {
    "null": re.compile(r"~|null|Null|NULL|"),
    "bool": re.compile(r"true|True|TRUE|false|False|FALSE"),
    "int": _INT,
    "float": _FLOAT,
    "merge": re.compile(r"<<"),
}
_LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff]")
_MOST_VALUES = 200_000


@dataclass(frozen=True)
class Node:
    """A value and where it was written.

    Args:
        value: a scalar, a list of nodes, or a dict of nodes by key.
        place: the line of the key for an entry of a mapping, else that of the value itself.
        is_plain: whether it is a scalar written without quotes.
    """

    value: Scalar | list[Node] | dict[str, Node]
    place: Place
    is_plain: bool = False


class _Loader(yaml.SafeLoader):
    """Scans and composes; the types of plain scalars are ours."""

    yaml_implicit_resolvers: dict[str, Any] = {}


class _Dumper(yaml.SafeDumper):
    """Quotes whatever our dialect or YAML 1.1 would not read as text."""

    yaml_implicit_resolvers = {
        first: list(resolvers)
        for first, resolvers in yaml.SafeDumper.yaml_implicit_resolvers.items()
    }

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> ScalarNode:
    """Write control characters and rare line ends as escapes; other styles would fold them."""
    style = '"' if _UNPRINTABLE.search(text) else None
    return dumper.represent_scalar(_TAG + "str", text, style=style)


_Dumper.add_representer(str, _represent_text)
for _name, _pattern in _PLAIN_TYPES.items():
    _whole = re.compile(rf"(?:{_pattern.pattern})\Z")
    _Loader.add_implicit_resolver(_TAG + _name, _whole, None)
    _Dumper.add_implicit_resolver(_TAG + _name, _whole, None)


def read_file(path: Path, *, source: str) -> Node:
    """Return the mapping that a YAML file holds.

    Args:
        path: the file; UTF-8, a byte order mark and any line ends are fine.
        source: what messages call it.

    Raises:
        ConfigError: if it cannot be read, is not YAML, or holds anything but one mapping.
    """
    place = Place(source, 1, path.absolute().parent)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{source}: cannot be read: {error.strerror}") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        message = f"byte 0x{content[error.start]:02x} is not UTF-8 text; save the file as UTF-8"
        raise config_error([Problem(replace(place, line=line), (), message)]) from error
    node = read_text(text, place=place)
    if node.value is None:
        raise config_error([Problem(place, (), "the file is empty; an experiment has keys")])
    if not isinstance(node.value, dict):
        kind = "a list" if isinstance(node.value, list) else f"the value {node.value!r}"
        message = f"the file holds {kind}; an experiment is a mapping of keys (`name: ...`)"
        raise config_error([Problem(node.place, (), message)])
    return node


def read_text(text: str, *, place: Place) -> Node:
    """Return the value of a YAML text of one document; None for an empty one.

    Raises:
        ConfigError: with line, for anything that is not YAML or is not allowed in ours.
    """
    try:
        root = yaml.compose(hide(text), Loader=_Loader)
    except yaml.YAMLError as error:
        raise config_error([_syntax_problem(error, text, place)]) from error
    except RecursionError as error:
        raise config_error([Problem(place, (), "is nested too deeply")]) from error
    if root is None:
        return Node(None, place, is_plain=True)
    conversion = _Conversion(place)
    node = conversion.node(root, (), conversion.at(root))
    if conversion.problems:
        raise config_error(conversion.problems)
    return node


def plain_scalar(text: str) -> Scalar:
    """Return what an unquoted text stands for.

    Raises:
        ValueError: for a number that is not finite.
    """
    for name, pattern in _PLAIN_TYPES.items():
        if name != "merge" and pattern.fullmatch(text):
            return _scalar(name, text)
    return text


def values(node: Node) -> Any:
    """Return the bare value: scalars, lists and dicts."""
    if isinstance(node.value, dict):
        return {key: values(entry) for key, entry in node.value.items()}
    if isinstance(node.value, list):
        return [values(entry) for entry in node.value]
    return node.value


def find(node: Node, path: tuple[str | int, ...]) -> Node:
    """Return the node at a path, or the deepest one on the way to it."""
    for part in path:
        if isinstance(node.value, dict) and part in node.value:
            node = node.value[str(part)]
        elif isinstance(node.value, list) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
        else:
            break
    return node


def dump(tree: Mapping[str, Any]) -> str:
    """Return YAML text that `read_text` and variable expansion turn into the same values."""
    return yaml.dump(
        _escaped(tree),
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=None,
        width=100,
    )


class _Conversion:
    """Turns PyYAML's nodes into ours and gathers what is not allowed."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.problems: list[Problem] = []
        self._open: list[yaml.Node] = []
        self._num_values = 0

    def at(self, node: yaml.Node) -> Place:
        """Return the line on which a node begins; an assignment has none."""
        if self.place.line is None:
            return self.place
        return replace(self.place, line=node.start_mark.line + 1)

    def node(self, node: yaml.Node, path: tuple[str | int, ...], place: Place) -> Node:
        """Return our form of a node; aliases are copied."""
        self._num_values += 1
        if any(node is parent for parent in self._open) or self._num_values > _MOST_VALUES:
            message = "an alias leads back into itself, or aliases multiply beyond measure"
            raise config_error([*self.problems, Problem(place, path, message)])
        if isinstance(node, ScalarNode):
            return self._scalar(node, path, place)
        allowed = "map" if isinstance(node, MappingNode) else "seq"
        if node.tag != _TAG + allowed:
            self._refuse_tag(node, path)
        self._open.append(node)
        if isinstance(node, MappingNode):
            result = Node(self._mapping(node, path), place)
        else:
            assert isinstance(node, SequenceNode)
            entries = enumerate(node.value)
            result = Node(
                [self.node(item, (*path, i), self.at(item)) for i, item in entries], place
            )
        self._open.pop()
        return result

    def _mapping(self, node: MappingNode, path: tuple[str | int, ...]) -> dict[str, Node]:
        merged: dict[str, Node] = {}
        own: dict[str, Node] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode):
                self._add(key_node, path, "a key must be text, not a list or a mapping")
            elif key_node.tag == _TAG + "merge":
                merged = {**dict(self._merge(value_node, path)), **merged}
            else:
                key, line = unhide(key_node.value), key_node.start_mark.line + 1
                if key in own:
                    also = "" if self.place.line is None else f"; it is also on line {lines[key]}"
                    self._add(key_node, (*path, key), f"the key {key!r} is given twice{also}")
                lines.setdefault(key, line)
                own[key] = self.node(value_node, (*path, key), self.at(key_node))
        return {**merged, **own}

    def _merge(self, node: yaml.Node, path: tuple[str | int, ...]) -> Iterator[tuple[str, Node]]:
        """Yield the entries that `<<` brings in; of several mappings the first wins."""
        sources = reversed(node.value) if isinstance(node, SequenceNode) else [node]
        for source in sources:
            entries = self.node(source, path, self.at(source)).value
            if isinstance(entries, dict):
                yield from entries.items()
            else:
                self._add(source, path, "`<<` takes a mapping or a list of mappings")

    def _scalar(self, node: ScalarNode, path: tuple[str | int, ...], place: Place) -> Node:
        name = node.tag.removeprefix(_TAG)
        if name not in ("null", "bool", "int", "float", "str", "merge"):
            self._refuse_tag(node, path)
            name = "str"
        try:
            value = _scalar(name, unhide(node.value))
        except ValueError as error:
            self._add(node, path, f"{node.value} is not allowed: {error}")
            value = None
        return Node(value, place, is_plain=node.style is None)

    def _refuse_tag(self, node: yaml.Node, path: tuple[str | int, ...]) -> None:
        tag = node.tag.replace(_TAG, "!!")
        self._add(node, path, f"the tag {tag} is not allowed; write plain YAML values")

    def _add(self, node: yaml.Node, path: tuple[str | int, ...], message: str) -> None:
        self.problems.append(Problem(self.at(node), path, message))


def _scalar(name: str, text: str) -> Scalar:
    """Return the value of a scalar of a YAML type."""
    if name == "null":
        return None
    if name == "bool":
        return text.lower() == "true"
    if name == "int":
        return int(text, 0) if text[:2].lower() in ("0o", "0x") else int(text)
    if name == "float":
        if text.lower().endswith(("inf", "nan")):
            raise ValueError("must be a finite number")
        number = float(text)
        if number in (float("inf"), float("-inf")):
            raise ValueError("must be a finite number; this one is too large")
        return number
    return text


def _syntax_problem(error: yaml.YAMLError, text: str, place: Place) -> Problem:
    """Say what PyYAML found, in a user's words where it is a usual trap."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    index = mark.line if mark else 0
    lines = _LINE_BREAK.split(text)
    line = lines[index] if index < len(lines) else ""
    if place.line is not None:
        place = replace(place, line=index + 1)
    said = str(getattr(error, "problem", None) or getattr(error, "reason", None) or error)
    if "\t" in line[: len(line) - len(line.lstrip())] or r"'\t'" in said:
        said = "a tab stands where YAML wants blanks; indent with blanks only"
    elif "another document" in said:
        said = "a second document begins here (`---`); one file is one experiment"
    elif "special characters" in said:
        said = "holds a control character, which YAML does not allow"
    else:
        said = f"not readable as YAML: {unhide(said)}"
        if "mapping values are not allowed" in said:
            said += " (a text that holds `: ` needs quotes)"
    return Problem(place, (), said)


def _escaped(value: Any) -> Any:
    """Write `${` as `$${`, so that reading the dump does not expand it."""
    if isinstance(value, dict):
        return {_escaped(key): _escaped(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_escaped(entry) for entry in value]
    return value.replace("${", "$${") if isinstance(value, str) else value
