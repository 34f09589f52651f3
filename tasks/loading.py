"""Loads the batches of an epoch ahead of the training loop; shared by all tasks.

A task brings `Samples` (what an item is), a collate function and a plan (which items form which
batch). Every item draws from its own generators, so the batches are the same for any number of
workers and ranks and for any start in the epoch. Workers live as long as the loader, so that an
epoch begins without a pause.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import cv2
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from engine.contract import Batch, Draws, EpochRequest
from engine.seeding import sample_generators
from readers.records import DatasetError

Generators = tuple[random.Random, np.random.RandomState]
Item = TypeVar("Item")
Loaded = TypeVar("Loaded")

# how long a worker goes on after SIGTERM: the training process gets the same signal, finishes
# its update, saves and then ends the workers itself
LAST_SECONDS = 15


class WorkerDiedError(RuntimeError):
    """A loader process ended by itself; the message says which, and the usual causes."""

    exit_code = 1


class Samples(Protocol):
    """The items of a training split. With CUDA it must pickle."""

    def sample(self, index: int, generators: Generators) -> Any:
        """Return item `index`, with all its draws taken from `generators`."""
        ...


class Plan(Protocol):
    """Which items form which batch."""

    def epoch_batches(self, draws: Draws, epoch: int) -> Sequence[Sequence[int]]:
        """Return the epoch's batches over all ranks, as item indexes."""
        ...


@dataclass(frozen=True)
class BatchKey:
    """What a worker is told: which items, and what their draws are seeded from."""

    indexes: tuple[int, ...]
    epoch: int
    draws: Draws


@dataclass
class _KeyList:
    """A batch sampler whose content is replaced before each epoch, so that workers stay."""

    keys: list[BatchKey] = field(default_factory=list)

    def __iter__(self) -> Iterator[BatchKey]:
        return iter(self.keys)

    def __len__(self) -> int:
        return len(self.keys)


class _Fetch(Dataset[Any]):
    """Makes one batch of a `BatchKey`, in a worker or in the training process.

    A `DatasetError` is returned, not raised: torch would put a traceback into its sentence.
    """

    def __init__(self, samples: Samples, collate: Callable[[list[Any]], Batch]) -> None:
        self.samples = samples
        self.collate = collate

    def __getitems__(self, key: BatchKey) -> tuple[Any, list[str]] | DatasetError:
        try:
            batch = self.collate(
                [
                    self.samples.sample(
                        index, sample_generators(key.draws, epoch=key.epoch, index=index)
                    )
                    for index in key.indexes
                ]
            )
        except DatasetError as error:
            return error
        return batch.inputs, list(batch.ids)


class EpochLoader:
    """Yields a rank's share of the batches of an epoch, from workers that live across epochs.

    Args:
        samples: the items.
        collate: list of items -> `Batch`.
        plan: which items form which batch.
    """

    def __init__(self, samples: Samples, collate: Callable[[list[Any]], Batch], plan: Plan) -> None:
        self._fetch = _Fetch(samples, collate)
        self._plan = plan
        self._keys = _KeyList()
        self._loader: DataLoader[Any] | None = None
        self._made_for: tuple[int, bool] | None = None
        self._turn = 0

    def batches(self, request: EpochRequest) -> Iterator[Batch]:
        """Yield this rank's share of the batches `request.start`, ... of the epoch.

        An iterator may be left before its end; asking for another one ends it.

        Raises:
            DatasetError: naming the file, where an item cannot be read.
            WorkerDiedError: when a loader process ended by itself.
        """
        self._turn += 1
        turn = self._turn
        loader = self._loader_for(request)
        self._keys.keys = epoch_keys(self._plan, request)
        iterator = _start(loader)
        while True:
            assert turn == self._turn, "an epoch's iterator was used after the next was begun"
            try:
                loaded = _next(iterator)
            except StopIteration:
                return
            except WorkerDiedError:
                self.close()
                raise
            if isinstance(loaded, DatasetError):
                raise loaded
            yield Batch(*loaded)

    def close(self) -> None:
        """End the workers, if there are any. The loader can be used again."""
        self._loader = None
        self._made_for = None

    def _loader_for(self, request: EpochRequest) -> DataLoader[Any]:
        wanted = (request.workers, request.pin_memory)
        if self._loader is None or self._made_for != wanted:
            self.close()
            self._loader = _data_loader(self._fetch, self._keys, *wanted)
            self._made_for = wanted
        return self._loader


