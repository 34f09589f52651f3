"""The threads behind a run log: one sends from its spools, one writes to them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from steps.delivery import Delivery, StoreAwayError

logger = logging.getLogger(__name__)

SEND_EVERY_S = 2.0
# waits between two tries while the store is away double up to this
LONGEST_WAIT_S = 15.0


class Sender:
    """The thread that sends from spools, and keeps trying while the store is away.

    Args:
        deliveries: in the order of sending.
    """

    def __init__(self, deliveries: Sequence[Delivery]) -> None:
        self._deliveries = deliveries
        self._condition = threading.Condition()
        self._is_woken = False
        self._is_stopping = False
        self._is_hurried = False
        self._away_since: float | None = None
        self._wait_s = SEND_EVERY_S
        self._thread = threading.Thread(target=self._run, name="run-log-sender", daemon=True)

    def start(self) -> None:
        """Start sending."""
        self._thread.start()

    def wake(self) -> None:
        """Have the next try at once."""
        with self._condition:
            self._is_woken = True
            self._condition.notify_all()

    def stop(self) -> None:
        """End the thread, after the call it is in; do not wait for that call."""
        with self._condition:
            self._is_stopping = True
            self._condition.notify_all()
        self._thread.join(timeout=0.5)

    def wait(self, timeout_s: float, *, patience_s: float) -> bool:
        """Send all there is; return whether it was taken within the limits."""
        deadline = time.monotonic() + timeout_s
        patience_end = time.monotonic() + patience_s
        self._is_hurried = True
        self.wake()
        with self._condition:
            while not self._is_done():
                now = time.monotonic()
                is_hopeless = self._away_since is not None and now > patience_end
                if now > deadline or is_hopeless or not self._thread.is_alive():
                    break
                self._condition.wait(0.2)
        self._is_hurried = False
        return self._is_done()

    def _is_done(self) -> bool:
        return all(delivery.is_done() for delivery in self._deliveries)

    def _run(self) -> None:
        while not self._is_stopping:
            with self._condition:
                if not self._is_woken:
                    self._condition.wait(self._wait_s)
                self._is_woken = False
            try:
                has_sent = self._send()
            except StoreAwayError as error:
                self._note_away(error)
            else:
                # neither sent nor done: what waits was refused a moment ago
                if has_sent or self._is_done():
                    self._note_back()
            with self._condition:
                self._condition.notify_all()

    def _send(self) -> bool:
        has_sent = False
        for delivery in self._deliveries:
            has_sent |= delivery.send_records()
        for delivery in self._deliveries:
            while not self._is_stopping and delivery.send_file(
                now=None if self._is_hurried else time.time()
            ):
                has_sent = True
                # a queue of files does not keep the points back
                delivery.send_records()
        return has_sent

    def _note_away(self, error: StoreAwayError) -> None:
        if self._away_since is None:
            self._away_since = time.monotonic()
            self._wait_s = 1.0
            logger.warning("not sent, the run goes on and tries again: %s", error)
        self._wait_s = min(2 * self._wait_s, 1.0 if self._is_hurried else LONGEST_WAIT_S)

    def _note_back(self) -> None:
        if self._away_since is not None:
            away_s = time.monotonic() - self._away_since
            logger.warning("the tracking store takes everything again, after %.0f s", away_s)
            self._away_since = None
        self._wait_s = 0.2 if self._is_hurried else SEND_EVERY_S


class Repeat:
    """A daemon thread that calls a function again and again.

    Args:
        name: the thread's name.
        function: what is called; a failing disk is tolerated.
        every_s: seconds between two calls.
    """

    def __init__(self, name: str, function: Callable[[], None], *, every_s: float) -> None:
        self._function = function
        self._every_s = every_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for its last call."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s):
            try:
                self._function()
            except OSError as error:  # a full disk; the records stay in memory
                logger.warning("run log cannot be written: %s", error)
