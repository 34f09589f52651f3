"""A proof finds equal what is equal, and names what is not."""

import dataclasses
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from engine.batch_proof import Layout, batch_digests, prove_batches
from engine.checkpoint import CheckpointStore
from engine.contract import Batch, Draws
from engine.loop import fit
from engine.proof import ProofLog, Reached, compare_states, proof_config, value_digest
from tests.engine.running import CPU, last_state, train_config
from tests.engine.toy_task import ToyTask

ROOT = Path(__file__).parents[2]
SETTINGS = {
    "optimizer": {"name": "adamw", "lr": 0.01},
    "ema": {"decay": 0.9},
    "epochs": 3,
}
# trains the toy task until it is killed: folder, the update to wait after
HELD = """
import sys
from pathlib import Path
from engine.proof import ProofLog
from tests.engine.test_proof import train
train(Path(sys.argv[1]), ProofLog(ends_at=9, holds_at=int(sys.argv[2])))
"""


def train(folder, log, **changes):
    torch.set_num_threads(1)
    store = CheckpointStore(folder)
    with pytest.raises(Reached):
        fit(
            ToyTask(),
            proof_config(train_config(**SETTINGS | changes), workers=None),
            seed=1,
            log=log,
            store=store,
            device=CPU,
            resume=store.newest(),
        )
    return last_state(folder)


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """The state after nine updates without a break; an epoch has six."""
    return train(tmp_path_factory.mktemp("straight"), ProofLog(ends_at=9))


def planted(state, change):
    """A copy of the state with one of its tensors changed."""
    copy = {**state, "network": dict(state["network"])}
    copy["network"]["head.weight"] = change(state["network"]["head.weight"].clone())
    return copy


def test_a_training_ends_when_the_last_state_is_on_disk(straight):
    assert (straight["update"], straight["epoch"], straight["iteration"]) == (9, 1, 3)


@pytest.mark.parametrize("update", [2, 6])
def test_a_resumed_training_is_proved_equal(straight, tmp_path, update):
    train(tmp_path, ProofLog(ends_at=update))
    found = compare_states(straight, train(tmp_path, ProofLog(ends_at=9)))
    assert found.is_equal
    assert set(found.parts) == {
        "network", "ema", "optimizer", "scaler", "rng", "sampler", "meters", "decisions",
    }  # fmt: skip
    assert all(part.straight == part.broken for part in found.parts.values())
    assert {"network.head.weight", "ema.head.weight", "rng.torch", "iteration"} <= set(
        found.digests
    )


@pytest.mark.slow
def test_a_killed_training_has_lost_an_update_and_is_proved_equal(straight, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HELD, tmp_path, "4"],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    while not any(tmp_path.glob("update-00000004-*.pt")):
        assert process.poll() is None
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert last_state(tmp_path)["update"] == 4
    assert compare_states(straight, train(tmp_path, ProofLog(ends_at=9))).is_equal


@pytest.mark.slow
def test_a_held_training_ends_with_the_process_that_started_it(tmp_path):
    """Nothing waits for ever when the proof itself is killed."""
    starter = (
        "import subprocess, sys, time\n"
        "process = subprocess.Popen([sys.executable, '-c', *sys.argv[1:]])\n"
        "print('started', flush=True)\n"
        "time.sleep(600)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", starter, HELD, tmp_path, "1"],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
    )
    while not any(tmp_path.glob("update-00000001-*.pt")):
        assert process.poll() is None
    process.kill()
    # the pipe is at its end when the training that inherited it has ended, too
    assert process.communicate()[0] == b"started\n"
    assert last_state(tmp_path)["update"] == 1


def test_a_changed_entry_is_named_with_its_size(straight):
    found = compare_states(straight, planted(straight, lambda weight: weight + 0.5))
    (difference,) = found.differences
    assert difference.name == "network.head.weight"
    assert difference.largest == pytest.approx(0.5)
    assert "network.head.weight" in difference.sentence()
    assert "largest difference 0.5" in difference.sentence()
    assert found.parts["network"].straight != found.parts["network"].broken
    assert found.parts["ema"].straight == found.parts["ema"].broken


