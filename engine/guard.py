"""Finding the first loss or gradient that is not finite, without waiting for the device.

An update that went wrong is masked out on the device (engine/updater.py). What it measured stays
there with the names of its samples until the loop reads it: after each update on the CPU, once per
log window on CUDA.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from engine.distributed import gather_objects, mean_over_ranks

_SHOWN_IDS = 16
# from 2**16, the scale has come down to 2**-34 by then: no overflow is left to blame
_MOST_SKIPPED = 50


class TrainingDiverged(Exception):  # noqa: N818  (the run's outcome, not a programming error)
    """A loss term or a gradient was not finite. The weights are those before that update.

    Args:
        reason: what was not finite.
        epoch: counted from 0.
        iteration: batch of the epoch, counted from 0.
        update: optimizer updates done before.
        seed: the run's seed.
        terms: name -> value of the batch's loss terms.
        ids: the batch's samples, of all ranks.
    """

    exit_code = 4

    def __init__(  # noqa: PLR0913  (what a person needs to find the cause)
        self,
        reason: str,
        *,
        epoch: int,
        iteration: int,
        update: int,
        seed: int,
        terms: Mapping[str, float],
        ids: Sequence[str],
    ) -> None:
        values = ", ".join(f"{name}={value:.6g}" for name, value in terms.items())
        hidden = len(ids) - _SHOWN_IDS
        names = ", ".join(ids[:_SHOWN_IDS]) + (f" and {hidden} more" if hidden > 0 else "")
        super().__init__(
            f"training diverged in epoch {epoch}, iteration {iteration} (update {update}, "
            f"seed {seed}): {reason}; loss terms: {values}; samples: {names}"
        )
        self.epoch, self.iteration, self.update, self.seed = epoch, iteration, update, seed
        self.terms, self.ids = dict(terms), list(ids)


@dataclass(frozen=True)
class BatchTrace:
    """What one batch measured.

    Args:
        iteration: batch of the epoch, counted from 0.
        ids: this rank's samples.
        names: the loss terms' names.
        values: (terms + 1,) float32 on the device: the terms, then their sum.
        measures: name -> 0-d float32 on the device, what the task measured beside the losses.
    """

    iteration: int
    ids: Sequence[str]
    names: tuple[str, ...]
    values: torch.Tensor
    measures: Mapping[str, torch.Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class UpdateTrace:
    """What one update measured.

    Args:
        epoch: counted from 0.
        update: updates done before.
        batches: those whose gradients it used.
        norm: 0-d float32 on the device, the gradient's norm before clipping.
    """

    epoch: int
    update: int
    batches: Sequence[BatchTrace]
    norm: torch.Tensor


@dataclass(frozen=True)
class Reading:
    """An update's measurements on the host, means over ranks.

    Args:
        terms: name -> value, for each batch; `loss` is their sum.
        measures: name -> value, for each batch; NaN where a rank's batch did not define it.
        norm: the gradient's norm before clipping.
    """

    terms: Sequence[Mapping[str, float]]
    measures: Sequence[Mapping[str, float]]
    norm: float

    @property
    def is_skipped(self) -> bool:
        """Whether the gradient scaler left the update out."""
        return not math.isfinite(self.norm)


class FiniteGuard:
    """Keeps what updates measured, and stops the run at the first that is not finite.

    Args:
        seed: the run's seed, for the message.
        scales_loss: whether a gradient scaler is at work; a gradient that is not finite is then its
            business (it leaves the update out and scales less), a loss is not.
    """

    def __init__(self, *, seed: int, scales_loss: bool) -> None:
        self._seed = seed
        self._scales_loss = scales_loss
        self._traces: list[UpdateTrace] = []
        self._skipped = 0

    def add(self, trace: UpdateTrace) -> None:
        """Keep an update's measurements where they are."""
        self._traces.append(trace)

    def read(self) -> list[Reading]:
        """Return what was measured since the last reading. One copy from the device; collective.

        Raises:
            TrainingDiverged: for the first update with a loss or gradient that is not finite.
        """
        traces, self._traces = self._traces, []
        if not traces:
            return []
        parts = [tensor for trace in traces for tensor in (*_values(trace), trace.norm.reshape(1))]
        values = iter(mean_over_ranks(torch.cat(parts)).tolist())
        readings = []
        for trace in traces:
            terms, measures = [], []
            for batch in trace.batches:
                terms.append({name: next(values) for name in (*batch.names, "loss")})
                measures.append({name: next(values) for name in batch.measures})
            reading = Reading(terms=terms, measures=measures, norm=next(values))
            self._check(trace, reading)
            readings.append(reading)
        return readings

    def _check(self, trace: UpdateTrace, reading: Reading) -> None:
        for batch, terms in zip(trace.batches, reading.terms, strict=True):
            bad = [name for name in batch.names if not math.isfinite(terms[name])]
            if bad or not math.isfinite(terms["loss"]):
                raise self._diverged(
                    f"{', '.join(bad or ['loss'])} not finite", trace, [batch], terms
                )
        self._skipped = self._skipped + 1 if reading.is_skipped else 0
        if self._skipped > (_MOST_SKIPPED if self._scales_loss else 0):
            reason = f"the gradient's norm is {reading.norm}, though all loss terms are finite"
            if self._scales_loss:
                reason += f", in {self._skipped} updates running and at ever smaller loss scales"
            raise self._diverged(reason, trace, trace.batches, reading.terms[0])

    def _diverged(
        self,
        reason: str,
        trace: UpdateTrace,
        batches: Sequence[BatchTrace],
        terms: Mapping[str, float],
    ) -> TrainingDiverged:
        ids = [name for batch in batches for name in batch.ids]
        return TrainingDiverged(
            reason,
            epoch=trace.epoch,
            iteration=batches[0].iteration,
            update=trace.update,
            seed=self._seed,
            terms={name: value for name, value in terms.items() if name in batches[0].names},
            ids=[name for share in gather_objects(ids) for name in share],
        )


def _values(trace: UpdateTrace) -> Iterator[torch.Tensor]:
    """Yield the batches' losses and measures, each as a vector."""
    for batch in trace.batches:
        yield batch.values
        yield from (value.reshape(1) for value in batch.measures.values())
