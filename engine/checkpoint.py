"""Training states on disk: written whole or not at all, and checked before they are believed.

A file's name carries its update count and the beginning of its SHA-256, so that a torn or damaged
file is noticed and the one before it is taken.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, cast

import torch

from engine.interrupt import signals_held_back

logger = logging.getLogger(__name__)

_NAME = re.compile(r"(?P<kind>update|best|epoch)-(?P<number>\d+)-(?P<digest>[0-9a-f]{16})\.pt")
_TEMPORARY = ".writing-"
_DIGITS = 16


class CheckpointError(OSError):
    """A checkpoint cannot be written or read; the message names the file and the reason."""


class CheckpointStore:
    """The checkpoints of one run, in one folder.

    `update-<count>-<digest>.pt` are the newest states, `best-...` the best one so far and
    `epoch-<number>-...` those that stay for good; the latter two share the first's bytes (hard
    links) where the file system can.

    Args:
        directory: the folder; made when the first state is saved.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def save(
        self,
        state: Mapping[str, Any],
        *,
        update: int,
        kind: str = "last",
        epoch: int | None = None,
    ) -> Path:
        """Write a state and return its file, which is whole on disk by then.

        Args:
            state: tensors, numbers, strings, None, dicts and lists only: what `load` may read.
            update: optimizer updates done so far; an earlier state of the same update is replaced,
                and damaged ones of later updates are removed: they would be kept in place of it.
            kind: `last`, or `best` to make it the best state as well (and return that file).
            epoch: the epoch whose state this is, if it is to stay for good; `epoch_path` finds it.

        Raises:
            CheckpointError: if it cannot be written (disk full, no permission); the files that
                were there stay as they are.
        """
        try:
            _make_folder(self.directory)
            self._remove_unfinished()
            with signals_held_back():
                path = self._write(state, update, epoch)
        except OSError as error:
            raise CheckpointError(
                f"{self.directory}: cannot write the checkpoint of update {update}: "
                f"{error.strerror or error}; earlier checkpoints are untouched"
            ) from error
        for other in self._files("update"):
            is_replaced = other != path and _number(other) == update
            if is_replaced or (_number(other) > update and not _is_whole(other)):
                other.unlink(missing_ok=True)
        for other in self._files("epoch"):
            if epoch == _number(other) and _digest_in(other) != _digest_in(path):
                other.unlink(missing_ok=True)
        return self.mark_best(path) if kind == "best" else path

    def mark_best(self, path: Path) -> Path:
        """Make a saved state the best one, in place of the earlier best; return its new file."""
        best = self._link(path, path.name.replace("update-", "best-", 1))
        for other in self._files("best"):
            if other != best:
                other.unlink(missing_ok=True)
        return best

    def adopt_best(self, path: Path) -> Path:
        """Take over the best state of the run that this one goes on from; return its new file.

        Raises:
            CheckpointError: if it cannot be read or copied.
        """
        update = self.load(path)["update"]
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()[:_DIGITS]
        _make_folder(self.directory)
        return self._link(path, f"best-{update:08d}-{digest}.pt")

    def best_update(self) -> int | None:
        """Return the update count of the best state, or None."""
        path = self.best_path()
        return None if path is None else _number(path)

    def epoch_path(self, epoch: int) -> Path | None:
        """Return the file of the state of an epoch that stays for good, or None."""
        files = (path for path in self._files("epoch") if _number(path) == epoch)
        return next(filter(_is_whole, files), None)

    def prune(self, *, keep: int) -> None:
        """Remove all but the newest `keep` states; `best` and `epoch` files stay."""
        for path in self._files("update")[keep:]:
            path.unlink(missing_ok=True)

    def newest(self) -> dict[str, Any] | None:
        """Return the newest state that is whole, or None; log each one that is passed over."""
        for path in self._files("update"):
            try:
                return self.load(path)
            except OSError as error:
                logger.warning("%s; trying the checkpoint before it", error)
        return None

    def newest_path(self) -> Path | None:
        """Return the file that `newest` would read, or None."""
        return next(filter(_is_whole, self._files("update")), None)

    def best_path(self) -> Path | None:
        """Return the file of the best state, or None."""
        return next(filter(_is_whole, self._files("best")), None)

    def load(self, path: Path) -> dict[str, Any]:
        """Read a state onto the CPU, never running code from the file.

        Raises:
            CheckpointError: if the file is missing, torn, damaged or not a checkpoint.
        """
        if not path.is_file():
            raise CheckpointError(f"{path}: no such checkpoint")
        require_whole(path)
        with signals_held_back():  # what a handler raises would be taken for a torn file
            state = _read(path)
        if not isinstance(state, dict):
            raise CheckpointError(f"{path}: holds a {type(state).__name__}, not a training state")
        return state

    def _write(self, state: Mapping[str, Any], update: int, epoch: int | None) -> Path:
        temporary = self.directory / f"{_TEMPORARY}{update:08d}-{os.getpid()}"
        try:
            with temporary.open("wb") as file:
                writer = _HashingWriter(file)
                torch.save(dict(state), cast(IO[bytes], writer))
                writer.raise_error()
                file.flush()
                os.fsync(file.fileno())
            if epoch is not None:
                # before the name that a resumed run starts from: it would not come back for this
                self._link(temporary, f"epoch-{epoch:04d}-{writer.digest()}.pt")
            path = self.directory / f"update-{update:08d}-{writer.digest()}.pt"
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(self.directory)
        return path

    def _link(self, path: Path, name: str) -> Path:
        """Give a file another name too, in place of a file of that name, which may be damaged."""
        target = self.directory / name
        if target.exists() and target.samefile(path):
            return target
        temporary = self.directory / f"{_TEMPORARY}{name}"
        temporary.unlink(missing_ok=True)
        try:
            _link_or_copy(path, temporary)
            temporary.replace(target)
            _sync_folder(self.directory)
        except OSError as error:
            raise CheckpointError(f"{target}: cannot write: {error.strerror or error}") from error
        return target

    def _files(self, kind: str) -> list[Path]:
        """Return the folder's files of a kind, the newest first."""
        if not self.directory.is_dir():
            return []
        matches = [(path, _NAME.fullmatch(path.name)) for path in self.directory.iterdir()]
        files = [path for path, match in matches if match is not None and match["kind"] == kind]
        return sorted(
            files, key=lambda path: (_number(path), path.stat().st_mtime_ns), reverse=True
        )

    def _remove_unfinished(self) -> None:
        for path in self.directory.glob(f"{_TEMPORARY}*"):
            path.unlink(missing_ok=True)


