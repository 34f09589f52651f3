"""Pages made from the schemas: `python -m steps.schema_docs` writes them, a test keeps them fresh.

docs/experiment.schema.json lets editors complete and check the YAML; docs/configs.md lists every
key with type, default, range and meaning.
"""

from __future__ import annotations

import inspect
import json
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click
from pydantic.fields import FieldInfo

from steps import sections
from steps.experiment import EXPERIMENTS, PROJECT_FOLDER

_EXTENDS = {
    "type": "string",
    "minLength": 1,
    "title": "Extends",
    "description": "A YAML file, relative to this one, that this one is merged over.",
}
_SIGNS = {"gt": "> ", "ge": ">= ", "lt": "< ", "le": "<= "}
_TYPE_NAMES = {str: "text", int: "whole number", float: "number", bool: "true or false"}

_HEAD = """\
# Every key of an experiment

Made from the schemas by `python -m steps.schema_docs` (`make docs`); do not edit.

One YAML file is one experiment. Keys that are not listed here are refused. An error names file,
line, key, value and the nearest right key; all errors of a file are told at once.

In a file:

- `extends: other.yaml` starts from that file (relative to this one; it may not extend a third).
  Sections are merged key by key, lists and single values replace. Where this file picks another
  kind (`optimizer.name`), the other file's keys of that section are dropped.
- `${NAME}` and `${NAME:-default}` are environment variables; `$${` stands for `${` itself.
  One with a secret's name (`HF_TOKEN`) is refused: a configuration is recorded on every run.
- Relative paths count from the folder of the file that holds them; `~` is the home folder.
- `1e-3` is a number. Only `true` and `false` are booleans; `off`, `no` and dates are text.

On the command line:

- `--set "train.epochs=3 train.optimizer.lr=0.01"` sets values over the file's, as an extending
  file would. Blanks separate, quotes work as in a shell, values are YAML:
  `--set "train.freeze='[{prefix: backbone}]'"`. `train.freeze.0.prefix=backbone` reaches into a
  list; `train.ema=` sets null. Relative paths count from the YAML's folder here too.
- `--show` prints the resolved experiment and does nothing else.

For completion in an editor, begin a file with
`# yaml-language-server: $schema=../../docs/experiment.schema.json`.
"""


@click.command()
def main() -> None:
    """Write docs/experiment.schema.json and docs/configs.md."""
    for path, text in pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        click.echo(path.relative_to(PROJECT_FOLDER))


def pages() -> dict[Path, str]:
    """Return the generated pages: absolute path -> text."""
    docs = PROJECT_FOLDER / "docs"
    return {
        docs / "experiment.schema.json": json.dumps(experiment_schema(), indent=1) + "\n",
        docs / "configs.md": configs_page(),
    }


