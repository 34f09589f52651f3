"""Proof that a training's batches are the same however many processes make them.

Ranks need no processes here: a task is asked for each rank's share of the batches, and the shares
are put together again.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, product

from engine.contract import Batch, Draws, EpochRequest, Task
from engine.picking import picked
from engine.proof import flat_values, joined_digest, value_digest

RANKS = (1, 2, 4)
WORKERS = (0, 1, 4)


@dataclass(frozen=True)
class SampleDigest:
    """A sample as it reaches the network: its name, and SHA-256 of all that a batch says of it."""

    id: str
    sha256: str


# one batch over all ranks, in the batch's order
BatchDigest = list[SampleDigest]


@dataclass(frozen=True)
class Layout:
    """How batches are made.

    Args:
        ranks: processes that share each batch.
        workers: loader processes of each.
        start: batches of the epoch that are already done, as in a resumed training.
    """

    ranks: int
    workers: int
    start: int = 0

    def __str__(self) -> str:
        text = f"ranks: {self.ranks}, workers: {self.workers}"
        return f"{text}, from batch {self.start}" if self.start else text


@dataclass(frozen=True)
class LayoutResult:
    """What came of a layout.

    Args:
        layout: how the batches were made.
        batches: how many there were.
        sha256: over all of them.
        expected: over the same ones, made by one process without workers.
        difference: the first one, in words; None if there is none.
    """

    layout: Layout
    batches: int
    sha256: str
    expected: str
    difference: str | None


def prove_batches(
    task: Task,
    draws: Draws,
    *,
    count: int | None,
    ranks: Sequence[int] = RANKS,
    workers: Sequence[int] = WORKERS,
) -> list[LayoutResult]:
    """Make an epoch's first batches in each layout, and from the middle, and compare them.

    Args:
        task: whose batches; its loader's processes are ended after each layout.
        draws: what the run's draws are seeded from.
        count: how many batches; None: all of the first epoch.
        ranks: numbers of ranks to try.
        workers: numbers of loader processes to try.

    Returns:
        One result per layout; the first is what the others are compared with.
    """
    total = task.num_batches(0)
    count = total if count is None else min(count, total)
    layouts = [Layout(r, w) for r, w in product(ranks, workers) if (r, w) != (1, 0)]
    if count > 1:
        layouts.append(Layout(1, 0, start=count // 2))
    first = Layout(1, 0)
    expected = batch_digests(task, draws, layout=first, until=count)
    results = [LayoutResult(first, count, _over(expected), _over(expected), None)]
    for layout in layouts:
        found = batch_digests(task, draws, layout=layout, until=count)
        results.append(_compared(layout, found, expected[layout.start :]))
    return results


def batch_digests(task: Task, draws: Draws, *, layout: Layout, until: int) -> list[BatchDigest]:
    """Return the digests of an epoch's batches `layout.start`, ..., `until` - 1 over all ranks."""
    with warnings.catch_warnings():
        # more workers than cores are wanted here
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        try:
            ranks = range(layout.ranks)
            shares = [_share(task, draws, layout, rank=rank, until=until) for rank in ranks]
        finally:
            task.close()
    return [_merged(of_batch) for of_batch in zip(*shares, strict=True)]


def _share(task: Task, draws: Draws, layout: Layout, *, rank: int, until: int) -> list[BatchDigest]:
    """Return the digests of a rank's share of the batches."""
    request = EpochRequest(
        epoch=0,
        start=layout.start,
        rank=rank,
        world_size=layout.ranks,
        workers=layout.workers,
        draws=draws,
    )
    batches = islice(task.train_batches(request), until - layout.start)
    return [_samples(task, batch, draws) for batch in batches]


def _samples(task: Task, batch: Batch, draws: Draws) -> BatchDigest:
    """Return the digests of a rank's share, sample by sample, as it reaches the network."""
    prepared = task.prepare_batch(batch, update=0, draws=draws)
    digests = []
    for place, name in enumerate(prepared.ids):
        inputs = picked(prepared, [place]).inputs
        values = {name: value_digest(value) for name, value in flat_values(inputs)}
        digests.append(SampleDigest(str(name), joined_digest(values)))
    return digests


def _merged(shares: Sequence[BatchDigest]) -> BatchDigest:
    """Return a batch of ranks' shares: rank r has samples r, r + ranks, ... of it."""
    longest = max(len(share) for share in shares)
    return [share[place] for place in range(longest) for share in shares if place < len(share)]


def _compared(
    layout: Layout, found: Sequence[BatchDigest], expected: Sequence[BatchDigest]
) -> LayoutResult:
    difference = None
    if len(found) != len(expected):
        difference = f"{len(found)} batches in place of {len(expected)}"
    # a batch of fewer samples than ranks is repeated, so that no rank stands still
    cut = [b[: len(e)] for b, e in zip(found, expected, strict=False)]
    for number, (ours, theirs) in enumerate(zip(cut, expected, strict=False), layout.start):
        if ours != theirs and difference is None:
            difference = f"batch {number}: {_first_difference(ours, theirs)}"
    return LayoutResult(layout, len(found), _over(cut), _over(expected), difference)


def _first_difference(ours: BatchDigest, theirs: BatchDigest) -> str:
    for place, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if one.id != other.id:
            return f"sample {place} is {one.id} in place of {other.id}"
        if one.sha256 != other.sha256:
            return f"sample {place} ({one.id}) has another content"
    return f"{len(ours)} samples in place of {len(theirs)}"


def _over(batches: Sequence[BatchDigest]) -> str:
    lines = "\n".join(
        " ".join(f"{sample.id} {sample.sha256}" for sample in batch) for batch in batches
    )
    return hashlib.sha256(lines.encode()).hexdigest()
