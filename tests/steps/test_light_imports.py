"""Help and configuration errors must come at once: nothing heavy may be imported for them."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
HEAVY = ("torch", "torchvision", "mlflow", "cv2", "pandas", "pyarrow", "matplotlib")

RUN = """
import importlib, sys
from click.testing import CliRunner
command = importlib.import_module(sys.argv[1]).main
result = CliRunner().invoke(command, sys.argv[2:])
print(result.exit_code, *sorted(set({heavy}) & set(sys.modules)))
sys.stderr.write(result.output)
"""


def step_modules() -> list[str]:
    """Return the modules under steps/ that define a Click command `main`."""
    found = []
    for path in sorted((REPOSITORY / "steps").glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        if any(function.name == "main" and function.decorator_list for function in functions):
            found.append(f"steps.{path.stem}")
    return found


def takes(module: str, option: str) -> bool:
    source = (REPOSITORY / module.replace(".", "/")).with_suffix(".py").read_text(encoding="utf-8")
    return option in source


def in_new_process(code: str, *arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("module", step_modules())
def test_help_imports_nothing_heavy(module: str) -> None:
    assert in_new_process(RUN.format(heavy=HEAVY), module, "--help") == ["0"]


@pytest.mark.parametrize("module", [m for m in step_modules() if takes(m, "set_option")])
def test_a_configuration_error_imports_nothing_heavy(module: str) -> None:
    arguments = ("--config", "", "--set", "train.epochs=-1")
    assert in_new_process(RUN.format(heavy=HEAVY), module, *arguments) == ["2"]


def test_loading_an_experiment_imports_nothing_heavy() -> None:
    code = f"""
import sys
from steps import options
options.load(None)
print(*sorted(set({HEAVY}) & set(sys.modules)))
"""
    assert in_new_process(code) == []
