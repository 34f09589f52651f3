"""The write-ahead file of a run: what is to be sent to the tracking store, and how far it got.

`steps/run_log.py` writes it while a step runs, `steps/delivery.py` sends from it, `steps/sync.py`
sends what is left. One spool is one folder:

    spool.jsonl  one record a line, never rewritten
    sent.json    how many of its bytes the tracking store has taken
    meta.json    which run, which tracking store
    status.json  the status the run is still to get; there only until the store has taken it
    files/       artifacts that wait (`steps/file_queue.py`)
    lock         held by the process that writes
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

Record = dict[str, Any]

# drained by whoever appends when the once-a-second drain is held up (a full disk, a stopped thread)
_MOST_PENDING = 20_000
# MLflow takes 1000 points, 100 tags and 100 params in one call, 1000 entries in all
_MOST_WEIGHT = 1000


@dataclass(frozen=True)
class Chunk:
    """Records that follow each other in a spool.

    Args:
        records: in the order of writing.
        start: byte offset of the first one.
        end: byte offset after the last one.
    """

    records: tuple[Record, ...]
    start: int
    end: int


class Spool:
    """Appends records to a folder's `spool.jsonl` and remembers how many were taken.

    Only one process at a time may open a spool for writing; the lock says who.

    Args:
        folder: made if it is not there.

    Raises:
        BlockingIOError: if another process has the spool open.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._path = folder / "spool.jsonl"
        self._lock_file = _locked(folder / "lock")
        _cut_torn_line(self._path)
        # unbuffered: what a write returned from outlives the process
        self._file = self._path.open("ab", buffering=0)
        self._pending: deque[Record] = deque()
        self._write_lock = threading.Lock()
        self._written = self._file.tell()
        sent = read_json(folder / "sent.json")
        self.sent_offset = min(int(sent.get("offset", 0)), self._written)
        self.num_sent_points = int(sent.get("points", 0))
        self.num_points = _count_points(self._path)

    def append(self, record: Record) -> None:
        """Take a record; `drain` writes it. The only call on a training loop's path."""
        self._pending.append(record)
        if len(self._pending) > _MOST_PENDING:
            self.drain()

    def drain(self) -> None:
        """Write what was appended, so that it outlives this process.

        Raises:
            OSError: if the disk does not take it; the records are kept for the next call.
        """
        with self._write_lock:
            if self._file.closed:
                return
            records = []
            while self._pending:
                records.append(self._pending.popleft())
            try:
                self._write(records)
            except BaseException:  # a full disk, or a signal in between
                self._pending.extendleft(reversed(records))
                os.truncate(self._path, self._written)
                raise

    def _write(self, records: list[Record]) -> None:
        lines = [json.dumps(record, separators=(",", ":")) + "\n" for record in records]
        data = memoryview("".join(lines).encode())
        left = data
        while left:
            left = left[self._file.write(left) :]
        self._written += len(data)
        self.num_points += sum(len(record.get("m", ())) for record in records)

    @property
    def has_unsent(self) -> bool:
        """Whether records wait, written or not."""
        return bool(self._pending) or self.sent_offset < self._written

    def unsent(self) -> Chunk:
        """Return the next written records not taken yet, as many as one call may carry."""
        records: list[Record] = []
        end = self.sent_offset
        weight = 0
        with self._path.open("rb") as file:
            file.seek(end)
            while end < self._written:
                line = file.readline()
                record = _parsed(line)
                weight += _weight(record)
                if weight > _MOST_WEIGHT and records:
                    break
                records.append(record)
                end += len(line)
        return Chunk(tuple(records), self.sent_offset, end)

    def acknowledge(self, chunk: Chunk) -> None:
        """Remember that the store has taken the chunk."""
        self.sent_offset = chunk.end
        self.num_sent_points += sum(len(record.get("m", ())) for record in chunk.records)
        write_json(
            self.folder / "sent.json",
            {"offset": self.sent_offset, "points": self.num_sent_points},
        )

    @property
    def num_unsent_points(self) -> int:
        """How many written points wait."""
        return self.num_points - self.num_sent_points

    def close(self) -> None:
        """Write the rest and let other processes open the spool."""
        self.drain()
        with self._write_lock:
            self._file.close()
            self._lock_file.close()


@dataclass(frozen=True)
class SpoolInfo:
    """What a spool's `meta.json` says.

    Args:
        run_id: the run that the records belong to.
        tracking_uri: where that run is kept, without a user's name or password.
        step: the pipeline step that wrote the spool.
    """

    run_id: str
    tracking_uri: str
    step: str

    def write(self, folder: Path) -> None:
        """Write `meta.json`."""
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "meta.json", self.__dict__)

    @staticmethod
    def read(folder: Path) -> SpoolInfo | None:
        """Return what `meta.json` says, or None if it is missing or torn."""
        values = read_json(folder / "meta.json")
        if not values:
            return None
        return SpoolInfo(values["run_id"], values["tracking_uri"], values.get("step", ""))


def write_status(folder: Path, *, status: str, end_time: int) -> None:
    """Note the status that the run is to get, and when it ended (ms since 1970)."""
    write_json(folder / "status.json", {"status": status, "end_time": end_time})


def read_status(folder: Path) -> Mapping[str, Any]:
    """Return `status` and `end_time`, or an empty mapping if no status waits."""
    return read_json(folder / "status.json")


def clear_status(folder: Path) -> None:
    """Forget the status: the tracking store has it."""
    (folder / "status.json").unlink(missing_ok=True)


def read_records(folder: Path) -> list[Record]:
    """Return every whole record of a folder's spool, sent or not; reading needs no lock."""
    path = folder / "spool.jsonl"
    if not path.exists():
        return []
    return [
        _parsed(line) for line in path.read_bytes().splitlines(keepends=True) if line[-1:] == b"\n"
    ]


def point_record(values: Mapping[str, float], *, step: int, time_ms: int) -> Record:
    """Return the record of points at one step: finite ones under `m`, others by name under `x`."""
    finite = {key: value for key, value in values.items() if math.isfinite(value)}
    record: Record = {"t": time_ms, "s": step, "m": finite}
    if len(finite) < len(values):
        record["x"] = {key: str(values[key]) for key in values if key not in finite}
    return record


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write a small JSON file so that a reader finds the old or the new one, never a part."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(values))
    temporary.replace(path)


def _weight(record: Record) -> int:
    """Return a record's share of one call, such that no chunk breaks any of the limits."""
    small = len(record.get("tags", ())) + len(record.get("params", ()))
    return max(1, len(record.get("m", ())) + 10 * small)


def _locked(path: Path) -> IO[str]:
    file = path.open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise
    return file


def _cut_torn_line(path: Path) -> None:
    """Drop a last line without an end: its writer was killed within it."""
    if not path.exists():
        return
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(path, whole)


def _count_points(path: Path) -> int:
    with path.open("rb") as file:
        return sum(len(_parsed(line).get("m", ())) for line in file)


def _parsed(line: bytes) -> Record:
    """Return the record of a line; a line damaged on disk (power loss) counts as empty."""
    try:
        record = json.loads(line)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON file's object, or an empty one if it is missing or torn."""
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
