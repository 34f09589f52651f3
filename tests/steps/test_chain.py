"""The whole chain as a user runs it: `mlflow run .`, from drawn scenes to a registered model."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TINY = (
    "data.train.images=24 data.val.images=6 data.test.images=6 data.train.size=96 "
    "data.val.size=96 data.test.size=96 model.min_size=96 model.max_size=96 "
    "train.epochs=1 train.batch_size=4 train.log_every=2 train.evaluate_every=1 "
    "train.warmup.updates=2 register.gate.thresholds.mAP_50=0.0"
)

pytestmark = pytest.mark.slow


def _environment(store, tmp_path):
    return {
        **os.environ,
        "MLFLOW_TRACKING_URI": store,
        "SIGHTFLOW_HOME": str(tmp_path / "home"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }


def _mlflow_run(store, tmp_path, *arguments, **options):
    command = [sys.executable, "-m", "mlflow", "run", str(ROOT), "--env-manager", "local"]
    return subprocess.run(
        [*command, *arguments],
        env=_environment(store, tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        **options,
    )


def _runs(client):
    """Return step -> run of the only experiment that has runs."""
    experiments = [e.experiment_id for e in client.search_experiments()]
    return {run.data.tags.get("step"): run for run in client.search_runs(experiments)}


def test_main_job_ends_with_a_registered_version(client, store, tmp_path):
    done = _mlflow_run(store, tmp_path, "-P", f"set={TINY}")
    assert done.returncode == 0, done.stdout + done.stderr
    runs = _runs(client)
    assert set(runs) == {"pipeline", "prepare", "train", "evaluate", "register"}
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    parent = runs["pipeline"]
    assert all(
        run.data.tags["mlflow.parentRunId"] == parent.info.run_id
        for step, run in runs.items()
        if step != "pipeline"
    )
    assert parent.data.metrics["test/mAP_50"] == runs["evaluate"].data.metrics["test/mAP_50"]
    assert {"val/mAP", "val/mAP_50"} <= set(parent.data.metrics)
    assert not any(key.startswith(("train/", "lr/", "time/")) for key in parent.data.metrics)
    version = client.get_model_version_by_alias("sightflow-quickstart", "candidate")
    assert version.source == f"models:/{runs['train'].data.tags['model_id']}"
    assert parent.info.run_id in done.stdout
    assert "workflowType=machine_learning" in done.stdout
    kept = {artifact.path for artifact in client.list_artifacts(runs["train"].info.run_id)}
    assert {"checkpoints", "config.yaml", "environment.txt"} <= kept
    kept = {artifact.path for artifact in client.list_artifacts(runs["prepare"].info.run_id)}
    assert {"index", "quality.html", "quality.json"} <= kept


def test_failed_child_fails_the_parent_with_its_reason(client, store, tmp_path):
    config = tmp_path / "mine.yaml"
    text = (ROOT / "configs" / "detection" / "tiny-coco.yaml").read_text()
    config.write_text(text.replace("${DATA}", str(tmp_path / "nowhere")))
    done = _mlflow_run(store, tmp_path, "-P", f"config={config}")
    assert done.returncode == 1
    assert "prepare failed" in done.stderr
    assert "nowhere" in done.stderr
    assert "Traceback" not in done.stderr.split("prepare failed")[0]
    runs = _runs(client)
    assert {run.info.status for run in runs.values()} == {"FAILED"}
    assert "nowhere" in runs["pipeline"].data.tags["failure"]


def test_configuration_error_names_file_line_and_right_key(client, store, tmp_path):
    config = tmp_path / "wrong.yaml"
    text = (ROOT / "configs" / "detection" / "quickstart.yaml").read_text()
    config.write_text(text.replace("clip_norm:", "clipnorm:"))
    done = _mlflow_run(store, tmp_path, "-e", "train", "-P", f"config={config}")
    assert done.returncode == 1
    line = 1 + text[: text.index("clip_norm:")].count("\n")
    assert f"wrong.yaml:{line}" in done.stderr
    assert "clip_norm" in done.stderr


def test_sigterm_ends_all_runs_as_killed_with_a_checkpoint(client, store, tmp_path):
    overrides = TINY.replace("train.epochs=1", "train.epochs=500")
    command = [sys.executable, "-m", "steps.main", "--set", overrides]
    process = subprocess.Popen(
        command, env=_environment(store, tmp_path), cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    try:
        _wait_for(lambda: list((tmp_path / "home").glob("runs/*/checkpoints/update-*.pt")))
        process.send_signal(signal.SIGTERM)
        process.wait(120)
    finally:
        process.kill()
    runs = _runs(client)
    assert runs["train"].info.status == "KILLED"
    assert runs["pipeline"].info.status == "KILLED"
    assert list((tmp_path / "home").glob("runs/*/checkpoints/update-*.pt"))


def _wait_for(condition, seconds=240):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.5)
