"""Judging what a replay found: was it a label, the learning rate, the precision or an operator?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.watcher import Origin

LABEL = "label"
LEARNING_RATE = "learning rate"
PRECISION = "precision"
OPERATOR = "operator"
NOT_REPRODUCED = "not reproduced"

# weights that became so much larger are blown up: the norm of all, or the rms of one tensor
_NORM_GROWTH = 10.0
_TENSOR_GROWTH = 100.0
_TENSOR_GROWTH_FROM_FRESH = 1000.0


@dataclass(frozen=True)
class Outcome:
    """What losses and gradient of a batch were like.

    Args:
        terms: name -> loss term.
        norm: of the gradient; NaN where the loss was bad already.
        bad_loss: whether a loss term was not finite, or the loss above the limit.
        bad_gradients: names of parameters whose gradient was not finite.
        error: the message of an error that ended the pass; empty if there was none.
    """

    terms: Mapping[str, float]
    norm: float
    bad_loss: bool = False
    bad_gradients: Sequence[str] = ()
    error: str = ""

    @property
    def is_bad(self) -> bool:
        """Whether a loss or gradient was not finite."""
        return not self.error and (self.bad_loss or not math.isfinite(self.norm))

    @property
    def is_good(self) -> bool:
        """Whether all was finite."""
        return not self.error and not self.is_bad

    @property
    def is_above_limit(self) -> bool:
        """Whether the loss was finite, but larger than `train.guard.largest_loss`."""
        return self.bad_loss and all(map(math.isfinite, self.terms.values()))

    def sentence(self) -> str:
        """Return it in words."""
        if self.error:
            return f"ended by an error: {self.error}"
        terms = ", ".join(f"{name}={value:.6g}" for name, value in self.terms.items())
        if self.bad_loss:
            return f"bad loss ({terms})"
        if self.is_bad:
            named = ", ".join(self.bad_gradients[:3]) or "their norm"
            return f"bad gradients ({named}{', ...' * (len(self.bad_gradients) > 3)}; {terms})"
        return f"good ({terms}, gradient norm {self.norm:.6g})"


@dataclass(frozen=True)
class Pictures:
    """What came of giving the network each picture of a batch alone.

    Args:
        ids: of all.
        suspects: places of those that were bad alone.
        undecided: places of those that could not be tried.
        rest: all others together; None if there are none.
        not_finite: places of those whose picture or labels hold numbers that are not finite.
    """

    ids: Sequence[str]
    suspects: Sequence[int]
    undecided: Sequence[int] = ()
    rest: Outcome | None = None
    not_finite: Sequence[int] = ()

    @property
    def singles_out(self) -> bool:
        """Whether some pictures are bad alone, and all others good together."""
        return bool(self.suspects) and self.rest is not None and self.rest.is_good

    @property
    def explains(self) -> bool:
        """Whether the bad ones are those whose data is not finite."""
        is_rest_good = self.rest is None or self.rest.is_good
        return bool(self.suspects) and is_rest_good and set(self.suspects) <= set(self.not_finite)

    def named(self) -> list[str]:
        """Return the names of the pictures that are bad alone."""
        return [self.ids[index] for index in self.suspects]


@dataclass(frozen=True)
class Growth:
    """How large weights are, against others.

    Args:
        reference: what they are compared with.
        is_fresh: whether these are the ones that training starts with.
        norm: of all parameters.
        reference_norm: of the others.
        grown_most: the parameter whose rms grew most.
        times: by how much.
    """

    reference: str
    is_fresh: bool
    norm: float
    reference_norm: float
    grown_most: str
    times: float

    @property
    def is_blown_up(self) -> bool:
        """Whether they are larger than training makes them."""
        most = _TENSOR_GROWTH_FROM_FRESH if self.is_fresh else _TENSOR_GROWTH
        return self.norm >= _NORM_GROWTH * self.reference_norm or self.times >= most

    def sentence(self) -> str:
        """Return it in words."""
        return (
            f"the norm of all weights is {self.norm:.6g}, against {self.reference_norm:.6g} of "
            f"{self.reference}; {self.grown_most} is {self.times:.6g} times as large"
        )


@dataclass
class Evidence:
    """What a replay found out; of the first bad batch where nothing else is said.

    Args:
        precision: that of the training.
        recorded: each batch, with the capsule's weights and in that precision.
        bad_batches: rank and iteration of those that were bad.
        lrs: parameter group -> learning rate of the update.
        fp32: the same in fp32.
        bf16: the same in bf16.
        references: other weights -> what came of them in fp32.
        good_reference: the first of them that was good.
        reference_as_recorded: the same in the training's precision.
        growth: of the capsule's weights over those.
        fresh: the batch with the weights that training starts with, as recorded; None where these
            are the reference.
        fresh_growth: of the capsule's weights over those.
        approached: updates that were made again to have the weights; None if none.
        pictures: of each bad batch, with the capsule's weights.
        reference_pictures: the same with other weights, where those were bad too.
        first_bad_module: whose output was not finite, as recorded.
        origin: where it began, as recorded.
        has_bad_inputs: whether the network's own inputs were not finite.
    """

    precision: str
    recorded: Sequence[Outcome]
    bad_batches: Sequence[tuple[int, int]]
    lrs: Mapping[str, float]
    fp32: Outcome | None = None
    bf16: Outcome | None = None
    references: dict[str, Outcome] = field(default_factory=dict)
    good_reference: str | None = None
    reference_as_recorded: Outcome | None = None
    growth: Growth | None = None
    fresh: Outcome | None = None
    fresh_growth: Growth | None = None
    approached: int | None = None
    pictures: Sequence[Pictures] = ()
    reference_pictures: Sequence[Pictures] = ()
    first_bad_module: str | None = None
    origin: Origin | None = None
    has_bad_inputs: bool = False

    @property
    def blow_up(self) -> Growth | None:
        """How much the weights have grown since the batch was good, if that is far too much."""
        assert self.growth is not None
        again = self.reference_as_recorded
        if self.growth.is_blown_up and again is not None and again.is_good:
            return self.growth
        is_fresh_good = self.fresh is not None and self.fresh.is_good
        if is_fresh_good and self.fresh_growth is not None and self.fresh_growth.is_blown_up:
            return self.fresh_growth
        return None


@dataclass(frozen=True)
class Verdict:
    """The cause of an update that went wrong.

    Args:
        cause: `label`, `learning rate`, `precision`, `operator` or `not reproduced`.
        reasons: sentences.
        samples: names of the pictures that are to blame.
    """

    cause: str
    reasons: Sequence[str]
    samples: Sequence[str] = ()


def decide(evidence: Evidence, capsule: Mapping[str, Any]) -> Verdict:
    """Return the cause that fits what was found out.

    The order of questions: does it happen again; is it the precision alone; are single pictures
    to blame; do other weights of the network go well; and if not even those, do single pictures
    spoil any weights.
    """
    if not evidence.bad_batches:
        return _not_reproduced(evidence, capsule)
    assert evidence.fp32 is not None
    assert evidence.growth is not None
    if evidence.fp32.is_good:
        return _precision_or_rate(evidence)
    if all(pictures.explains for pictures in evidence.pictures):
        return _label(evidence.pictures, "its picture or labels hold numbers that are not finite")
    if evidence.good_reference is not None:
        return _rate_or_operator(evidence)
    if all(pictures.singles_out for pictures in evidence.reference_pictures):
        return _label(
            evidence.reference_pictures,
            "bad alone with any weights, while all others together are good",
        )
    return _operator(
        evidence,
        "with any weights, in fp32, and not for single pictures only",
    )


def _not_reproduced(evidence: Evidence, capsule: Mapping[str, Any]) -> Verdict:
    reasons = ["with the capsule's weights, batches and draws, all losses and gradients are finite"]
    if not capsule["exact"] and evidence.approached is None:
        reasons.append(
            f"the capsule's weights are not those from before the update but {capsule['later']} "
            "updates later"
        )
    errors = {outcome.error for outcome in evidence.recorded if outcome.error}
    reasons += [f"a batch could not be tried: {error}" for error in sorted(errors)]
    return Verdict(NOT_REPRODUCED, reasons)


def _precision_or_rate(evidence: Evidence) -> Verdict:
    """The batch is good in fp32."""
    if evidence.blow_up is not None:
        return _learning_rate(evidence)
    reasons = [f"bad in {evidence.precision}, good in fp32 with the same weights and batch"]
    if evidence.precision == "fp16" and evidence.bf16 is not None and evidence.bf16.is_good:
        reasons.append("good in bf16, which has the range of fp32")
    return Verdict(PRECISION, [*reasons, *_place(evidence)])


def _rate_or_operator(evidence: Evidence) -> Verdict:
    """The batch is good with other weights."""
    assert evidence.growth is not None
    assert evidence.fp32 is not None
    if evidence.blow_up is not None or evidence.fp32.is_above_limit:
        return _learning_rate(evidence)
    return _operator(
        evidence,
        f"in fp32, with weights of ordinary size ({evidence.growth.sentence()}); it does not "
        f"happen with {evidence.good_reference}",
    )


def _learning_rate(evidence: Evidence) -> Verdict:
    assert evidence.growth is not None
    grown = evidence.blow_up or evidence.growth
    how = "are blown up" if evidence.blow_up is not None else "have become worse"
    rates = ", ".join(f"{name} {value:.6g}" for name, value in evidence.lrs.items())
    return Verdict(
        LEARNING_RATE,
        [
            f"the weights {how}: {grown.sentence()}",
            f"the same batch is good with {grown.reference}",
            f"learning rates of the update: {rates}",
        ],
    )


def _label(pictures: Sequence[Pictures], reason: str) -> Verdict:
    samples = [name for found in pictures for name in found.named()]
    return Verdict(LABEL, [f"{', '.join(samples)}: {reason}"], samples)


def _operator(evidence: Evidence, when: str) -> Verdict:
    named = [name for pictures in evidence.pictures for name in pictures.named()]
    reasons = [f"finite numbers become infinite or NaN {when}", *_place(evidence)]
    if named:
        reasons.append(f"pictures for which it happens alone: {', '.join(named)}")
    return Verdict(OPERATOR, reasons, named)


def _place(evidence: Evidence) -> list[str]:
    found = []
    if evidence.first_bad_module is not None:
        found.append(f"the first output that is not finite is that of {evidence.first_bad_module}")
    if evidence.origin is not None:
        found.append(f"it begins in the {evidence.origin.sentence()}")
    return found
