"""Making an update that went wrong once more, to find out why it did.

Only losses and gradients are computed, batch by batch; nothing is trained. What is found out here
is judged in engine/verdict.py.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from engine.approach import weights_before
from engine.capsule import CapsuleBatch, batches_of
from engine.config import TrainConfig
from engine.contract import Batch, Draws, Task
from engine.devices import autocast_type, to_device
from engine.freezing import Freezing
from engine.picking import bad_places, picked
from engine.seeding import seed_batch, seed_everything
from engine.verdict import Evidence, Growth, Outcome, Pictures, Verdict, decide
from engine.watcher import Watcher
from engine.weights import load_partial, read_weights

Weights = Mapping[str, torch.Tensor]

FRESH = "fresh weights"
# below it a tensor counts as 0, as biases do at their start: they may grow by any factor
_SMALLEST_RMS = 0.01
_ERRORS = (RuntimeError, ValueError, IndexError, AssertionError)


@dataclass(frozen=True)
class Reference:
    """Weights of the same network to compare with.

    Args:
        name: for the report.
        weights: name -> parameter or buffer.
    """

    name: str
    weights: Weights


@dataclass(frozen=True)
class Replay:
    """What came of a replay.

    Args:
        verdict: the cause, and why.
        evidence: what it hangs on.
        capsule: what was replayed, without its tensors.
        device: where.
    """

    verdict: Verdict
    evidence: Evidence
    capsule: Mapping[str, Any]
    device: str


def replay(
    task: Task,
    capsule: Mapping[str, Any],
    *,
    device: torch.device,
    references: Sequence[Reference] = (),
    checkpoint: Mapping[str, Any] | None = None,
    compat: Collection[str] = (),
) -> Replay:
    """Compute a capsule's losses and gradients again, and say what went wrong.

    Args:
        task: of the same experiment.
        capsule: as `engine.capsule.load_capsule` returns it.
        device: where to compute.
        references: weights of the run's checkpoints, the newest first; those that the network
            starts with are always compared as well.
        checkpoint: a training state from before the update; where the capsule's weights are not
            those from before it, training goes on from there to have them.
        compat: the experiment's reference defects, for that.

    Raises:
        ValueError: if the capsule's weights are not those of the task's network.
    """
    bench = Bench(task, capsule, device=device)
    approached = _approach(bench, checkpoint, compat=compat)
    batches = batches_of(capsule)
    precision = capsule["precision"]
    recorded = [bench.passed(batch, bench.weights, precision=precision) for batch in batches]
    bad = [batch for batch, outcome in zip(batches, recorded, strict=True) if outcome.is_bad]
    evidence = Evidence(
        precision=precision,
        recorded=recorded,
        bad_batches=[(batch.rank, batch.iteration) for batch in bad],
        lrs=_learning_rates(capsule),
        approached=approached,
    )
    if bad:
        _look_closer(bench, bad, evidence, references=[*references, bench.fresh])
    return Replay(
        verdict=decide(evidence, capsule),
        evidence=evidence,
        capsule={
            key: value
            for key, value in capsule.items()
            if key not in ("batches", "network", "optimizer", "scaler", "rng", "train")
        },
        device=str(device),
    )


class Bench:
    """The network of a capsule, ready to be given its batches.

    Args:
        task: of the same experiment.
        capsule: what is replayed.
        device: where.
    """

    def __init__(self, task: Task, capsule: Mapping[str, Any], *, device: torch.device) -> None:
        self.task, self.capsule, self.device = task, capsule, device
        self.config = TrainConfig.model_validate(capsule["train"])
        self.draws = Draws(capsule["seed"], capsule["restarts"])
        seed_everything(Draws(capsule["seed"]), self.config.determinism)
        network = task.build_network()
        with contextlib.suppress(OSError, ValueError):  # the file may be gone by now
            if self.config.initial_weights is not None:
                weights = read_weights(self.config.initial_weights.path)
                load_partial(network, weights, exclude=self.config.initial_weights.exclude)
        if self.config.channels_last:
            network = network.to(memory_format=torch.channels_last)
        self.network = network.to(device)
        self.parameters = [name for name, _ in self.network.named_parameters()]
        self.fresh = Reference(FRESH, _copied(self.network.state_dict()))
        self.weights = self._whole_buffers(capsule["network"])
        self.load(self.weights)
        self._freezing = Freezing(self.network, self.config.freeze)

    def load(self, weights: Weights) -> None:
        """Give the network these weights.

        Raises:
            ValueError: if they are another network's.
        """
        try:
            self.network.load_state_dict(weights)
        except RuntimeError as error:
            reason = str(error).splitlines()[-1].strip()
            raise ValueError(f"resume: the capsule holds another network: {reason}") from error

    def passed(
        self,
        batch: CapsuleBatch,
        weights: Weights,
        *,
        precision: str,
        samples: Sequence[int] | None = None,
        watcher: Watcher | None = None,
    ) -> Outcome:
        """Return what losses and gradient of a batch, or of some of its samples, are like."""
        self.load(weights)
        self.task.start_epoch(self.capsule["epoch"], self.network)
        self._freezing.apply(self.capsule["epoch"])
        self.network.zero_grad(set_to_none=True)
        try:
            ready = self.prepared(batch, samples)
            with watcher or contextlib.nullcontext():
                terms, is_bad = self._compute(ready, precision)
        except _ERRORS as error:
            return Outcome({}, math.nan, error=(str(error).splitlines() or ["no message"])[0])
        if is_bad:
            return Outcome(terms, math.nan, bad_loss=True)
        gradients = {n: p.grad for n, p in self.network.named_parameters() if p.grad is not None}
        bad = [name for name, grad in gradients.items() if not _is_finite(grad)]
        norm = float(torch.nn.utils.get_total_norm(list(gradients.values())))
        return Outcome(terms, norm / self._scale(precision), bad_gradients=bad)

    def prepared(self, batch: CapsuleBatch, samples: Sequence[int] | None) -> Batch:
        """Return a batch as the losses take it, with the generators seeded as in training."""
        seed_batch(
            self.draws, epoch=self.capsule["epoch"], iteration=batch.iteration, rank=batch.rank
        )
        moved = to_device(
            Batch(batch.inputs, batch.ids), self.device, channels_last=self.config.channels_last
        )
        ready = self.task.prepare_batch(moved, update=self.capsule["update"], draws=self.draws)
        return ready if samples is None else picked(ready, samples)

    def _compute(self, batch: Batch, precision: str) -> tuple[dict[str, float], bool]:
        """Leave the gradient on the parameters; return the terms, and whether they are bad."""
        enabled = precision != "fp32"
        with torch.autocast(self.device.type, dtype=autocast_type(precision), enabled=enabled):
            terms = dict(self.task.losses(self.network, batch).terms)
            total = torch.stack([term.float() for term in terms.values()]).sum()
        values = {name: float(term.detach()) for name, term in terms.items()}
        loss, limit = float(total.detach()), self.config.guard.largest_loss
        is_bad = not all(map(math.isfinite, [loss, *values.values()]))
        if is_bad or (limit is not None and loss > limit):
            return values, True
        scaled = total / self.config.accumulate * self._scale(precision)
        scaled.backward()  # type: ignore[no-untyped-call]
        return values, False

    def _scale(self, precision: str) -> float:
        """Return what losses are multiplied with, against small gradients that vanish in fp16."""
        return float(self.capsule["scaler"].get("scale", 1.0)) if precision == "fp16" else 1.0

    def _whole_buffers(self, weights: Weights) -> Weights:
        """Return the capsule's weights without the buffers that the bad pass itself has spoilt."""
        if not self.capsule["has_spoilt_buffers"]:
            return weights
        own = set(self.parameters)
        return {
            name: value if name in own or _is_finite(value) else self.fresh.weights[name]
            for name, value in weights.items()
        }


