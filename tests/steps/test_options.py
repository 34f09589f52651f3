"""Options that steps share, and what an error means for the exit code."""

from __future__ import annotations

import errno
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from engine.checkpoint import CheckpointError
from readers.records import DatasetError
from steps import options
from steps.experiment import DEFAULT_CONFIG, ConfigError, load


@options.step_command()
@options.config_option
@options.set_option
@options.device_option
@options.show_option
def step(config: str | None, overrides: str, device: str) -> None:
    """Do a step."""
    click.echo(f"{load(config, overrides).experiment.train.epochs} {device} {config}")


def run(*arguments: str):
    return CliRunner().invoke(step, arguments)


def test_empty_options_mean_not_given() -> None:
    result = run("--config", "", "--set", "", "--device", "")
    assert result.output == f"{load(None).experiment.train.epochs} auto None\n"


def test_show_prints_what_loads_to_the_same_experiment(tmp_path: Path) -> None:
    result = run("--show", "--set", "train.epochs=3")
    path = tmp_path / "shown.yaml"
    path.write_text(result.output)
    assert result.exit_code == options.DONE
    assert load(path).experiment == load(None, "train.epochs=3").experiment


def test_a_configuration_error_is_exit_code_2_and_one_line_per_problem() -> None:
    result = run("--set", "train.epochs=0 seed=-1")
    assert result.exit_code == options.USAGE
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "--set seed=-1: seed: -1 is not allowed: must be 0 or more",
        "--set train.epochs=0: train.epochs: 0 is not allowed: must be greater than 0",
    ]


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda", "cuda:0", "cuda:15"])
def test_devices_that_there_may_be_are_taken(device: str) -> None:
    assert f" {device} " in run("--device", device).output


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "0", "CPU"])
def test_other_devices_are_usage_errors(device: str) -> None:
    result = run("--device", device)
    assert result.exit_code == options.USAGE
    assert "is not one of auto, cpu, cuda, cuda:0" in result.stderr


class GateError(Exception):
    exit_code = options.GATE


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ConfigError("e.yaml:1: wrong"), 2, "e.yaml:1: wrong\n"),
        (DatasetError("labels.json: no images"), 1, "Error: labels.json: no images\n"),
        (FileNotFoundError(2, "No such file", "a.jpg"), 1, "Error: a.jpg: No such file\n"),
        (GateError("mAP is 0.1"), 3, "Error: mAP is 0.1\n"),
        (
            ValueError("train.freeze: no part is named 'x'"),
            2,
            "train.freeze: no part is named 'x'\n",
        ),
        (CheckpointError("c: cannot write"), 1, "Error: c: cannot write\n"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_expected_errors_are_one_sentence_and_an_exit_code(
    error: Exception, code: int, said: str
) -> None:
    @options.step_command()
    def failing() -> None:
        raise error

    result = CliRunner().invoke(failing, [])
    assert (result.exit_code, result.stderr) == (code, said)


@pytest.mark.parametrize("aside", ["[SQL: SELECT 1\nFROM x]", "(Background on this error at: y)"])
def test_a_database_error_is_told_without_its_statement(aside: str) -> None:
    @options.step_command()
    def failing() -> None:
        raise DatasetError(f"(sqlite3.OperationalError) database or disk is full\n{aside}\n")

    result = CliRunner().invoke(failing)
    assert result.stderr == "Error: (sqlite3.OperationalError) database or disk is full\n"


def test_divergence_is_exit_code_4_and_an_interruption_1() -> None:
    from engine.guard import TrainingDiverged
    from engine.interrupt import Interrupted

    assert issubclass(TrainingDiverged, Exception)
    assert options.exit_code_of(TrainingDiverged.__new__(TrainingDiverged)) == options.DIVERGED
    assert options.exit_code_of(Interrupted.__new__(Interrupted)) == options.FAILED


@pytest.mark.parametrize("name", sorted(options._EXIT_CODES))
def test_errors_that_are_known_by_name_exist(name: str) -> None:
    module, _, qualified = name.rpartition(".")
    imported = pytest.importorskip(module)
    assert issubclass(getattr(imported, qualified), Exception)


@pytest.mark.parametrize(
    "error", [KeyError("x"), OSError("no file"), ValueError("no"), AssertionError()]
)
def test_bugs_keep_their_traceback(error: Exception) -> None:
    @options.step_command()
    def failing() -> None:
        raise error

    assert CliRunner().invoke(failing, []).exception is error


def test_a_closed_pipe_is_left_to_click() -> None:
    assert options.exit_code_of(BrokenPipeError(errno.EPIPE, "broken", "out")) is None


def test_the_working_folder_lies_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIGHTFLOW_HOME", str(tmp_path))
    assert options.working_folder() == tmp_path
    monkeypatch.setenv("SIGHTFLOW_HOME", "")
    assert options.working_folder() == DEFAULT_CONFIG.parents[2] / ".sightflow"
