"""How a run ends: which status, for what reason, and that it does end."""

from __future__ import annotations

import atexit
import logging
import os
import traceback
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from engine.interrupt import Interrupted
from steps.delivery import now_ms
from steps.options import exit_code_of
from steps.run_log import MlflowRunLog
from steps.secrets import without_secrets
from steps.spool import clear_status, write_status

if TYPE_CHECKING:
    from steps.run_handle import RunHandle

logger = logging.getLogger(__name__)

# a diverged training names its samples by path; the store takes 8000
_LONGEST_REASON = 4000


@dataclass(frozen=True)
class Ending:
    """How a run ended.

    Args:
        status: MLflow's word: FINISHED, FAILED or KILLED.
        reason: one line; empty if FINISHED.
        details: the traceback of an error that nobody expected.
        exit_code: the process's exit code, where the error has one.
    """

    status: str
    reason: str
    details: str = ""
    exit_code: int | None = None

    @staticmethod
    def of(error: BaseException, *, is_interrupted: bool) -> Ending:
        """Return what an exception that leaves the run's block means for the run."""
        if isinstance(error, Interrupted):
            return Ending("KILLED", str(error))
        if isinstance(error, (KeyboardInterrupt, click.Abort)) or is_interrupted:
            return Ending("KILLED", "interrupted")
        code = _exit_status(error)
        if code is not None:
            return Ending("FAILED", f"exit code {code}") if code else Ending("FINISHED", "")
        if (code := exit_code_of(error)) is not None:
            return Ending("FAILED", _reason(error), exit_code=code)
        return Ending("FAILED", _reason(error), "".join(traceback.format_exception(error)))

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
    is_sent = False
    try:
        is_sent = _send_rest(handle, log, ending)
    except OSError as error:  # a full disk must not hide why the run ended
        logger.warning("the end of the run log could not be written: %s", error)
    if _end_in_store(ending.status):
        clear_status(log.folder)
    if not is_sent:
        num_points, num_files = log.unsent()
        logger.warning(
            "%d points and %d files could not be sent and wait in %s; send them with: "
            "python -m steps.sync --run %s",
            num_points,
            num_files,
            log.folder,
            handle.run_id,
        )


def _send_rest(handle: RunHandle, log: MlflowRunLog, ending: Ending) -> bool:
    if ending.reason:
        handle.tag("failure", ending.reason)
    if ending.exit_code is not None:
        handle.tag("exit_code", str(ending.exit_code))  # MLflow Projects knows only 0 and 1
    handle.publish_description(ending)
    # before anything that takes time: whatever comes now, `sync` knows how the run ended
    write_status(log.folder, status=ending.status, end_time=now_ms())
    if ending.details:
        handle.content(ending.details, "traceback.txt")
    timeout_s, patience_s = ending.limits_s
    return log.finish(timeout_s, patience_s=patience_s)


def _end_in_store(status: str) -> bool:
    """End MLflow's active run; return whether the store took it."""
    import mlflow

    limits = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
    before = {name: os.environ.get(name) for name in limits}
    os.environ.update(limits)
    try:
        mlflow.end_run(status)
    except Exception as error:  # the reason of the end must not be hidden by this one
        logger.warning("the run's status could not be set: %s", without_secrets(str(error)))
        return False
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value
    return True


def _exit_status(error: BaseException) -> int | None:
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
    is_expected = exit_code_of(error) is not None
    text = lines[0] if is_expected else f"{type(error).__name__}: {lines[0]}"
    return text[:_LONGEST_REASON]