def epoch_keys(plan: Plan, request: EpochRequest) -> list[BatchKey]:
    """Return a rank's share of the batches from `request.start` on.

    Rank r takes items r, r + world_size, ... of each batch; a batch of fewer items than ranks is
    repeated, so that no rank stands still.
    """
    keys = []
    for batch in plan.epoch_batches(request.draws, request.epoch)[request.start :]:
        repeats = -(-request.world_size // len(batch))
        items = (list(batch) * repeats)[: max(len(batch), request.world_size)]
        share = items[request.rank :: request.world_size]
        keys.append(BatchKey(tuple(share), request.epoch, request.draws))
    return keys


def read_ahead(
    load: Callable[[Item], Loaded], items: Iterable[Item], *, threads: int = 2, ahead: int = 8
) -> Iterator[Loaded]:
    """Yield `load(item)` for each item in order, computed by threads up to `ahead` items early.

    For reading pictures while the network works on earlier ones: decoders release the GIL.
    """
    waiting: deque[Future[Loaded]] = deque()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="read-ahead")
    try:
        for item in items:
            waiting.append(pool.submit(load, item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def in_groups(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield the items in lists of `size`, the last one as long as it comes out."""
    group: list[Item] = []
    for item in items:
        group.append(item)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group


def _data_loader(fetch: _Fetch, keys: _KeyList, workers: int, pin_memory: bool) -> DataLoader[Any]:
    if workers == 0:
        _one_opencv_thread()
    # own generator: torch draws a base seed per epoch, which must not touch the run's draws
    common: dict[str, Any] = {"pin_memory": pin_memory, "generator": torch.Generator()}
    if workers:
        common |= {
            "num_workers": workers,
            "persistent_workers": True,
            "worker_init_fn": _start_worker,
            # a process that has begun to use CUDA or page-locked memory is not forked
            "multiprocessing_context": "forkserver" if pin_memory else "fork",
        }
    sampler: Any = keys  # yields keys, not lists of numbers: the dataset above takes them
    return DataLoader(fetch, batch_sampler=sampler, collate_fn=_as_fetched, **common)


def _as_fetched(batch: Any) -> Any:
    return batch


def _start_worker(_worker_id: int) -> None:
    _one_opencv_thread()
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave_soon)


def _leave_soon(_signal: int, _frame: Any) -> None:
    # a second signal ends the worker at once, the alarm does so in any case
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(LAST_SECONDS)


def _one_opencv_thread() -> None:
    cv2.setNumThreads(0)
    cv2.ocl.setUseOpenCL(False)


def _start(loader: DataLoader[Any]) -> Iterator[Any]:
    """Begin an epoch, without torch's SIGCHLD handler.

    That handler raises wherever the training process is when a worker dies; without it the same
    is told where the next batch is waited for.
    """
    if threading.current_thread() is not threading.main_thread():
        return iter(loader)
    handler = signal.getsignal(signal.SIGCHLD)
    iterator = iter(loader)
    signal.signal(signal.SIGCHLD, handler)
    return iterator


def _next(iterator: Iterator[Any]) -> Any:
    """Return the next batch, or tell which worker died."""
    try:
        return next(iterator)
    except (RuntimeError, EOFError, OSError) as error:
        if not isinstance(error, RuntimeError):
            # a dying worker's sockets close shortly before it counts as dead
            time.sleep(0.2)
        for number, worker in enumerate(getattr(iterator, "_workers", ())):
            if not worker.is_alive():
                raise WorkerDiedError(
                    f"loader worker {number} (pid {worker.pid}) ended with exit code "
                    f"{worker.exitcode} (-9: killed, often for lack of memory); lower "
                    "train.workers or train.batch_size, or try train.workers=0"
                ) from error
        raise
