"""conda.yaml pins what pyproject.toml allows."""

import re
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]


def _pins():
    sections = yaml.safe_load((ROOT / "conda.yaml").read_text())["dependencies"]
    (pip,) = [section["pip"] for section in sections if isinstance(section, dict)]
    return sections, dict(line.split("==") for line in pip)


def _ranges():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project, {r.name: r.specifier for r in map(Requirement, project["dependencies"])}


def test_same_libraries_in_both_files():
    assert set(_pins()[1]) == set(_ranges()[1])


def test_each_pin_lies_in_its_range():
    _, pins = _pins()
    _, ranges = _ranges()
    outside = {name: pin for name, pin in pins.items() if Version(pin) not in ranges[name]}
    assert not outside


def test_python_is_pinned_to_one_patch_release_in_range():
    sections, _ = _pins()
    (python,) = [s for s in sections if isinstance(s, str) and s.startswith("python")]
    assert re.fullmatch(r"python=3\.\d+\.\d+", python)
    project, _ = _ranges()
    assert Version(python.split("=")[1]) in Requirement(f"x{project['requires-python']}").specifier


def test_everything_but_python_and_pip_stands_in_the_pip_section():
    sections, _ = _pins()
    names = {s.split("=")[0] for s in sections if isinstance(s, str)}
    assert names == {"python", "pip"}


def test_mlflow_reads_the_whole_environment_for_virtualenv_and_uv():
    from mlflow.utils.environment import _PythonEnv

    read = _PythonEnv.from_conda_yaml(str(ROOT / "conda.yaml"))
    sections, pins = _pins()
    assert f"python={read.python}" in sections
    assert read.build_dependencies == ["pip"]
    assert read.dependencies == [f"{name}=={pin}" for name, pin in pins.items()]