def _read(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        # torch's reader checks little: a damaged file may raise anything there is
        raise CheckpointError(
            f"{path}: not a checkpoint that may be read: it is torn, or holds more than "
            f"tensors and plain values ({type(error).__name__})"
        ) from error


class _HashingWriter:
    """Passes bytes on to a file and to SHA-256.

    An error is kept instead of raised: torch's writer, written in C++, turns one that is raised
    within it into an abort or a message without its cause.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self._error: OSError | None = None

    def write(self, data: Any) -> int:
        if self._error is None:
            try:
                self._file.write(data)
                self._hash.update(data)
            except OSError as error:
                self._error = error
        return len(data)

    def flush(self) -> None:
        """Do nothing: the caller flushes the file."""

    def raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def digest(self) -> str:
        return self._hash.hexdigest()[:_DIGITS]


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # file systems without hard links
        shutil.copyfile(source, target)


def _make_folder(directory: Path) -> None:
    """Make a folder and those above it, such that they survive a power cut."""
    if directory.is_dir():
        return
    _make_folder(directory.parent)
    directory.mkdir(exist_ok=True)
    _sync_folder(directory.parent)


def _number(path: Path) -> int:
    return int(path.name.split("-", 2)[1])


def _digest_in(path: Path) -> str:
    return path.stem.rsplit("-", 1)[1]


def require_whole(path: Path) -> None:
    """Refuse a file whose bytes do not match the digest in its name.

    Raises:
        CheckpointError: if they do not.
    """
    if not _is_whole(path):
        raise CheckpointError(
            f"{path}: torn or damaged ({path.stat().st_size} bytes do not match its name)"
        )


def _is_whole(path: Path) -> bool:
    """Tell whether a file's bytes match the digest in its name (a name without one is believed)."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        return True
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:_DIGITS] == match["digest"]


def _sync_folder(directory: Path) -> None:
    """Make a rename survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
