"""Ending a run by SIGTERM or Ctrl-C without tearing an update apart."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interrupted(Exception):  # noqa: N818  (an order, not an error)
    """The run was asked to end by a signal.

    Args:
        signal_name: `SIGTERM` or `SIGINT`.
    """

    exit_code = 1

    def __init__(self, signal_name: str) -> None:
        super().__init__(f"interrupted by {signal_name}")
        self.signal_name = signal_name


class Interruption:
    """Turns the first SIGTERM or SIGINT into an `Interrupted`; later ones change nothing.

    The exception is raised at once, so that waiting for data or evaluating ends quickly, except
    within `deferred()`, where it waits for the block's end. A signal that some library swallowed is
    raised again at the end of the next deferred block.
    """

    def __init__(self) -> None:
        self._signal_name: str | None = None
        self._depth = 0
        self._process = os.getpid()
        self._previous: dict[signal.Signals, Any] = {}

    def install(self) -> None:
        """Handle SIGTERM and SIGINT from now on; only the main thread can do this."""
        self._process = os.getpid()
        for number in SIGNALS:
            self._previous[number] = signal.signal(number, self._handle)

    def uninstall(self) -> None:
        """Put the handlers back that `install` found."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    @property
    def is_requested(self) -> bool:
        """Whether a signal has come."""
        return self._signal_name is not None

    @property
    def signal_name(self) -> str | None:
        """The signal that has come, or None."""
        return self._signal_name

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Keep a signal back until the block has ended."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        if self._depth == 0 and self._signal_name is not None:
            raise Interrupted(self._signal_name)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            _handle_in_child(number)
            return
        if self._signal_name is not None:
            return
        self._signal_name = signal.Signals(number).name
        if self._depth == 0:
            raise Interrupted(self._signal_name)


@contextmanager
def signals_held_back() -> Iterator[None]:
    """Let handlers of SIGTERM and SIGINT run only when the block has ended, whoever set them.

    For calls into libraries that swallow what a handler raises, or turn it into another error.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers run in the main thread only
        return
    process, came = os.getpid(), []
    previous = {number: signal.getsignal(number) for number in SIGNALS}
    known = {number: handler for number, handler in previous.items() if handler is not None}
    for number in known:
        signal.signal(number, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        for number, handler in known.items():
            signal.signal(number, handler)
        if came and os.getpid() == process:
            signal.raise_signal(came[0])


def _handle_in_child(number: int) -> None:
    """A forked loader inherits the handler: Ctrl-C is its parent's matter, SIGTERM ends it."""
    if number == signal.SIGTERM:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
