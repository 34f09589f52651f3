"""What the schemas say of a section: its keys, its kinds, and the key that picks among them.

Everything is read from the annotations of the pydantic models, so a new kind in a schema needs
nothing here.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

Model = type[BaseModel]


def alternatives(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union (also inside of Annotated), or the one annotation."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return alternatives(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return tuple(each for member in get_args(annotation) for each in alternatives(member))
    return (annotation,)


def models_in(annotation: Any) -> tuple[Model, ...]:
    """Return the schemas that an annotation allows, in its order."""
    return tuple(
        each
        for each in alternatives(annotation)
        if isinstance(each, type) and issubclass(each, BaseModel)
    )


def tag_key(models: tuple[Model, ...]) -> str | None:
    """Return the key that tells kinds apart (`name`, `format`, `preset`, `task`), if there is one.

    It is the first field that every kind has as a required literal.
    """
    if not models:
        return None
    for key, field in models[0].model_fields.items():
        if field.is_required() and all(_is_literal(model, key) for model in models):
            return key
    return None


def tags(model: Model, key: str) -> tuple[str, ...]:
    """Return the values of the tag key that pick this kind."""
    return tuple(get_args(model.model_fields[key].annotation))


def choices(models: tuple[Model, ...]) -> tuple[str, ...]:
    """Return all values of the tag key."""
    key = tag_key(models)
    return tuple(tag for model in models for tag in tags(model, key)) if key else ()


def choose(annotation: Any, section: Any) -> Model | None:
    """Return the kind that the values of a section ask for; None if they ask for none."""
    models = models_in(annotation)
    if len(models) == 1:
        return models[0]
    key = tag_key(models)
    if key is None or not isinstance(section, Mapping):
        return None
    return next((model for model in models if section.get(key) in tags(model, key)), None)


def fields(model: Model) -> dict[str, FieldInfo]:
    """Return the fields by YAML key."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def tag_first_fields(model: Model) -> dict[str, FieldInfo]:
    """Return the fields by YAML key; the one that picks this kind among others comes first."""
    by_key = fields(model)
    key = tag_key((model,))
    return {key: by_key[key], **by_key} if key else by_key


def below(annotation: Any, section: Any, key: str | int) -> Any:
    """Return the annotation of an entry of a section or list; None where there is none."""
    if isinstance(key, int):
        return below_list(annotation, key)
    model = choose(annotation, section)
    if model is not None:
        field = fields(model).get(key)
        return field.annotation if field else None
    tables = [get_args(each) for each in alternatives(annotation) if get_origin(each) is dict]
    return tables[0][1] if tables else None


def below_list(annotation: Any, index: int = 0) -> Any:
    """Return the annotation of a list's entry; None where there is none."""
    for each in alternatives(annotation):
        if get_origin(each) is tuple:
            entries = get_args(each)
            if len(entries) == 2 and entries[1] is Ellipsis:
                return entries[0]
            return entries[index] if index < len(entries) else None
    return None


def field_at(annotation: Any, section: Any, key: str) -> FieldInfo | None:
    """Return the field behind a key of a section, if the section is of a known kind."""
    model = choose(annotation, section)
    return fields(model).get(key) if model else None


def paths(annotation: Any, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the key paths of all kinds, lists left out."""
    for model in models_in(annotation):
        for key, field in fields(model).items():
            yield (*prefix, key)
            yield from paths(field.annotation, (*prefix, key))


def tag_first(annotation: Any, tree: Any) -> Any:
    """Return the values of a section in reading order: the key that picks its kind comes first."""
    if isinstance(tree, list):
        return [tag_first(below(annotation, None, i), item) for i, item in enumerate(tree)]
    if not isinstance(tree, dict):
        return tree
    models = models_in(annotation)
    key = tag_key(models) if len(models) > 1 else None
    ordered = {key: tree[key], **tree} if key in tree else tree
    return {k: tag_first(below(annotation, tree, k), value) for k, value in ordered.items()}


def _is_literal(model: Model, key: str) -> bool:
    field = model.model_fields.get(key)
    return field is not None and get_origin(field.annotation) is Literal
