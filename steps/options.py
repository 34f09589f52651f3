"""What all steps' command lines share: options, exit codes, and errors told in one sentence.

A step is `@step_command()` over a function with options; see any `steps/*.py` with a `main`.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from steps.experiment import PROJECT_FOLDER, load
from steps.joined_run import tell_unopened_run
from steps.secrets import without_secrets

__all__ = [
    "DIVERGED",
    "DONE",
    "FAILED",
    "GATE",
    "PROJECT_FOLDER",
    "USAGE",
    "StepCommand",
    "config_option",
    "device_option",
    "exit_code_of",
    "set_option",
    "show_option",
    "step_command",
    "working_folder",
]

DONE = 0
FAILED = 1
USAGE = 2
GATE = 3
DIVERGED = 4

# errors of packages that know nothing of exit codes, by name: importing them would cost seconds
_EXIT_CODES = {
    "readers.records.DatasetError": FAILED,
    "models.weights.WeightsError": FAILED,
    "engine.weights.WeightsError": FAILED,
    "engine.checkpoint.CheckpointError": FAILED,
    "engine.interrupt.Interrupted": FAILED,
    "engine.guard.TrainingDiverged": DIVERGED,
    "mlflow.exceptions.MlflowException": FAILED,
}
# how a value that only the network or the data can refuse is told: its key, then the sentence
_KEYED = re.compile(r"(train|model|data|evaluate|resume)(\.\w+)*: ")
_SQL_ASIDES = re.compile(r"\s*\n(?:\[SQL: |\(Background on this error at: )")
_DEVICE = re.compile(r"auto|cpu|cuda(?::[0-9]+)?")

logger = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])


class StepCommand(click.Command):
    """A step's command: expected errors become one sentence and an exit code, bugs a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the step, or print the resolved experiment if `--show` is given."""
        # read when torch is imported: threads that spin while they wait make a training several
        # times slower as soon as anything else wants the cores
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        # read when OpenCV is imported: should a header lie, its decoders have a limit as well
        os.environ.setdefault("OPENCV_IO_MAX_IMAGE_PIXELS", str(2**28))
        if os.environ.get("MLFLOW_RUN_ID"):
            # until the run is opened and takes over, nobody else would end it
            signal.signal(signal.SIGTERM, _end_unopened_run)
        try:
            if ctx.params.pop("show", False):
                click.echo(load(ctx.params["config"], ctx.params["overrides"]).text, nl=False)
                return None
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            code = exit_code_of(error)
            if code is None:
                tell_unopened_run(_sentence(error), exit_code=FAILED)
                raise
            logger.debug("the step ends with exit code %d", code, exc_info=True)
            # configuration problems are printed bare, so that editors find file and line
            sentence = _sentence(error) if code == USAGE else f"Error: {_sentence(error)}"
            click.echo(sentence, err=True)
            # after the answer, since it may have to import mlflow first
            tell_unopened_run(_sentence(error), exit_code=code)
            ctx.exit(code)


def _end_unopened_run(number: int, frame: Any) -> None:
    signal.signal(number, signal.SIG_IGN)
    tell_unopened_run("interrupted by SIGTERM before it began", exit_code=FAILED, status="KILLED")
    raise SystemExit(128 + number)


def step_command(**attributes: Any) -> Callable[[Callable[..., Any]], StepCommand]:
    """Return the decorator that makes a step's command of a function.

    Args:
        attributes: what `click.command` takes.
    """
    return click.command(cls=StepCommand, **attributes)


def config_option(function: F) -> F:
    """Add `--config`, as `config: str | None`."""
    return click.option(
        "--config",
        default="",
        metavar="FILE",
        callback=_none_if_empty,
        help="The experiment's YAML file. Default: configs/detection/quickstart.yaml.",
    )(function)


def set_option(function: F) -> F:
    """Add `--set`, as `overrides: str`."""
    return click.option(
        "--set",
        "overrides",
        default="",
        metavar="KEY=VALUE ...",
        help='Values in place of the file\'s: "train.epochs=3 train.optimizer.lr=0.01".',
    )(function)


def device_option(function: F) -> F:
    """Add `--device`, as `device: str`: auto, cpu, cuda or cuda:N."""
    return click.option(
        "--device",
        default="auto",
        metavar="DEVICE",
        callback=_device,
        show_default=True,
        help="auto (CUDA where there is one), cpu, cuda or cuda:N.",
    )(function)


def show_option(function: F) -> F:
    """Add `--show`; the function takes no argument for it. Goes with `--config` and `--set`."""
    return click.option(
        "--show", is_flag=True, help="Print the resolved experiment and do nothing else."
    )(function)


def working_folder() -> Path:
    """Return where spools, checkpoints and indexes lie: SIGHTFLOW_HOME, else .sightflow here."""
    home = os.environ.get("SIGHTFLOW_HOME", "")
    return Path(home).expanduser().absolute() if home else PROJECT_FOLDER / ".sightflow"


def exit_code_of(error: BaseException) -> int | None:
    """Return the exit code that an error stands for; None for one that nobody expects.

    An error may carry it as `exit_code`. Otherwise the known ones go by name. An OSError about a
    file and a ValueError that begins with a configuration key are the user's to mend.
    """
    code = getattr(error, "exit_code", None)
    if isinstance(code, int):
        return code
    for base in type(error).__mro__:
        code = _EXIT_CODES.get(f"{base.__module__}.{base.__qualname__}")
        if code is not None:
            return code
    if isinstance(error, ValueError) and _KEYED.match(str(error)):
        return USAGE
    if isinstance(error, OSError) and error.filename is not None and error.errno != errno.EPIPE:
        return FAILED
    return None


def _sentence(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    # the statement and the link that SQLAlchemy adds to its errors help nobody who runs a step
    text = _SQL_ASIDES.split(str(error))[0] or type(error).__name__
    return without_secrets(text)  # MLflow's errors name the server with user and password


def _none_if_empty(ctx: click.Context, parameter: click.Parameter, value: str) -> str | None:
    return value or None


def _device(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    device = value or "auto"
    if not _DEVICE.fullmatch(device):
        raise click.BadParameter(f"{value!r} is not one of auto, cpu, cuda, cuda:0, cuda:1, ...")
    return device
