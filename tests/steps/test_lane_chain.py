"""The lane task's whole chain, as steps: from drawn roads to a served model."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONFIG = "configs/lanes/quickstart.yaml"
TINY = (
    "data.train.roads=32 data.val.roads=6 data.test.roads=9 train.epochs=2 train.batch_size=8 "
    "train.log_every=2 train.evaluate_every=1 train.warmup.updates=2 "
    "register.gate.thresholds.F1=0.0 evaluate.jobs=1"
)
TUSIMPLE = (
    "data.train.layout=tusimple data.val.layout=tusimple data.test.layout=tusimple "
    "evaluate.metric.name=tusimple evaluate.headline=accuracy decode.mode=rows model.aux={}"
)

pytestmark = pytest.mark.slow


@pytest.fixture
def step(store, tmp_path):
    """Run a step as a process; returns what it wrote, and expects that it went well."""
    environment = {
        **os.environ,
        "MLFLOW_TRACKING_URI": store,
        "SIGHTFLOW_HOME": str(tmp_path / "home"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
    }

    def run(name, *arguments):
        done = subprocess.run(
            [sys.executable, "-m", f"steps.{name}", *arguments],
            cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


@pytest.mark.parametrize("layout", ["culane", "tusimple"])
def test_roads_become_a_registered_model_that_predicts(layout, step, client, tmp_path):
    overrides = f"{TINY} {TUSIMPLE}" if layout == "tusimple" else TINY
    step("main", "--config", CONFIG, "--set", overrides)
    runs = {
        run.data.tags.get("step"): run
        for run in client.search_runs([e.experiment_id for e in client.search_experiments()])
    }
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    scores = runs["evaluate"].data.metrics
    wanted = {"test/F1", "test/accuracy"} if layout == "tusimple" else {"test/F1", "test/recall"}
    assert wanted <= set(scores)
    trained = runs["train"].data.metrics
    assert {"train/row", "train/row_top1", "train/row_existence_accuracy"} <= set(trained)
    assert ("train/segmentation" in trained) == (layout == "tusimple")
    kept = {artifact.path for artifact in client.list_artifacts(runs["evaluate"].info.run_id)}
    assert {"per_item.csv", "per_item.parquet", "plots"} <= kept

    (drawn,) = (tmp_path / "home" / "synthetic").glob(f"lanes-{layout}-*-6-of-*")
    pictures = drawn / {"culane": "driver_00_00frame", "tusimple": "clips"}[layout]
    output = tmp_path / "out"
    model = "models:/sightflow-lanes-quickstart@candidate"
    step("predict", "--source", model, "--input", str(pictures), "--output", str(output))
    lines = (output / "predictions.jsonl").read_text(encoding="utf-8").splitlines()
    assert all("lanes" in json.loads(line) for line in lines)
    header = (output / "predictions.csv").read_text(encoding="utf-8").splitlines()[0]
    assert header == "path,frame,time_s,slot,kind,score,point,x,y"
    assert len(lines) == len(list((output / "drawn").rglob("*.jpg"))) == 6
    assert (output / "tusimple.json").exists() == (layout == "tusimple")