def _approach(
    bench: Bench, checkpoint: Mapping[str, Any] | None, *, compat: Collection[str]
) -> int | None:
    """Have the weights from before the update, where that is possible; return how far it was."""
    capsule = bench.capsule
    is_alike = capsule["device"] == bench.device.type and capsule["world_size"] == 1
    if capsule["exact"] or checkpoint is None or not is_alike:
        return None
    bench.weights = weights_before(
        capsule["update"],
        checkpoint,
        task=bench.task,
        config=bench.config,
        device=bench.device,
        compat=compat,
    )
    return int(capsule["update"] - checkpoint["update"])


def _look_closer(
    bench: Bench,
    bad: Sequence[CapsuleBatch],
    evidence: Evidence,
    *,
    references: Sequence[Reference],
) -> None:
    """Find out what of weights, precision and samples makes the difference."""
    batch, precision = bad[0], evidence.precision
    evidence.fp32 = bench.passed(batch, bench.weights, precision="fp32")
    evidence.bf16 = bench.passed(batch, bench.weights, precision="bf16")
    watcher = Watcher(bench.network)
    bench.passed(batch, bench.weights, precision=precision, watcher=watcher)
    evidence.first_bad_module = watcher.first_bad_module
    evidence.origin = watcher.origin()
    evidence.has_bad_inputs = watcher.bad_input
    compared = bench.fresh
    for reference in references:
        outcome = bench.passed(batch, reference.weights, precision="fp32")
        evidence.references[reference.name] = outcome
        if outcome.is_good:
            compared = reference
            evidence.good_reference = reference.name
            evidence.reference_as_recorded = bench.passed(
                batch, reference.weights, precision=precision
            )
            break
    evidence.growth = growth(bench, compared)
    if compared is not bench.fresh:
        # a checkpoint that is just finite yet may be far on the way
        evidence.fresh = bench.passed(batch, bench.fresh.weights, precision=precision)
        evidence.fresh_growth = growth(bench, bench.fresh)
    tried = "fp32" if evidence.fp32.is_bad else precision
    evidence.pictures = [_alone(bench, b, bench.weights, precision=tried) for b in bad]
    if evidence.good_reference is None:
        evidence.reference_pictures = [
            _alone(bench, b, compared.weights, precision="fp32") for b in bad
        ]


