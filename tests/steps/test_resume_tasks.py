"""A training of each task, killed and resumed, ends with the same weights, to the bit."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETTINGS = (
    "train.epochs=4 train.batch_size=4 train.log_every=3 train.evaluate_every=2 "
    "train.warmup.updates=5 train.checkpoint.every_updates=1"
)
# 24 pictures each: six updates an epoch
SMALL = {
    "detection": "data.train.images=24 data.val.images=4 data.test.images=4 data.train.size=96 "
    "data.val.size=96 data.test.size=96 model.min_size=96 model.max_size=96",
    "lanes": "data.train.roads=24 data.val.roads=4 data.test.roads=4",
}
UPDATES = 24

pytestmark = pytest.mark.slow


def _train(tmp_path, task, *arguments, workers=0):
    environment = {
        **os.environ,
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db",
        "SIGHTFLOW_HOME": str(tmp_path / "home"),
        "OMP_NUM_THREADS": "1",
    }
    settings = f"{SMALL[task]} {SETTINGS} train.workers={workers}"
    config = f"configs/{task}/quickstart.yaml"
    command = [sys.executable, "-m", "steps.train", "--config", config, "--set", settings]
    return subprocess.Popen(
        [*command, *arguments], cwd=ROOT, env=environment, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip


def _finish(process):
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    return output


def _final_state(tmp_path):
    from engine.checkpoint import CheckpointStore

    (path,) = (tmp_path / "home" / "runs").glob(f"*/checkpoints/update-{UPDATES:08d}-*.pt")
    return CheckpointStore(path.parent).load(path)


def _kill_at(process, tmp_path, update):
    """SIGKILL the training, its loader processes included, once an update is on disk."""
    runs = tmp_path / "home" / "runs"
    end = time.monotonic() + 240
    while not list(runs.glob(f"*/checkpoints/update-{update:08d}-*.pt")):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end, f"update {update} was never written"
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.fixture(scope="module", params=SMALL)
def unbroken(tmp_path_factory, request):
    """A task, and the final state of a training that nobody disturbed."""
    folder = tmp_path_factory.mktemp("unbroken")
    _finish(_train(folder, request.param))
    return request.param, _final_state(folder)


@pytest.mark.parametrize("workers", [0, 2])
def test_killed_three_times_ends_with_identical_weights(workers, unbroken, tmp_path):
    import torch

    task, expected = unbroken
    seed = random.SystemRandom().randrange(10**6)
    points = sorted(random.Random(seed).sample(range(1, UPDATES - 1), 3))
    print(f"killed at updates {points} (seed {seed})")
    for point in points:
        _kill_at(_train(tmp_path, task, "--resume", "auto", workers=workers), tmp_path, point)
    _finish(_train(tmp_path, task, "--resume", "auto", workers=workers))
    state = _final_state(tmp_path)
    for part in ("network", "ema"):
        for name, tensor in expected[part].items():
            assert torch.equal(tensor, state[part][name]), f"{part} {name} (seed {seed})"
