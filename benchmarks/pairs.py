"""Two ways of doing the same, timed in turn: on a shared machine only their ratio counts."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Ratio:
    """The outcome of one comparison.

    Args:
        name: what was compared.
        ratio: median over the pairs of ours against theirs, as `unit` says.
        spread: lowest and highest pair.
        target: what the project promises, in words; empty where it promises nothing.
        is_met: whether `ratio` keeps the promise.
        detail: absolute figures of this machine, for orientation only.
    """

    name: str
    ratio: float
    spread: tuple[float, float]
    unit: str
    target: str
    is_met: bool
    detail: str

    def line(self) -> str:
        """Return one line for the terminal."""
        verdict = "-" if not self.target else "met" if self.is_met else "MISSED"
        low, high = self.spread
        figure = f"{self.ratio:8.3f} {self.unit:<22} ({low:.3f} to {high:.3f})"
        return (
            f"{self.name:<34} {figure}  target {self.target or '-':<10} {verdict:<7} {self.detail}"
        )


def paired_seconds(
    ours: Callable[[], object],
    theirs: Callable[[], object],
    *,
    pairs: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> list[tuple[float, float]]:
    """Return (seconds of ours, seconds of theirs) for each pair, run in turn after a warm-up.

    The order within a pair alternates, so that a drift of the machine's speed cancels.

    Args:
        ours: what we made.
        theirs: what it is compared with.
        pairs: how many.
        clock: `time.process_time` for work of one thread, so that others on the machine do not
            count.
    """
    ours()
    theirs()
    results = []
    for pair in range(pairs):
        if pair % 2:
            theirs_s, ours_s = _seconds(theirs, clock), _seconds(ours, clock)
        else:
            ours_s, theirs_s = _seconds(ours, clock), _seconds(theirs, clock)
        results.append((ours_s, theirs_s))
    return results


def median_ratio(pairs: list[tuple[float, float]], *, inverse: bool = False) -> tuple[float, ...]:
    """Return median, lowest and highest of ours/theirs; with `inverse`, of theirs/ours."""
    ratios = [theirs / ours if inverse else ours / theirs for ours, theirs in pairs]
    return statistics.median(ratios), min(ratios), max(ratios)


def _seconds(run: Callable[[], object], clock: Callable[[], float]) -> float:
    begin = clock()
    run()
    return clock() - begin
