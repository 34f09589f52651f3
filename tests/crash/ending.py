"""Ends this process at a chosen moment: the n-th call that Python makes within a phase of training.

A process that counts its own calls ends at a place that a seed decides, between any two steps of
writing a file as well as anywhere else; a process killed from outside ends where chance has it.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

PHASES = ("start", "train", "save", "rename", "mark", "evaluate")


class Countdown:
    """Counts calls by phase, and sends this process a signal at one of them.

    Args:
        phase: the phase in which it happens; empty to count only.
        call: the number of the call within the phase, from 1.
        number: the signal.
    """

    def __init__(self, phase: str, call: int, number: int) -> None:
        self.phase = "start"
        self.counts = dict.fromkeys(PHASES, 0)
        self._wanted, self._call, self._number = phase, call, number
        self._process = os.getpid()

    def begin(self) -> None:
        """Count from here on."""
        sys.setprofile(self.count)

    def within(self, owner: type, method: str, phase: str) -> None:
        """Have the calls below a method counted as a phase of their own."""
        original = getattr(owner, method)

        @functools.wraps(original)
        def counted(*args: Any, **kwargs: Any) -> Any:
            before, self.phase = self.phase, phase
            try:
                return original(*args, **kwargs)
            finally:
                self.phase = before

        setattr(owner, method, counted)

    def turn(self, owner: type, method: str, *, before: str, after: str) -> None:
        """Have one phase turn into another when a method is called."""
        original = getattr(owner, method)

        @functools.wraps(original)
        def counted(*args: Any, **kwargs: Any) -> Any:
            if self.phase == before:
                self.phase = after
            return original(*args, **kwargs)

        setattr(owner, method, counted)

    def count(self, frame: Any, event: str, argument: Any) -> None:
        """Count a call: what `sys.setprofile` calls."""
        if os.getpid() != self._process:  # a loader process
            sys.setprofile(None)
            return
        self.counts[self.phase] += 1
        if self.phase == self._wanted and self.counts[self.phase] == self._call:
            os.kill(self._process, self._number)


class DurableFolder:
    """Notes what of a folder would outlive a power cut, according to POSIX: what was synchronised.

    A file's bytes are on the disk after its `fsync`, its name is there (or gone) after the
    folder's. Hard links in `keep` hold the bytes of files whose removal is not on the disk yet.

    Args:
        folder: what is watched; it may not exist yet.
        keep: a folder on the same file system.
    """

    def __init__(self, folder: Path, keep: Path) -> None:
        self._folder, self._keep = folder, keep
        self._synced: set[int] = set()
        self._names: dict[str, int] = {}
        keep.mkdir(parents=True, exist_ok=True)
        if folder.is_dir():
            self._note_names(is_all_synced=True)
        self._fsync = os.fsync
        os.fsync = self._noted_fsync

    def _noted_fsync(self, descriptor: int) -> None:
        self._fsync(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path == self._folder:
            self._note_names()
        elif path.parent == self._folder:
            self._synced.add(os.fstat(descriptor).st_ino)
            self._write()

    def _note_names(self, *, is_all_synced: bool = False) -> None:
        self._names = {path.name: path.stat().st_ino for path in self._folder.iterdir()}
        if is_all_synced:
            self._synced |= set(self._names.values())
        for name, inode in self._names.items():
            if not (self._keep / str(inode)).exists():
                os.link(self._folder / name, self._keep / str(inode))
        self._write()

    def _write(self) -> None:
        content = json.dumps({"names": self._names, "synced": sorted(self._synced)})
        temporary = self._keep / "durable.tmp"
        temporary.write_text(content)
        temporary.replace(self._keep / "durable.json")


SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM}
