"""MLproject and the commands say the same."""

import importlib
import re
from pathlib import Path

import click
import pytest
import yaml

ROOT = Path(__file__).parents[2]
ENTRY_POINTS = yaml.safe_load((ROOT / "MLproject").read_text())["entry_points"]
CONFIG_KEYS = {"name", "task", "seed", "data", "model", "train", "evaluate", "register", "compat"}


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_every_parameter_has_a_default_and_reaches_its_option(name):
    entry = ENTRY_POINTS[name]
    parameters = entry["parameters"]
    assert all("default" in spec and spec["default"] is not None for spec in parameters.values())
    passed = dict(re.findall(r"--([a-z-]+) \{([a-z_]+)\}", entry["command"]))
    assert {option.replace("-", "_") for option in passed} == set(parameters)
    assert set(passed.values()) == set(parameters)


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_command_has_the_options_that_mlproject_passes(name):
    entry = ENTRY_POINTS[name]
    module = f"steps.{name.replace('-', '_')}"
    assert entry["command"].startswith(f"python -m {module} ")
    command = importlib.import_module(module).main
    assert isinstance(command, click.Command)
    options = {flag for parameter in command.params for flag in parameter.opts}
    assert {f"--{key.replace('_', '-')}" for key in entry["parameters"]} <= options


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_no_quote_stands_around_a_parameter(name):
    assert not re.search(r"['\"`]", ENTRY_POINTS[name]["command"])


def test_no_parameter_bears_the_name_of_a_configuration_key():
    names = {key for entry in ENTRY_POINTS.values() for key in entry["parameters"]}
    assert not names & CONFIG_KEYS


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_every_option_has_help(name):
    command = importlib.import_module(f"steps.{name.replace('-', '_')}").main
    assert command.help
    assert all(getattr(parameter, "help", None) for parameter in command.params)
