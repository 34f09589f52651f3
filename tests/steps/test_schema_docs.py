"""The generated pages: fresh, and true."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest

from engine import config as engine_config
from steps import sections
from steps.experiment import EXPERIMENTS, PROJECT_FOLDER
from steps.schema_docs import experiment_schema, pages
from steps.yaml_source import read_file, values

CONFIGS = sorted((PROJECT_FOLDER / "configs").rglob("*.yaml"))


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    schema = experiment_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize(("path", "text"), pages().items(), ids=lambda value: Path(value).name[:30])
def test_the_committed_page_is_fresh(path: Path, text: str) -> None:
    assert path.read_text(encoding="utf-8") == text, "stale: run python -m steps.schema_docs"


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_shipped_configs_meet_the_json_schema(
    path: Path, validator: jsonschema.Draft202012Validator
) -> None:
    validator.validate(values(read_file(path, source=path.name)))


def whole() -> dict[str, Any]:
    path = PROJECT_FOLDER / "configs" / "detection" / "quickstart.yaml"
    return values(read_file(path, source="quickstart.yaml"))


@pytest.mark.parametrize(
    ("changes", "is_right"),
    [
        ({}, True),
        ({"task": "tracking"}, False),
        ({"sede": 1}, False),
        ({"seed": -1}, False),
        ({"train": {"epochs": 3}}, False),
        ({"train": {"epochs": 3}, "extends": "a.yaml"}, True),
        ({"train": {"epoch": 3}, "extends": "a.yaml"}, False),
        ({"train": {"optimizer": {"lr": 3}}, "extends": "a.yaml"}, True),
        ({"train": {"optimizer": {"name": "adan"}}, "extends": "a.yaml"}, False),
    ],
)
def test_the_json_schema_finds_what_is_wrong(
    validator: jsonschema.Draft202012Validator, changes: dict[str, Any], is_right: bool
) -> None:
    assert validator.is_valid({**whole(), **changes}) == is_right


def test_a_file_that_extends_may_leave_out_everything_else(
    validator: jsonschema.Draft202012Validator,
) -> None:
    assert validator.is_valid({"extends": "a.yaml"})
    assert not validator.is_valid({"name": "x"})
    assert not validator.is_valid({"extends": "a.yaml", "trian": {}})


def test_every_key_of_the_schemas_is_on_the_page() -> None:
    page = (PROJECT_FOLDER / "docs" / "configs.md").read_text(encoding="utf-8")
    for model in EXPERIMENTS.values():
        keys = {path[-1] for path in sections.paths(model)}
        assert [key for key in sorted(keys) if f"| `{key}` |" not in page] == []


@pytest.mark.parametrize(
    ("annotation", "key", "choices"),
    [
        (engine_config.OptimizerConfig, "name", ("sgd", "adam", "adamw")),
        (engine_config.WarmupConfig | None, "name", ("linear", "stepped")),
        (engine_config.EmaConfig, None, ()),
        (float | None, None, ()),
    ],
)
def test_the_key_that_picks_a_kind_is_found(
    annotation: Any, key: str | None, choices: tuple[str, ...]
) -> None:
    models = sections.models_in(annotation)
    assert (sections.tag_key(models), sections.choices(models)) == (key, choices)
