"""The run log: what training says, on its way to MLflow.

A call on the training thread is an append to a list. One background thread writes what was appended
to a spool on disk once a second, another sends from the spool. When the tracking store is away, the
sender keeps trying and training goes on; what is unsent at the end is sent by `steps/sync.py`.
"""

from __future__ import annotations

import io
import logging
import re
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steps.delivery import Delivery, StoreAwayError, now_ms
from steps.file_queue import FileQueue
from steps.spool import Record, Spool, SpoolInfo, point_record

if TYPE_CHECKING:
    import numpy as np
    from mlflow import MlflowClient

    from engine.contract import Progress
    from steps.progress import ProgressDisplay

logger = logging.getLogger(__name__)

WRITE_EVERY_S = 1.0
SEND_EVERY_S = 2.0
# waits between two tries while the store is away double up to this
LONGEST_WAIT_S = 15.0
# newer checkpoints replace one that still waits, so that short epochs do not fill the store
CHECKPOINT_EVERY_S = 60.0
SCORE_PREFIXES = ("val/", "test/", "val-test/")
MIRRORED_PREFIXES = SCORE_PREFIXES
THUMBNAIL_SIDE = 256
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
        self._picture_queue: deque[tuple[str, np.ndarray, int, int]] = deque()
        self._write_lock = threading.Lock()
        self._has_picture_tag = False
        self._due: dict[str, float] = {}
        self._sender = Sender([channel.delivery for channel in self._channels])
        self._writer = _Repeat("run-log-writer", self.write, every_s=WRITE_EVERY_S)
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
        """Record something rare: a line in the log, and a count under `guard/<name>`."""
        logger.warning("%s (update %d): %s", name, step, message)
        self._event_counts[name] = self._event_counts.get(name, 0) + 1
        self._own.spool.append({"t": now_ms(), "s": step, "event": name, "message": message})
        self.metrics({f"guard/{name}": self._event_counts[name]}, step=step)

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

    # what the steps call

    def scores(
        self, values: Mapping[str, float], *, model_id: str, dataset: tuple[str, str]
    ) -> None:
        """Record final scores of a model on a data set (name and digest), at step 0."""
        link = {"model_id": model_id, "dataset_name": dataset[0], "dataset_digest": dataset[1]}
        self._record(values, step=0, time_ms=now_ms(), link=link if model_id else None)

    def tags(self, values: Mapping[str, str]) -> None:
        """Set tags; the last value of a key counts."""
        self._own.spool.append({"t": now_ms(), "tags": dict(values)})

    def params(self, values: Mapping[str, str]) -> None:
        """Log params that the run does not have yet."""
        items = list(values.items())
        for start in range(0, len(items), 100):
            self._own.spool.append({"t": now_ms(), "params": dict(items[start : start + 100])})

    def dataset(self, values: Record) -> None:
        """Log a data set: name, digest, source, context (`train`, `val`, `test`), profile."""
        self._own.spool.append({"t": now_ms(), "dataset": dict(values)})

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
            if link is not None:
                record["link"] = dict(link)
            self._own.spool.append(record)
        if self._parent is None:
            return
        mirrored = {k: v for k, v in rounded.items() if k.startswith(MIRRORED_PREFIXES)}
        for part in _parts(mirrored):
            self._parent.spool.append(point_record(part, step=int(step), time_ms=time_ms))


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


class _Repeat:
    """A daemon thread that calls a function again and again."""

    def __init__(self, name: str, function: Any, *, every_s: float) -> None:
        self._function = function
        self._every_s = every_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
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


@lru_cache(maxsize=4096)
def metric_key(name: str) -> str:
    """Return the name with what MLflow refuses replaced by `_`."""
    return re.sub(r"[^\w\-./ :]", "_", name, flags=re.ASCII)[:250]


def encoded_picture(
    key: str, picture: np.ndarray, *, step: int, time_ms: int
) -> list[tuple[bytes, str]]:
    """Return a picture as the two files by which MLflow's UI knows it.

    Args:
        key: e.g. `pictures/01`.
        picture: (H, W, 3) uint8 RGB.
        step: update count.
        time_ms: ms since 1970.

    Returns:
        Content and artifact path of the whole picture (PNG) and of the small one (WebP).

    Source: names as `MlflowClient.log_image` of MLflow 3.17 makes them, but with an id that is the
    same each time, so that sending a picture again replaces it.
    """
    from PIL import Image

    identity = uuid.uuid5(uuid.NAMESPACE_OID, f"{key} {step} {time_ms}")
    stem = f"images/{key.replace('/', '~')}+step+{step}+timestamp+{time_ms}+{identity}"
    image = Image.fromarray(picture)
    small = image.copy()
    small.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    return [
        (_encoded(image, "PNG"), f"{stem}.png"),
        (_encoded(small, "WEBP"), f"{stem}+compressed.webp"),
    ]


def _encoded(image: Any, form: str) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form)
    return buffer.getvalue()


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
