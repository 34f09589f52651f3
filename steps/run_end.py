"""How a run ends: which status, for what reason, and that it does end."""

from __future__ import annotations

import atexit
import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from engine.interrupt import Interrupted
from steps.delivery import now_ms
from steps.options import exit_code_of
from steps.run_log import MlflowRunLog
from steps.spool import clear_status, write_status

if TYPE_CHECKING:
    from steps.runs import RunHandle

logger = logging.getLogger(__name__)

_LONGEST_REASON = 500


@dataclass(frozen=True)
class Ending:
    """How a run ended.

    Args:
        status: MLflow's word: FINISHED, FAILED or KILLED.
        reason: one line; empty if FINISHED.
    """

    status: str
    reason: str

    @staticmethod
    def of(error: BaseException, *, is_interrupted: bool) -> Ending:
        """Return what an exception that leaves the run's block means for the run."""
        if isinstance(error, Interrupted):
            return Ending("KILLED", str(error))
        if isinstance(error, (KeyboardInterrupt, click.Abort)) or is_interrupted:
            return Ending("KILLED", "interrupted")
        code = _exit_code(error)
        if code is not None:
            return Ending("FAILED", f"exit code {code}") if code else Ending("FINISHED", "")
        return Ending("FAILED", _reason(error))

    @property
    def limits_s(self) -> tuple[float, float]:
        """Longest wait for sending the rest, and for a store that does not answer."""
        # who sent the signal will not wait long: 30 s are usual before SIGKILL
        return (15.0, 5.0) if self.status == "KILLED" else (600.0, 15.0)


class AtExit:
    """Ends a run once: when its block ends, or, failing that, when the process does.

    Args:
        handle: the open run.
    """

    def __init__(self, handle: RunHandle) -> None:
        self._handle = handle
        self._process = os.getpid()
        self._is_finished = False
        atexit.register(self._net)

    def finish(self, ending: Ending) -> None:
        """Send what is left, set the status, and say what could not be sent. Never raises."""
        self._is_finished = True
        atexit.unregister(self._net)
        # a signal changes nothing any more: the run is already ending
        with suppress(Interrupted), self._handle.interruption.deferred():
            _finish(self._handle, ending)

    def _net(self) -> None:
        if not self._is_finished and os.getpid() == self._process:
            self.finish(Ending("FAILED", "the process ended within the run"))


def _finish(handle: RunHandle, ending: Ending) -> None:
    log = handle.log
    assert isinstance(log, MlflowRunLog)
    assert handle.identity is not None
    if ending.reason:
        handle.tag("failure", ending.reason)
    handle.publish_description(ending)
    folder = log.folder
    write_status(folder, status=ending.status, end_time=now_ms())
    timeout_s, patience_s = ending.limits_s
    is_sent = log.finish(timeout_s, patience_s=patience_s)
    if _end_in_store(ending.status):
        clear_status(folder)
    elif is_sent:
        logger.warning("the status %s could not be set", ending.status)
    if not is_sent:
        num_points, num_files = log.unsent()
        logger.warning(
            "%d points and %d files could not be sent and wait in %s; send them with: "
            "python -m steps.sync --run %s",
            num_points,
            num_files,
            folder,
            handle.run_id,
        )


def _end_in_store(status: str) -> bool:
    """End MLflow's active run; return whether the store took it."""
    import mlflow

    limits = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
    before = {name: os.environ.get(name) for name in limits}
    os.environ.update(limits)
    try:
        mlflow.end_run(status)
    except Exception as error:  # the reason of the end must not be hidden by this one
        logger.warning("the run's status could not be set: %s", error)
        return False
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value
    return True


def _exit_code(error: BaseException) -> int | None:
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    return None


def _reason(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    # expected errors are whole sentences
    text = lines[0] if exit_code_of(error) is not None else f"{type(error).__name__}: {lines[0]}"
    return text[:_LONGEST_REASON]
