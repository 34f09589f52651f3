"""The rules of the tree: who imports whom, who imports which library, and what files are called."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
LAYERS = ("engine", "models", "readers", "steps", "tasks")
MODULES = sorted(path for layer in LAYERS for path in (REPOSITORY / layer).rglob("*.py"))

# layer -> modules of ours that it may import from other layers
ALLOWED = {
    "engine": (),
    "models": (),
    "readers": (),
    "tasks": ("models", "readers", "engine.contract", "engine.distributed", "engine.seeding"),
    "steps": ("tasks", "engine", "models", "readers"),
}
# library -> modules that may import it
OWNERS = {
    "click": ("steps.",),
    "mlflow": ("steps.",),
    "yaml": ("steps.", "readers.yolo", "readers.plain_yaml"),
    "pydantic": ("steps.", ".config"),
    "pyarrow": ("steps.", "readers.index", "readers.arrow_index", "readers.lane_index"),
    "torch": ("engine.", "models.", "tasks.", "steps."),
    "torchvision": ("models.", "tasks.", "steps."),
}
FORBIDDEN_NAMES = ("utils", "misc", "common", "helpers", "datasets")


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the full name of everything that a module imports, at any depth."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


def is_within(name: str, allowed: str) -> bool:
    return name == allowed or name.startswith(f"{allowed}.")


def may_use(module: str, owner: str) -> bool:
    return module.endswith(owner) if owner.startswith(".") else module.startswith(owner)


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_imports_run_one_way(path: Path) -> None:
    own = module_name(path).split(".")[0]
    wrong = [
        f"{module_name(path)}:{line} imports {name}"
        for line, name in imports_of(path)
        if name.split(".")[0] in LAYERS
        and not is_within(name, own)
        and not any(is_within(name, allowed) for allowed in ALLOWED[own])
    ]
    assert not wrong


def test_tasks_never_import_each_other() -> None:
    tasks = [path.name for path in (REPOSITORY / "tasks").iterdir() if path.is_dir()]
    for path in (REPOSITORY / "tasks").rglob("*.py"):
        own = path.relative_to(REPOSITORY / "tasks").parts[0]
        others = [f"tasks.{task}" for task in tasks if task != own]
        for line, name in imports_of(path):
            # the catalogue imports a task when its name is asked for
            if own in tasks:
                assert not any(is_within(name, other) for other in others), f"{path}:{line}: {name}"


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_libraries_are_imported_by_their_owners_only(path: Path) -> None:
    module = module_name(path)
    wrong = [
        f"{module}:{line} imports {name}"
        for line, name in imports_of(path)
        for library, owners in OWNERS.items()
        if is_within(name, library) and not any(may_use(module, owner) for owner in owners)
    ]
    assert not wrong


def test_no_drawer_for_everything() -> None:
    folders = [*LAYERS, "benchmarks", "tests", "configs", "docs"]
    paths = [path for folder in folders for path in (REPOSITORY / folder).rglob("*")]
    wrong = [path for path in paths if path.stem in FORBIDDEN_NAMES]
    assert not wrong


def test_package_inits_stay_empty() -> None:
    inits = [path for layer in LAYERS for path in (REPOSITORY / layer).rglob("__init__.py")]
    assert [path for path in inits if path.stat().st_size] == []
    assert len(inits) >= len(LAYERS)
