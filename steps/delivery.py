"""Sending what a spool holds to the run it belongs to, once and whole.

Every call can be repeated without a trace: points keep their timestamps (an equal point is one
row), tags and files are overwritten, an equal param is accepted. Used by the run log's background
thread and by `sync`.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from steps.secrets import without_secrets
from steps.spool import Record, Spool, clear_status, read_status

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from steps.file_queue import FileQueue, QueuedFile

logger = logging.getLogger(__name__)

_LONGEST_ASIDE_S = 60.0
_REFUSED = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST")


class StoreAwayError(Exception):
    """The tracking store did not take a call; the same call may do later."""


class Delivery:
    """Sends one spool's records and files.

    Args:
        run_id: the run they go to.
        spool: open for writing by this process.
        files: the queue in the spool's folder.
        client: its tracking URI is the run's.
    """

    def __init__(self, run_id: str, spool: Spool, files: FileQueue, client: MlflowClient) -> None:
        self.run_id = run_id
        self.spool = spool
        self.files = files
        self._client = client
        self._failures: dict[int, tuple[int, float]] = {}
        self.num_refused = 0

    def send_records(self) -> bool:
        """Send every written record; return whether there were any.

        Raises:
            StoreAwayError: if the store does not answer; what was taken so far is acknowledged.
        """
        has_sent = False
        while (chunk := self.spool.unsent()).records:
            self._send(chunk.records)
            self.spool.acknowledge(chunk)
            has_sent = True
        return has_sent

    def send_file(self, *, now: float | None) -> bool:
        """Send the next file that is due; return False if there is none.

        Args:
            now: seconds since 1970; None sends also what may wait for a newer version.

        Raises:
            StoreAwayError: if the store does not take it.
        """
        entry = self.files.next(now=now, skip=self._aside())
        if entry is None:
            return False
        try:
            self._client.log_artifact(self.run_id, str(entry.local), entry.artifact_folder)
        except Exception as error:
            self.files.release(entry)
            self._put_aside(entry)
            raise StoreAwayError(f"{entry.artifact}: {_one_line(error)}") from error
        self.files.done(entry)
        return True

    def send_status(self) -> None:
        """Set the status that waits, if one does.

        Raises:
            StoreAwayError: if the store does not answer.
        """
        waiting = read_status(self.spool.folder)
        if not waiting:
            return
        try:
            self._client.set_terminated(self.run_id, waiting["status"], waiting["end_time"])
        except Exception as error:
            raise StoreAwayError(_one_line(error)) from error
        clear_status(self.spool.folder)

    def is_done(self) -> bool:
        """Whether the store has every record and file."""
        return not self.spool.has_unsent and not self.files.pending()

    @property
    def num_aside(self) -> int:
        """How many files were refused lately."""
        return len(self._aside())

    def _aside(self) -> set[int]:
        """Return the entries that were refused lately: others get their turn first."""
        now = time.monotonic()
        return {number for number, (_, until) in self._failures.items() if until > now}

    def _put_aside(self, entry: QueuedFile) -> None:
        count = self._failures.get(entry.number, (0, 0.0))[0] + 1
        delay = min(2.0**count, _LONGEST_ASIDE_S)
        self._failures[entry.number] = (count, time.monotonic() + delay)

    def _send(self, records: tuple[Record, ...]) -> None:
        """Send records; those that the store refuses for good are dropped, with a warning."""
        try:
            self._log(records)
        except Exception as error:
            if not _is_refused(error):
                raise StoreAwayError(_one_line(error)) from error
            if len(records) == 1:
                self.num_refused += 1
                logger.warning("not logged: %s (%s)", json.dumps(records[0]), _one_line(error))
                return
            half = len(records) // 2
            self._send(records[:half])
            self._send(records[half:])

    def _log(self, records: Iterable[Record]) -> None:
        from mlflow.entities import Metric, Param, RunTag

        metrics = [
            Metric(key, value, record["t"], record["s"], **record.get("link", {}))
            for record in records
            for key, value in record.get("m", {}).items()
        ]
        params = [
            Param(key, value)
            for record in records
            for key, value in record.get("params", {}).items()
        ]
        # of several values the last counts, and one call takes each key once
        tags = {key: value for record in records for key, value in record.get("tags", {}).items()}
        if metrics or params or tags:
            self._client.log_batch(
                self.run_id,
                metrics=metrics,
                params=params,
                tags=[RunTag(key, value) for key, value in tags.items()],
            )
        inputs = [record["dataset"] for record in records if "dataset" in record]
        if inputs:
            self._client.log_inputs(self.run_id, datasets=[_dataset_input(one) for one in inputs])


def _dataset_input(values: Record) -> Any:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    dataset = Dataset(
        name=values["name"],
        digest=values["digest"],
        source_type=values.get("source_type", "local"),
        source=json.dumps({"uri": values["source"]}),
        schema=values.get("schema"),
        profile=values.get("profile"),
    )
    return DatasetInput(dataset, [InputTag("mlflow.data.context", values["context"])])


def _is_refused(error: Exception) -> bool:
    """Whether the store will say no each time; a deleted run may come back."""
    code = getattr(error, "error_code", None)
    return code in _REFUSED and "'active' state" not in str(error)


def _one_line(error: Exception) -> str:
    lines = without_secrets(str(error)).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__


def now_ms() -> int:
    """Return the time as MLflow counts it: ms since 1970."""
    return time.time_ns() // 1_000_000
