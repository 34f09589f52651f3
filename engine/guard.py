"""Finding the first loss or gradient that is not finite, without waiting for the device.

An update that went wrong is masked out on the device (engine/updater.py). What it measured stays
there with the names of its samples until the loop reads it: after each update on the CPU, once per
log window on CUDA.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from engine.config import GuardConfig, StopGuardConfig
from engine.contract import Batch
from engine.distributed import gather_objects, mean_over_ranks
from engine.faults import Fault, Patience, budget_of

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
        batch: as it came from the loader, for a capsule; None where it was not kept.
        measures: name -> 0-d float32 on the device, what the task measured beside the losses.
    """

    iteration: int
    ids: Sequence[str]
    names: tuple[str, ...]
    values: torch.Tensor
    batch: Batch | None = None
    measures: Mapping[str, torch.Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class UpdateTrace:
    """What one update measured.

    Args:
        epoch: counted from 0.
        update: updates done before.
        batches: those whose gradients it used.
        norm: 0-d float32 on the device, the gradient's norm before clipping.
        is_left_out: 0-d float32 on the device, 1 if the update changed nothing.
        mended: 0-d float32 on the device, how many gradient tensors were mended.
        lr_factor: times each group's own learning rate.
    """

    epoch: int
    update: int
    batches: Sequence[BatchTrace]
    norm: torch.Tensor
    is_left_out: torch.Tensor = field(default_factory=lambda: torch.zeros(()))
    mended: torch.Tensor = field(default_factory=lambda: torch.zeros(()))
    lr_factor: float = 1.0


@dataclass(frozen=True)
class Reading:
    """An update's measurements on the host, means over ranks.

    Args:
        terms: name -> value, for each batch; `loss` is their sum.
        measures: name -> value, for each batch; NaN where a rank's batch did not define it.
        norm: the gradient's norm before clipping.
        is_left_out: whether the update changed nothing.
        num_mended: how many gradient tensors were mended.
    """

    terms: Sequence[Mapping[str, float]]
    measures: Sequence[Mapping[str, float]]
    norm: float
    is_left_out: bool = False
    num_mended: int = 0

    @property
    def is_skipped(self) -> bool:
        """Whether the gradient was not finite, and so the update left out."""
        return not math.isfinite(self.norm)


class FiniteGuard:
    """Keeps what updates measured, finds those that went wrong, and says when it is too much.

    Args:
        seed: the run's seed, for the message.
        scales_loss: whether a gradient scaler is at work; a gradient that is not finite is then its
            business (it leaves the update out and scales less), a loss is not.
        config: the experiment's `train.guard` section.
        patience: counts what was left out.
        on_fault: told of each update that went wrong, before anything is decided.
    """

    def __init__(
        self,
        *,
        seed: int,
        scales_loss: bool,
        config: GuardConfig | None = None,
        patience: Patience | None = None,
        on_fault: Callable[[Fault, UpdateTrace], None] | None = None,
    ) -> None:
        self._seed = seed
        self._scales_loss = scales_loss
        self._config = config or StopGuardConfig()
        self._patience = patience or Patience(self._config)
        self._on_fault = on_fault or (lambda fault, trace: None)
        self._traces: list[UpdateTrace] = []
        self._skipped = 0

    def add(self, trace: UpdateTrace) -> None:
        """Keep an update's measurements where they are."""
        self._traces.append(trace)

    def forget(self) -> None:
        """Drop what was not read: training goes back to before it."""
        self._traces.clear()
        self._skipped = 0

    def read(self) -> list[Reading]:
        """Return what was measured since the last reading. One copy from the device; collective.

        Raises:
            TrainingDiverged: for the first update that is more than `train.guard` bears.
        """
        traces, self._traces = self._traces, []
        if not traces:
            return []
        parts = [
            tensor
            for trace in traces
            for tensor in (
                *_values(trace),
                torch.stack([trace.norm, trace.is_left_out, trace.mended]),
            )
        ]
        values = iter(mean_over_ranks(torch.cat(parts)).tolist())
        readings = []
        for trace in traces:
            terms, measures = [], []
            for batch in trace.batches:
                terms.append({name: next(values) for name in (*batch.names, "loss")})
                measures.append({name: next(values) for name in batch.measures})
            reading = Reading(
                terms=terms,
                measures=measures,
                norm=next(values),
                is_left_out=next(values) > 0,
                num_mended=round(next(values)),
            )
            self._check(trace, reading)
            readings.append(reading)
        return readings

    def _check(self, trace: UpdateTrace, reading: Reading) -> None:
        fault = self._fault_of(trace, reading)
        if fault is None:
            return
        self._on_fault(fault, trace)
        if fault.is_mended or self._patience.bears(trace.update):
            return
        reason = fault.reason
        if self._config.policy != "stop":
            reason += f"; what train.guard bears is exceeded: {budget_of(self._config)}"
        raise TrainingDiverged(
            reason,
            epoch=fault.epoch,
            iteration=fault.iteration,
            update=fault.update,
            seed=self._seed,
            terms=fault.terms,
            ids=fault.ids,
        )

    def _fault_of(self, trace: UpdateTrace, reading: Reading) -> Fault | None:
        """Return what was wrong with an update, or None."""
        for batch, terms in zip(trace.batches, reading.terms, strict=True):
            if reason := self._wrong_loss(batch, terms):
                return self._fault(reason, trace, [batch], terms)
        self._skipped = self._skipped + 1 if reading.is_skipped else 0
        if reading.num_mended:
            reason = f"{reading.num_mended} gradient tensors had entries that are not finite"
            return self._fault(reason, trace, trace.batches, reading.terms[0], is_mended=True)
        if self._skipped <= (_MOST_SKIPPED if self._scales_loss else 0):
            return None
        reason = f"the gradient's norm is {reading.norm}, though all loss terms are finite"
        if self._scales_loss:
            reason += f", in {self._skipped} updates running and at ever smaller loss scales"
        return self._fault(reason, trace, trace.batches, reading.terms[0])

    def _wrong_loss(self, batch: BatchTrace, terms: Mapping[str, float]) -> str:
        bad = [name for name in batch.names if not math.isfinite(terms[name])]
        if bad or not math.isfinite(terms["loss"]):
            return f"{', '.join(bad or ['loss'])} not finite"
        limit = self._config.largest_loss
        if limit is not None and terms["loss"] > limit:
            return f"the loss is {terms['loss']:.6g}, above train.guard.largest_loss ({limit:g})"
        return ""

    def _fault(
        self,
        reason: str,
        trace: UpdateTrace,
        batches: Sequence[BatchTrace],
        terms: Mapping[str, float],
        *,
        is_mended: bool = False,
    ) -> Fault:
        ids = [name for batch in batches for name in batch.ids]
        return Fault(
            reason,
            epoch=trace.epoch,
            iteration=batches[0].iteration,
            update=trace.update,
            terms={name: value for name, value in terms.items() if name in batches[0].names},
            ids=[name for share in gather_objects(ids) for name in share],
            is_mended=is_mended,
        )


def _values(trace: UpdateTrace) -> Iterator[torch.Tensor]:
    """Yield the batches' losses and measures, each as a vector."""
    for batch in trace.batches:
        yield batch.values
        yield from (value.reshape(1) for value in batch.measures.values())
