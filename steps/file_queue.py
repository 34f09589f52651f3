"""Artifacts that wait to be sent: local copies beside a run's spool, until the store has them.

An entry is `files/<number>.json` (written last, so a torn entry is never seen) and the content in
`files/<number>/<name>`. Of several entries for one artifact only the newest is sent.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from steps.spool import read_json, write_json


@dataclass(frozen=True)
class QueuedFile:
    """One artifact that waits.

    Args:
        number: entries are sent in this order.
        artifact: path within the run's artifacts.
        local: the copy.
        not_before: seconds since 1970; until then the entry may wait for a newer one.
    """

    number: int
    artifact: str
    local: Path
    not_before: float

    @property
    def artifact_folder(self) -> str | None:
        """The artifact's folder, or None at the top."""
        parent = str(PurePosixPath(self.artifact).parent)
        return None if parent == "." else parent


class FileQueue:
    """A folder of artifacts that wait.

    Args:
        folder: the spool's folder; entries lie in its `files`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "files"
        self._lock = threading.Lock()
        self._in_flight: int | None = None
        entries = self.pending()
        self._next = entries[-1].number + 1 if entries else 0

    def add_bytes(self, data: bytes, artifact: str) -> None:
        """Queue content that is in memory."""
        local, number = self._place(artifact)
        local.write_bytes(data)
        self._commit(number, artifact, not_before=0.0)

    def add_copy(self, path: Path, artifact: str) -> None:
        """Queue a copy of a file as it is now."""
        local, number = self._place(artifact)
        shutil.copyfile(path, local)
        self._commit(number, artifact, not_before=0.0)

    def add_link(self, path: Path, artifact: str, *, not_before: float) -> None:
        """Queue a file that is never changed in place, without copying it where that is possible.

        Its owner may rename or delete it afterwards.
        """
        local, number = self._place(artifact)
        try:
            os.link(path, local)
        except OSError:  # another file system, or one without hard links
            shutil.copyfile(path, local)
        self._commit(number, artifact, not_before=not_before)

    def pending(self) -> list[QueuedFile]:
        """Return the entries that wait, in the order of queueing."""
        found = []
        for path in self._folder.glob("*.json"):
            values = read_json(path)
            if not values:
                continue
            artifact = values["artifact"]
            local = self._folder / path.stem / PurePosixPath(artifact).name
            entry = QueuedFile(int(path.stem), artifact, local, values.get("not_before", 0.0))
            found.append(entry)
        return sorted(found, key=lambda entry: entry.number)

    def next(self, *, now: float | None = None, skip: Collection[int] = ()) -> QueuedFile | None:
        """Return the first entry that is due, and keep it from being superseded meanwhile.

        Args:
            now: seconds since 1970; None takes entries that may wait as well.
            skip: numbers of entries to leave out.
        """
        with self._lock:
            for entry in self.pending():
                is_due = now is None or entry.not_before <= now
                if is_due and entry.number not in skip:
                    self._in_flight = entry.number
                    return entry
            self._in_flight = None
            return None

    def release(self, entry: QueuedFile) -> None:
        """Let an entry that could not be sent wait on, or go if there is a newer one."""
        with self._lock:
            self._in_flight = None
            if any(
                e.artifact == entry.artifact and e.number > entry.number for e in self.pending()
            ):
                self._remove(entry)

    def done(self, entry: QueuedFile) -> None:
        """Forget an entry and its copy."""
        with self._lock:
            self._in_flight = None
            self._remove(entry)

    def _place(self, artifact: str) -> tuple[Path, int]:
        with self._lock:
            number = self._next
            self._next += 1
        local = self._folder / f"{number:08d}" / PurePosixPath(artifact).name
        local.parent.mkdir(parents=True)
        return local, number

    def _commit(self, number: int, artifact: str, *, not_before: float) -> None:
        values = {"artifact": artifact, "not_before": not_before, "queued": time.time()}
        write_json(self._folder / f"{number:08d}.json", values)
        with self._lock:
            for entry in self.pending():
                is_older = entry.artifact == artifact and entry.number < number
                if is_older and entry.number != self._in_flight:
                    self._remove(entry)

    def _remove(self, entry: QueuedFile) -> None:
        (self._folder / f"{entry.number:08d}.json").unlink(missing_ok=True)
        shutil.rmtree(entry.local.parent, ignore_errors=True)