def _alone(bench: Bench, batch: CapsuleBatch, weights: Weights, *, precision: str) -> Pictures:
    """Give the network each picture of a batch alone, then all that were good together."""
    indices = range(len(batch.ids))
    outcomes = {
        index: _of_samples(bench, batch, weights, precision=precision, samples=[index])
        for index in indices
    }
    suspects = [index for index in indices if outcomes[index].is_bad]
    rest = [index for index in indices if index not in suspects]
    together = None
    if rest and suspects:
        together = _of_samples(bench, batch, weights, precision=precision, samples=rest)
    return Pictures(
        ids=[str(name) for name in batch.ids],
        suspects=suspects,
        undecided=[index for index in indices if outcomes[index].error],
        rest=together,
        not_finite=[index for index in indices if _has_bad_data(bench, batch, index)],
    )


def _of_samples(
    bench: Bench, batch: CapsuleBatch, weights: Weights, *, precision: str, samples: list[int]
) -> Outcome:
    outcome = bench.passed(batch, weights, precision=precision, samples=samples)
    if outcome.error and len(samples) == 1:
        # batch norm, for one, needs more than one value; the picture twice is still that picture
        again = bench.passed(batch, weights, precision=precision, samples=samples * 2)
        return outcome if again.error else again
    return outcome


def _has_bad_data(bench: Bench, batch: CapsuleBatch, index: int) -> bool:
    """Tell whether a picture or its labels hold numbers that are not finite."""
    try:
        return bool(bad_places(bench.prepared(batch, [index]).inputs))
    except _ERRORS:
        return False


def growth(bench: Bench, reference: Reference) -> Growth:
    """Return how much larger the capsule's weights are than others of the same network."""
    ratios, squares, reference_squares = {}, 0.0, 0.0
    for name in bench.parameters:
        now = bench.weights[name].detach().double()
        before = reference.weights[name].detach().double()
        size = max(now.numel(), 1)
        square, reference_square = float(now.square().sum()), float(before.square().sum())
        squares, reference_squares = squares + square, reference_squares + reference_square
        floor = max(math.sqrt(reference_square / size), _SMALLEST_RMS)
        ratios[name] = math.sqrt(square / size) / floor if math.isfinite(square) else math.inf
    most = max(ratios, key=lambda name: ratios[name])
    return Growth(
        reference=reference.name,
        is_fresh=reference is bench.fresh,
        norm=math.sqrt(squares) if math.isfinite(squares) else math.inf,
        reference_norm=math.sqrt(reference_squares),
        grown_most=most,
        times=ratios[most],
    )


def _learning_rates(capsule: Mapping[str, Any]) -> dict[str, float]:
    groups = capsule["optimizer"]["param_groups"]
    return {str(group.get("name", i)): float(group["lr"]) for i, group in enumerate(groups)}


def _copied(weights: Weights) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in weights.items()}


def _is_finite(value: torch.Tensor) -> bool:
    return bool(torch.isfinite(value).all())
