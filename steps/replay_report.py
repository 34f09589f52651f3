"""What came of a replay, for people and for programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.replay import Replay
    from engine.verdict import Evidence, Outcome, Pictures

_MOST_NAMED = 16


def report_lines(replay: Replay) -> list[str]:
    """Return the report, a line a finding; the last is the verdict."""
    return [
        *_what(replay),
        *_passes(replay.evidence),
        *_pictures(replay.evidence),
        *(f"because: {reason}" for reason in replay.verdict.reasons),
        f"verdict: {replay.verdict.cause}",
    ]


def as_json(replay: Replay) -> dict[str, Any]:
    """Return all of it as JSON values; numbers that are not finite are texts."""
    from engine.capsule import readable

    evidence = {
        key: _plain(value) for key, value in vars(replay.evidence).items() if value is not None
    }
    found: dict[str, Any] = readable(
        {
            "verdict": replay.verdict.cause,
            "reasons": list(replay.verdict.reasons),
            "samples": list(replay.verdict.samples),
            "device": replay.device,
            "capsule": dict(replay.capsule),
            "evidence": evidence,
        }
    )
    return found


def _what(replay: Replay) -> Iterator[str]:
    capsule = replay.capsule
    terms = ", ".join(f"{name}={value:.6g}" for name, value in capsule["terms"].items())
    yield (
        f"update {capsule['update']} (epoch {capsule['epoch']}, iteration {capsule['iteration']}, "
        f"seed {capsule['seed']}): {capsule['reason']}; loss terms: {terms}"
    )
    yield (
        f"recorded on {capsule['device']} in {capsule['precision']}, ranks: "
        f"{capsule['world_size']}; replayed on {replay.device}"
    )
    if (distance := replay.evidence.approached) is not None:
        yield f"the weights from before it were made again, {distance} updates from a checkpoint"
    elif not capsule["exact"]:
        yield (
            f"the capsule's weights are those {capsule['later']} updates after it began; the "
            f"newest checkpoint was {capsule['checkpoint'] or 'none'}"
        )


def _passes(evidence: Evidence) -> Iterator[str]:
    for number, outcome in enumerate(evidence.recorded):
        yield f"batch {number} as recorded: {outcome.sentence()}"
    rows: list[tuple[str, Outcome | None]] = [
        ("in fp32", evidence.fp32),
        ("in bf16", evidence.bf16),
        *((f"in fp32 with {name}", outcome) for name, outcome in evidence.references.items()),
        (f"in {evidence.precision} with fresh weights", evidence.fresh),
    ]
    for name, found in rows:
        if found is not None:
            yield f"the first bad batch {name}: {found.sentence()}"
    for grown in (evidence.growth, evidence.fresh_growth):
        if grown is not None:
            yield f"weights: {grown.sentence()}"
    if evidence.first_bad_module is not None:
        yield f"first module with an output that is not finite: {evidence.first_bad_module}"
    if evidence.origin is not None:
        yield f"first operator: {evidence.origin.sentence()}"


def _pictures(evidence: Evidence) -> Iterator[str]:
    for (rank, iteration), pictures in zip(evidence.bad_batches, evidence.pictures, strict=False):
        yield f"each picture of batch {iteration} (rank {rank}) alone: {_sentence(pictures)}"


def _sentence(pictures: Pictures) -> str:
    named = pictures.named()
    told = ", ".join(named[:_MOST_NAMED]) + ", ..." * (len(named) > _MOST_NAMED)
    text = f"{len(named)} of {len(pictures.ids)} bad" + (f" ({told})" if named else "")
    if pictures.undecided:
        text += f", {len(pictures.undecided)} could not be tried"
    if pictures.rest is not None:
        text += f"; the others together: {pictures.rest.sentence()}"
    return text


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {key: _plain(entry) for key, entry in dataclasses.asdict(value).items()}
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value