def test_other_draws_are_a_difference_of_network_and_generators(straight, tmp_path):
    train(tmp_path, ProofLog(ends_at=3))
    state = last_state(tmp_path)
    CheckpointStore(tmp_path).save({**state, "restarts": 1}, update=3)
    found = compare_states(straight, train(tmp_path, ProofLog(ends_at=9)))
    parts = {name for name, part in found.parts.items() if part.straight != part.broken}
    assert {"network", "ema", "optimizer", "rng", "sampler"} <= parts


@pytest.mark.parametrize(
    ("change", "largest"),
    [
        (lambda weight: weight.double(), 0.0),
        (lambda weight: weight.reshape(-1), None),
        (lambda weight: torch.where(weight == weight[0, 0], -weight, weight), None),
    ],
    ids=["kind", "shape", "sign"],
)
def test_kind_shape_and_sign_count(straight, change, largest):
    (difference,) = compare_states(straight, planted(straight, change)).differences
    assert largest is None or difference.largest == largest


def test_a_negative_zero_is_another_bit():
    assert value_digest(torch.tensor(0.0)) != value_digest(torch.tensor(-0.0))
    assert value_digest(torch.tensor([1.0, 2.0])[::2]) == value_digest(torch.tensor([1.0]))
    assert value_digest(torch.empty(0)) != value_digest(torch.empty(0, dtype=torch.uint8))
    assert value_digest(True) != value_digest(1)


def test_a_missing_value_is_named(straight):
    found = compare_states(straight, {**straight, "ema": None})
    first = found.differences[0]
    assert first.name.startswith("ema.")
    assert (first.broken, first.largest) == (None, None)
    assert found.differences[-1].name == "ema"


def test_measured_seconds_do_not_count(straight):
    meters = {"sums": {**straight["meters"]["sums"]}, "counts": straight["meters"]["counts"]}
    assert "time/step_s" in meters["sums"]
    meters["sums"]["time/step_s"] += 1.0
    assert compare_states(straight, {**straight, "meters": meters}).is_equal
    meters["sums"]["train/loss"] = 1.0
    assert not compare_states(straight, {**straight, "meters": meters}).is_equal


def test_batches_are_the_same_for_all_ranks_and_workers():
    results = prove_batches(ToyTask(), Draws(1), count=3)
    layouts = [(r.layout.ranks, r.layout.workers, r.layout.start) for r in results]
    assert layouts[0] == (1, 0, 0)
    assert {(ranks, workers, 0) for ranks in (1, 2, 4) for workers in (0, 1, 4)} <= set(layouts)
    assert layouts[-1] == (1, 0, 1)
    assert [result.difference for result in results] == [None] * 10
    assert len({result.sha256 for result in results[:-1]}) == 1


class FlawedTask(ToyTask):
    """With two ranks, the second one's samples are other ones, or have another content."""

    def __init__(self, flaw):
        super().__init__()
        self.flaw = flaw

    def train_batches(self, request):
        for number, batch in enumerate(super().train_batches(request), request.start):
            if (request.rank, request.world_size, number) == (1, 2, 1):
                batch = self.flaw(batch)
            yield batch


def _renamed(batch):
    return Batch(batch.inputs, ["elsewhere", *batch.ids[1:]])


def _varied(batch):
    inputs, targets = batch.inputs
    return Batch((inputs, targets + 1e-6), batch.ids)


@pytest.mark.parametrize(
    ("flaw", "message"),
    [
        (_renamed, r"batch 1: sample 1 is elsewhere in place of point-\d+"),
        (_varied, r"batch 1: sample 1 \(point-\d+\) has another content"),
    ],
)
def test_the_first_sample_that_differs_is_named(flaw, message):
    results = prove_batches(FlawedTask(flaw), Draws(1), count=2, ranks=(1, 2), workers=(0,))
    assert [result.difference is None for result in results] == [True, False, True]
    (different,) = (result for result in results if result.difference)
    assert re.fullmatch(message, different.difference)
    assert different.sha256 != different.expected


def test_a_batch_smaller_than_its_ranks_is_repeated_and_cut():
    class RepeatingTask(ToyTask):
        def train_batches(self, request):

            share = dataclasses.replace(request, rank=request.rank % 2, world_size=2)
            return super().train_batches(request if request.world_size == 1 else share)

    task = RepeatingTask(batch_size=2)
    results = prove_batches(task, Draws(1), count=2, ranks=(4,), workers=(0,))
    assert [result.difference for result in results] == [None] * 3
    four = batch_digests(task, Draws(1), layout=Layout(4, 0), until=1)
    assert len(four[0]) == 4
