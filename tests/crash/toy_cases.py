"""Crash cases of the toy task: drawn, run, and held against what was reported as saved."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.checkpoint import CheckpointStore
from tests.crash.ending import PHASES
from tests.crash.power import DAMAGES, cut_power, damage_newest
from tests.crash.toy_server import REPORTED
from tests.engine.running import assert_same

ENDINGS = ("kill", "term", "outside", "cut", *DAMAGES)
KEEP = 2


@dataclass(frozen=True)
class Crash:
    """One way in which a training ends early.

    Args:
        ending: `kill` and `term` (the signal, at a call), `outside` (SIGKILL from outside, at a
            time), `cut` (power), or damage to the newest file after a SIGKILL.
        phase: where it happens.
        share: how far into the phase, or into the time that a training takes, in [0, 1).
        workers: loader processes.
    """

    ending: str
    phase: str
    share: float
    workers: int


@dataclass
class Promise:
    """What a run's reports promise.

    Args:
        newest: the update that the newest state has at least.
        before: the same of the state before it.
        best: the same of the best state, or None.
        kept: epochs whose states stay for good.
        done: updates that the last process had made.
    """

    newest: int = 0
    before: int = 0
    best: int | None = None
    kept: frozenset[int] = frozenset()
    done: int = 0


def draw_case(rng: random.Random, number: int) -> list[Crash]:
    """Return the crashes of a case, one after the other; the kind of the first goes round."""
    crashes = []
    for index in range(rng.randint(1, 3)):
        # damage undoes a promise: once a case, or nothing would be left to look at
        ending = ENDINGS[number % len(ENDINGS)] if index == 0 else rng.choice(ENDINGS[:4])
        workers = rng.choice([0, 2]) if ending == "outside" else 0
        crashes.append(Crash(ending, rng.choice(PHASES), rng.random(), workers))
    return crashes


def promise_of(folder: Path) -> Promise:
    """Read what was reported."""
    path = folder / REPORTED
    lines = path.read_text().splitlines() if path.exists() else []
    promise = Promise()
    kept: set[int] = set()
    for said in map(json.loads, lines):
        number = int(said["name"].split("-")[1]) if "name" in said else 0
        if said.get("kind") == "last" and number > promise.newest:
            promise.before, promise.newest = promise.newest, number
        elif said.get("kind") == "best":
            promise.best = number
        elif said.get("kind") == "every":
            kept.add(number)
        # what an earlier process had done beyond its last state is made again
        promise.done = 0 if said.get("event") == "started" else said.get("done", promise.done)
    promise.kept = frozenset(kept)
    return promise


def check_promise(folder: Path, promise: Promise) -> None:
    """Hold a folder of checkpoints against what was reported about it."""
    store = CheckpointStore(folder / "checkpoints")
    newest = store.newest()
    if promise.newest:
        assert newest is not None, "no state is left"
        assert newest["update"] >= promise.newest, "the newest state is lost"
    if promise.best is not None:
        best = store.best_update()
        assert best is not None, "the best state is lost"
        assert best >= promise.best, "the best state is an older one"
    for epoch in promise.kept:
        assert store.epoch_path(epoch), f"the state of epoch {epoch} is lost"


def final_states(folder: Path) -> dict[str, Any]:
    """Return newest, best and kept states of a training that finished, by what they are."""
    store = CheckpointStore(folder / "checkpoints")
    best = store.best_path()
    assert best is not None
    states = {"newest": store.newest(), "best": store.load(best)}
    for path in store.directory.glob("epoch-*"):
        states[path.name.rsplit("-", 1)[0]] = store.load(path)
    for state in states.values():
        sums = state["meters"]["sums"]  # no two runs take the same time
        state["meters"]["sums"] = {k: v for k, v in sums.items() if not k.startswith("time/")}
    return states


def run_case(
    server: Any, crashes: list[Crash], folder: Path, *, counts: dict[str, int], rng: random.Random
) -> None:
    """End a training early again and again, check what is left each time, then let it finish.

    Args:
        server: forks the trainings.
        crashes: one after the other.
        folder: of this case.
        counts: how many calls each phase has in a training that nobody ends.
        rng: draws what a power cut leaves.
    """
    for index, crash in enumerate(crashes):
        code, done = _end(server, crash, folder, counts=counts), promise_of(folder)
        if code == 0:
            assert index > 0 or crash.ending == "outside", "it was to end early"
            break
        assert code == (1 if crash.ending == "term" else -9), (folder / "output.txt").read_text()
        newest = CheckpointStore(folder / "checkpoints").newest()
        if crash.ending == "term":
            reached = newest["update"] if newest else 0
            assert reached >= done.done, "an update that was made is lost"
        check_promise(folder, done)
        if crash.ending == "cut":
            cut_power(folder / "checkpoints", folder / "kept", rng)
            check_promise(folder, done)
        elif crash.ending in DAMAGES:
            _damage(folder, rng, how=crash.ending, promise=done)
    # loader processes whose training was killed may still complain into the old one
    (folder / "output.txt").unlink()
    code, _ = server.run(folder=folder)
    assert code == 0, (folder / "output.txt").read_text()
    assert "Traceback" not in (folder / "output.txt").read_text()


def assert_as_unbroken(folder: Path, unbroken: Path, *, num_crashes: int) -> None:
    """Hold what a training left against one that nobody ended: equal to the bit.

    A crash may leave a file too many: one that was to be removed next.
    """
    assert_same(final_states(folder), final_states(unbroken))
    left = sorted(path.name for path in (folder / "checkpoints").iterdir())
    assert len(left) <= 3 + KEEP + num_crashes, left


def _end(server: Any, crash: Crash, folder: Path, *, counts: dict[str, int]) -> int:
    signal = "term" if crash.ending == "term" else "kill"
    watched = crash.ending == "cut"
    if crash.ending == "outside":
        pid = server.start(folder=folder, workers=crash.workers)
        return server.kill_after(pid, crash.share * (0.7 + 0.25 * crash.workers))
    left = 1 - promise_of(folder).newest / 12 if crash.phase != "start" else 1
    call = 1 + int(crash.share * left * counts[crash.phase])
    code, _ = server.run(
        folder=folder, phase=crash.phase, call=call, signal=signal, is_watched=watched
    )
    return code


def _damage(folder: Path, rng: random.Random, *, how: str, promise: Promise) -> None:
    """Damage the newest state; what was reported of the others still holds.

    The reports are forgotten afterwards: they speak of files that are no longer there.
    """
    gone = damage_newest(folder / "checkpoints", rng, how=how)
    store = CheckpointStore(folder / "checkpoints")
    if gone is not None:
        number = int(gone.name.split("-")[1])
        newest = store.newest()
        at_least = promise.newest if promise.newest < number else promise.before
        assert (newest["update"] if newest else 0) >= at_least, "the state before it is lost too"
        # a state of update 6 is that of epoch 1, and may have shared its bytes
        for epoch in promise.kept - {number // 3 - 1}:
            assert store.epoch_path(epoch), f"the state of epoch {epoch} is lost"
    (folder / REPORTED).unlink(missing_ok=True)
