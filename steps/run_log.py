"""The run log: what training says, on its way to MLflow.

A call on the training thread is an append to a list. One background thread writes what was appended
to a spool on disk once a second, another sends from the spool. When the tracking store is away, the
sender keeps trying and training goes on; what is unsent at the end is sent by `steps/sync.py`.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from steps.delivery import Delivery, now_ms
from steps.file_queue import FileQueue
from steps.picture_files import encoded_picture
from steps.secrets import masked, without_secrets
from steps.sender import Repeat, Sender
from steps.spool import Record, Spool, SpoolInfo, point_record

if TYPE_CHECKING:
    import numpy as np
    from mlflow import MlflowClient

    from engine.contract import Progress
    from steps.progress import ProgressDisplay

logger = logging.getLogger(__name__)

WRITE_EVERY_S = 1.0
# newer checkpoints replace one that still waits, so that short epochs do not fill the store
CHECKPOINT_EVERY_S = 60.0
FINAL_PREFIXES = ("test/", "val-test/")
SCORE_PREFIXES = ("val/", *FINAL_PREFIXES)
MIRRORED_PREFIXES = SCORE_PREFIXES
_MOST_POINTS_PER_RECORD = 1000
_LARGEST_POINTS_FILE = 20 * 1024**2


class Channel:
    """One run that is written to: its spool, its waiting files, and the way to the store.

    Args:
        folder: the spool's folder.
        info: which run this is.
        client: its tracking URI is the run's.
    """

    def __init__(self, folder: Path, info: SpoolInfo, client: MlflowClient) -> None:
        info.write(folder)
        self.run_id = info.run_id
        self.spool = Spool(folder)
        self.files = FileQueue(folder)
        self.delivery = Delivery(info.run_id, self.spool, self.files, client)


class MlflowRunLog:
    """Keeps the log of one MLflow run (`engine.contract.RunLog`), without ever waiting for MLflow.

    Args:
        own: the run itself.
        parent: the pipeline's run, which gets the scores (`val/`, `test/`) as well and the
            pictures instead, or None.
        display: where progress is shown, or None.
    """

    def __init__(
        self,
        own: Channel,
        *,
        parent: Channel | None = None,
        display: ProgressDisplay | None = None,
    ) -> None:
        self._own = own
        self._parent = parent
        self._channels = [own] if parent is None else [own, parent]
        self._display = display
        self._num_nonfinite = 0
        self._event_counts: dict[str, int] = {}
        self.events: list[str] = []
        self._picture_queue: deque[tuple[str, np.ndarray, int, int]] = deque()
        self._write_lock = threading.Lock()
        self._has_picture_tag = False
        self._due: dict[str, float] = {}
        self._sender = Sender([channel.delivery for channel in self._channels])
        self._writer = Repeat("run-log-writer", self.write, every_s=WRITE_EVERY_S)
        self._writer.start()
        self._sender.start()

    @property
    def folder(self) -> Path:
        """The spool's folder."""
        return self._own.spool.folder

    # what the training loop calls

    def metrics(self, values: Mapping[str, float], *, step: int) -> None:
        """Record points; scores (`val/`, `test/`) are rounded to 5 decimals, others to 6 digits."""
        self._record(values, step=step, time_ms=now_ms())

    def pictures(self, pictures: Mapping[str, np.ndarray], *, step: int) -> None:
        """Record pictures, key (`01`) -> (H, W, 3) uint8 RGB, as `pictures/<key>`."""
        time_ms = now_ms()
        for key, picture in pictures.items():
            name = key if key.startswith("pictures/") else f"pictures/{key}"
            self._picture_queue.append((name, picture.copy(), step, time_ms))

    def event(self, name: str, message: str, *, step: int) -> None:
        """Record something rare: in the log, in `events`, as a count in metric and tag."""
        message = without_secrets(message)
        self.events.append(f"update {step}, {name}: {message}")
        logger.warning("%s (update %d): %s", name, step, message)
        self._event_counts[name] = self._event_counts.get(name, 0) + 1
        self._own.spool.append({"t": now_ms(), "s": step, "event": name, "message": message})
        self.metrics({f"guard/{name}": self._event_counts[name]}, step=step)
        self.tags({f"guard.{name}": str(self._event_counts[name])})

    def progress(self, progress: Progress) -> None:
        """Show where training stands."""
        if self._display is not None:
            self._display.show(progress)

    def checkpoint(self, path: str, *, kind: str) -> None:
        """Queue a checkpoint file: `checkpoints/last.pt`, `best.pt`, or under its own name."""
        source = Path(path)
        name = source.name if kind == "every" else f"{kind}{source.suffix}"
        artifact = f"checkpoints/{name}"
        now = time.time()
        not_before = self._due.get(artifact, 0.0)
        if not_before <= now:
            self._due[artifact] = now + CHECKPOINT_EVERY_S
        self._own.spool.drain()
        self._own.files.add_link(source, artifact, not_before=not_before)
        self._sender.wake()

    def capsule(self, path: str) -> None:
        """Queue a capsule's files as `capsules/<name>/`, with the experiment that it belongs to.

        The files that the train step leaves beside its checkpoints make the folder one that
        `replay` can use alone.
        """
        folder = Path(path)
        target = f"capsules/{folder.name}"
        for file in sorted(folder.iterdir()):
            self._own.files.add_link(file, f"{target}/{file.name}", not_before=0.0)
        for name in ("config.yaml", "classes.json"):
            beside = folder.parent.parent / name
            if beside.is_file():
                self._own.files.add_copy(beside, f"{target}/{name}")
        self.tags({"capsule": target})
        logger.warning("what went wrong is kept in %s; see it by the entry point replay", folder)
        self._sender.wake()

    # what the steps call

    def scores(
        self, values: Mapping[str, float], *, model_id: str, dataset: tuple[str, str]
    ) -> None:
        """Record final scores of a model on a data set (name and digest), at step 0.

        The pipeline's run gets them too, but for those on `val`, of which it has the curve.
        """
        link = {"model_id": model_id, "dataset_name": dataset[0], "dataset_digest": dataset[1]}
        self._record(values, step=0, time_ms=now_ms(), link=link if model_id else {})

    def tags(self, values: Mapping[str, str]) -> None:
        """Set tags; the last value of a key counts."""
        self._own.spool.append({"t": now_ms(), "tags": masked(values)})

    def params(self, values: Mapping[str, str]) -> None:
        """Log params that the run does not have yet."""
        items = list(masked(values).items())
        for start in range(0, len(items), 100):
            self._own.spool.append({"t": now_ms(), "params": dict(items[start : start + 100])})

    def dataset(self, values: Record) -> None:
        """Log a data set: name, digest, source, context (`train`, `val`, `test`), profile."""
        self._own.spool.append({"t": now_ms(), "dataset": masked(values)})

    def artifact(self, path: Path, artifact: str) -> None:
        """Queue a copy of a file under the given artifact path."""
        self._own.files.add_copy(path, artifact)
        self._sender.wake()

    def content(self, data: bytes, artifact: str) -> None:
        """Queue content as an artifact."""
        self._own.files.add_bytes(data, artifact)
        self._sender.wake()

    def history(self, records: Sequence[Record]) -> None:
        """Take over point records of an earlier run as they are, with their timestamps."""
        for record in records:
            self._own.spool.append(record)
            mirrored = {k: v for k, v in record["m"].items() if k.startswith(MIRRORED_PREFIXES)}
            if self._parent is not None and mirrored:
                self._parent.spool.append({**record, "m": mirrored})

    def copied_pictures(self, pictures: Iterable[tuple[bytes, str]]) -> None:
        """Take over picture files of an earlier run, as content and artifact path."""
        target = self._parent or self._own
        for data, artifact in pictures:
            target.files.add_bytes(data, artifact)
            self._tag_pictures(target)

    def write(self) -> None:
        """Bring everything that was recorded to the disk."""
        with self._write_lock:
            while self._picture_queue:
                self._write_picture(*self._picture_queue.popleft())
            for channel in self._channels:
                channel.spool.drain()

    def flush(self, timeout_s: float, *, patience_s: float = 10.0) -> bool:
        """Wait until the store has everything.

        Args:
            timeout_s: longest wait.
            patience_s: longest wait for a store that does not answer.

        Returns:
            Whether everything was taken.
        """
        self.write()
        return self._sender.wait(timeout_s, patience_s=patience_s)

    def finish(self, timeout_s: float, *, patience_s: float) -> bool:
        """Flush, send the points file, and stop; nothing can be recorded afterwards.

        Returns:
            Whether everything was taken. If not, the rest stays in the spool.
        """
        if self._display is not None:
            self._display.close()
        self._writer.stop()
        self.write()
        points = self._own.spool.folder / "spool.jsonl"
        if 0 < points.stat().st_size < _LARGEST_POINTS_FILE:
            self._own.files.add_copy(points, "points.jsonl")
        is_done = self._sender.wait(timeout_s, patience_s=patience_s)
        self._sender.stop()
        for channel in self._channels:
            channel.spool.close()
        return is_done

    def unsent(self) -> tuple[int, int]:
        """Return how many points and files wait."""
        num_points = sum(channel.spool.num_unsent_points for channel in self._channels)
        return num_points, sum(len(channel.files.pending()) for channel in self._channels)

    def _write_picture(self, key: str, picture: np.ndarray, step: int, time_ms: int) -> None:
        target = self._parent or self._own
        for data, artifact in encoded_picture(key, picture, step=step, time_ms=time_ms):
            target.files.add_bytes(data, artifact)
        self._tag_pictures(target)

    def _tag_pictures(self, target: Channel) -> None:
        """Set the tag without which the UI does not look for pictures."""
        if not self._has_picture_tag:
            target.spool.append({"t": now_ms(), "tags": {"mlflow.loggedImages": "True"}})
            self._has_picture_tag = True

    def _record(
        self,
        values: Mapping[str, float],
        *,
        step: int,
        time_ms: int,
        link: Mapping[str, str] | None = None,
    ) -> None:
        rounded = {metric_key(key): _rounded(key, value) for key, value in values.items()}
        for part in _parts(rounded):
            record = point_record(part, step=int(step), time_ms=time_ms)
            if "x" in record:
                self._num_nonfinite += len(record["x"])
                record["m"]["guard/nonfinite_points"] = float(self._num_nonfinite)
            if link:
                record["link"] = dict(link)
            self._own.spool.append(record)
        if self._parent is None:
            return
        # a final score on `val` would be a second first point of the curve that training drew
        prefixes = MIRRORED_PREFIXES if link is None else FINAL_PREFIXES
        mirrored = {k: v for k, v in rounded.items() if k.startswith(prefixes)}
        for part in _parts(mirrored):
            self._parent.spool.append(point_record(part, step=int(step), time_ms=time_ms))


@lru_cache(maxsize=4096)
def metric_key(name: str) -> str:
    """Return the name with what MLflow refuses replaced by `_`."""
    return re.sub(r"[^\w\-./ :]", "_", name, flags=re.ASCII)[:250]


def _rounded(key: str, value: float) -> float:
    value = float(value)
    return round(value, 5) if key.startswith(SCORE_PREFIXES) else float(f"{value:.6g}")


def _parts(values: Mapping[str, float]) -> list[Mapping[str, float]]:
    """Return the values in pieces that one call to MLflow can carry."""
    most = _MOST_POINTS_PER_RECORD - 1
    if len(values) <= most:
        return [values] if values else []
    items = list(values.items())
    return [dict(items[start : start + most]) for start in range(0, len(items), most)]