def experiment_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of an experiment file.

    A file that extends another may leave out any key, so it is held against a copy of the schemas
    in which nothing is required.
    """
    definitions: dict[str, Any] = {}
    branches = []
    for task, model in EXPERIMENTS.items():
        schema = model.model_json_schema(by_alias=True)
        definitions.update(schema.pop("$defs", {}))
        definitions[model.__name__] = schema
        whole, part = model.__name__, f"{model.__name__}.part"
        branches.append(
            {
                "if": {"properties": {"task": {"const": task}}, "required": ["task"]},
                "then": {
                    "if": {"required": ["extends"]},
                    "then": {"$ref": f"#/$defs/{part}"},
                    "else": {"$ref": f"#/$defs/{whole}"},
                },
            }
        )
        schema["properties"]["extends"] = _EXTENDS
    parts = {f"{name}.part": _part(schema) for name, schema in definitions.items()}
    any_task = [{"$ref": f"#/$defs/{model.__name__}.part"} for model in EXPERIMENTS.values()]
    branches.append({"if": {"not": {"required": ["task"]}}, "then": {"anyOf": any_task}})
    tasks = {"task": {"enum": list(EXPERIMENTS), "description": "The vision task."}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Sightflow experiment",
        "type": "object",
        "properties": tasks,
        "anyOf": [{"required": ["task"]}, {"required": ["extends"]}],
        "allOf": branches,
        "$defs": {**definitions, **parts},
    }


def configs_page() -> str:
    """Return docs/configs.md."""
    lines = [_HEAD]
    by_task = {model: _sections_below(model) for model in EXPERIMENTS.values()}
    first, *others = by_task.values()
    shared = {
        section: places
        for section, places in first.items()
        if all(other.get(section) == places for other in others)
    }
    for task, model in EXPERIMENTS.items():
        lines.append(f"## `task: {task}`\n")
        lines += [f"{_docstring(model)}\n", *_table(model)]
        for section, places in by_task[model].items():
            lines += _section(section, places) if section not in shared else ()
    lines.append("## Every task\n")
    for section, places in shared.items():
        lines += _section(section, places)
    return "\n".join(lines).rstrip() + "\n"


def _part(schema: Mapping[str, Any]) -> Any:
    """Return a copy in which no key is required and several kinds may fit."""
    return _relaxed({key: value for key, value in schema.items() if key != "required"})


def _relaxed(node: Any) -> Any:
    if isinstance(node, list):
        return [_relaxed(item) for item in node]
    if not isinstance(node, dict):
        return node
    relaxed = {key: _relaxed(value) for key, value in node.items() if key != "discriminator"}
    if isinstance(relaxed.get("$ref"), str):
        relaxed["$ref"] += ".part"
    if "oneOf" in relaxed:
        relaxed["anyOf"] = relaxed.pop("oneOf")
    return relaxed


def _sections_below(model: sections.Model) -> dict[sections.Model, list[tuple[str, str]]]:
    """Return the sections of an experiment, each once, with (path, kind) of all places."""
    found: dict[sections.Model, list[tuple[str, str]]] = {}
    _sections_of(model, "", found)
    del found[model]
    return found


def _sections_of(
    annotation: Any, path: str, found: dict[sections.Model, list[tuple[str, str]]]
) -> None:
    """Gather the sections below, and their own."""
    models = sections.models_in(annotation)
    tag = sections.tag_key(models) if len(models) > 1 else None
    for model in models:
        is_new = model not in found
        found.setdefault(model, []).append((path, _kind(model, tag)))
        for key, field in sections.fields(model).items() if is_new else ():
            inner = f"{path}.{key}" if path else key
            _sections_of(field.annotation, inner, found)
            _sections_of(sections.below_list(field.annotation), f"{inner}[]", found)


def _kind(model: sections.Model, tag: str | None) -> str:
    if tag is None:
        return ""
    picked = sections.tags(model, tag)
    return f", `{tag}`: " + (f"`{picked[0]}`" if len(picked) == 1 else f"one of {len(picked)}")


def _section(model: sections.Model, places: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield a section's heading, what it is, and the table of its keys."""
    depth = places[0][0].count(".")
    paths = ", ".join(f"`{path}`" for path, _ in places)
    yield f"{'#' * (3 + min(depth, 2))} {paths}{places[0][1]}\n"
    yield f"{_docstring(model)}\n"
    yield from _table(model)


def _table(model: sections.Model) -> Iterator[str]:
    yield "| key | type | default | meaning |"
    yield "|---|---|---|---|"
    tag = sections.tag_key((model,))
    for key, field in sections.tag_first_fields(model).items():
        kind = _cell(_type(field.annotation) + _limits(field))
        if field.json_schema_extra == {"format": "path"}:
            kind = kind.replace("text", "path", 1)
        meaning = field.description or ("Picks this kind of section." if key == tag else "")
        yield f"| `{key}` | {kind} | {_default(field)} | {_cell(meaning)} |"
    yield ""


def _type(annotation: Any) -> str:
    """Say a type in words."""
    names = dict.fromkeys(_type_name(each) for each in sections.alternatives(annotation))
    models = sections.models_in(annotation)
    tag = sections.tag_key(models) if len(models) > 1 else None
    by_tag = f"section by `{tag}`" if tag else "section"
    return " or ".join(by_tag if name == "section" else name for name in names)


def _type_name(annotation: Any) -> str:
    if annotation is types.NoneType:
        return "null"
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(annotation))
    if get_origin(annotation) is tuple:
        entries = get_args(annotation)
        is_open = entries[-1] is Ellipsis
        return f"list of {'' if is_open else f'{len(entries)} x '}{_type(entries[0])}"
    if get_origin(annotation) is dict:
        return f"mapping of names to {_type(get_args(annotation)[1])}"
    return _TYPE_NAMES.get(annotation, "section")


def _limits(field: FieldInfo) -> str:
    limits = [
        f"{sign}{getattr(each, name):g}"
        for each in field.metadata
        for name, sign in _SIGNS.items()
        if hasattr(each, name)
    ]
    return f", {' and '.join(limits)}" if limits else ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    if sections.models_in(type(default)):
        default = default.model_dump(mode="json", exclude_defaults=True, by_alias=True)
        if not default:
            return "its defaults"
    return f"`{json.dumps(default)}`" if default != "" else '`""`'


def _docstring(model: sections.Model) -> str:
    return inspect.cleandoc(model.__doc__ or "")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


if __name__ == "__main__":
    main()
