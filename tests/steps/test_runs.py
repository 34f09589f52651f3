"""A run is opened, described and ended as the step ended."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from steps.runs import open_run

ROOT = Path(__file__).parents[2]


def _files(client, run_id, path=None):
    return {info.path for info in client.list_artifacts(run_id, path)}


def _text(client, run_id, artifact, tmp_path):
    return Path(client.download_artifacts(run_id, artifact, str(tmp_path))).read_text()


@pytest.fixture
def loaded():
    from steps.experiment import load

    return load(None)


def test_a_run_says_what_it_is_and_what_it_came_from(client, loaded, tmp_path):
    with open_run("train", loaded) as run:
        run.log.metrics({"train/loss": 0.123456789, "val/mAP": 0.123456789}, step=3)
    found = client.get_run(run.run_id)
    assert found.info.status == "FINISHED"
    tags = found.data.tags
    assert tags["step"] == "train"
    assert tags["task"] == "detection"
    assert tags["config.digest"] == loaded.digest
    assert tags["pid"] == str(os.getpid())
    assert found.info.run_name == f"train {tags['pipeline']}"
    assert found.data.metrics == {"train/loss": 0.123457, "val/mAP": 0.12346}
    assert found.data.params == loaded.flat
    assert _files(client, run.run_id) >= {"config.yaml", "environment.txt", "points.jsonl"}
    assert _text(client, run.run_id, "config.yaml", tmp_path) == loaded.text
    environment = _text(client, run.run_id, "environment.txt", tmp_path)
    assert "mlflow==3.17.2" in environment.splitlines()


def test_description_has_verdict_command_and_table(client, loaded):
    with open_run("evaluate", loaded) as run:
        run.describe("mAP 0.590", {"data": "a|b"}, "more")
    lines = client.get_run(run.run_id).data.tags["mlflow.note.content"].splitlines()
    assert lines[0] == "mAP 0.590"
    assert lines[2].startswith("`python -m steps.evaluate")
    assert "| data | a\\|b |" in lines
    assert lines[-1] == "more"


def test_description_tells_what_happened_on_the_way(client, loaded):
    with open_run("train", loaded) as run:
        run.log.event("initial_weights", "12 tensors loaded, 2 missing (head.a, head.b)", step=0)
        run.describe("mAP 0.590")
    lines = client.get_run(run.run_id).data.tags["mlflow.note.content"].splitlines()
    assert lines[0] == "mAP 0.590"
    assert lines[-1] == (
        "- update 0, initial_weights: 12 tensors loaded, 2 missing (head.a, head.b)"
    )


def test_a_long_reason_keeps_the_samples_that_it_names(client):
    names = ", ".join(f"/data/pictures/{number:040d}.jpg" for number in range(16))
    with pytest.raises(ValueError, match="samples"), open_run("prepare", None) as run:
        raise ValueError(f"samples: {names}")
    assert client.get_run(run.run_id).data.tags["failure"].endswith(f"{15:040d}.jpg")


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (ValueError("no such thing\nmore"), "FAILED", "ValueError: no such thing"),
        (SystemExit(3), "FAILED", "exit code 3"),
        (SystemExit(0), "FINISHED", None),
        (click.exceptions.Exit(0), "FINISHED", None),
        (KeyboardInterrupt(), "KILLED", "interrupted"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_status_follows_the_end_of_the_block(client, error, status, reason):
    with pytest.raises(type(error)), open_run("prepare", None) as run:  # noqa: PT012
        run.log.metrics({"a": 1.0}, step=0)
        raise error
    found = client.get_run(run.run_id)
    assert found.info.status == status
    assert found.data.tags.get("failure") == reason
    assert found.data.metrics == {"a": 1.0}


def test_a_bug_leaves_its_traceback(client, tmp_path):
    with pytest.raises(ZeroDivisionError), open_run("prepare", None) as run:
        1 / 0  # noqa: B018
    assert "1 / 0" in _text(client, run.run_id, "traceback.txt", tmp_path)
    note = client.get_run(run.run_id).data.tags["mlflow.note.content"]
    assert note.splitlines()[0] == "**failed**: ZeroDivisionError: division by zero"


def _projects_run(client, **tags):
    """A run as MLflow Projects makes it before the step starts."""
    run = client.create_run("0", tags={"mlflow.source.type": "PROJECT", **tags})
    client.log_param(run.info.run_id, "config", "'a b.yaml'")
    return run.info.run_id


def test_a_step_joins_the_run_that_mlflow_projects_made(client, loaded, monkeypatch):
    run_id = _projects_run(client)
    monkeypatch.setenv("MLFLOW_RUN_ID", run_id)
    with open_run("train", loaded) as run:
        run.params({"config": "other", "extra": 1})
        assert "MLFLOW_RUN_ID" not in os.environ
    found = client.get_run(run_id)
    assert run.run_id == run_id
    assert found.data.params["config"] == "'a b.yaml'"
    assert found.data.params["extra"] == "1"
    assert found.info.run_name == f"train {found.data.tags['pipeline']}"


def test_a_name_that_the_user_gave_stays(client, monkeypatch):
    run_id = _projects_run(client, **{"mlflow.runName": "my best try"})
    monkeypatch.setenv("MLFLOW_RUN_ID", run_id)
    with open_run("train", None):
        pass
    assert client.get_run(run_id).info.run_name == "my best try"


def test_scores_and_pictures_show_on_the_pipelines_run(client, loaded, monkeypatch):
    import mlflow
    import numpy as np

    with open_run("pipeline", loaded) as pipeline:
        child_id = _projects_run(client, **{"mlflow.parentRunId": pipeline.run_id})
        mlflow.end_run()  # the child is another process in real life
        monkeypatch.setenv("MLFLOW_RUN_ID", child_id)
        with open_run("train", loaded) as train:
            train.log.metrics({"train/loss": 2.0, "val/mAP": 0.5}, step=10)
            train.log.pictures({"01": np.zeros((40, 60, 3), np.uint8)}, step=0)
    parent, child = client.get_run(pipeline.run_id), client.get_run(child_id)
    assert parent.data.metrics == {"val/mAP": 0.5}
    assert set(child.data.metrics) == {"train/loss", "val/mAP"}
    assert len(_files(client, pipeline.run_id, "images")) == 2
    assert not _files(client, child_id, "images")
    assert child.data.tags["pipeline"] == parent.data.tags["pipeline"]
    assert parent.info.run_name.endswith(parent.data.tags["pipeline"])
    assert len(parent.info.run_name) <= 18


def test_final_scores_on_val_stay_off_the_curve_of_the_pipelines_run(client, loaded, monkeypatch):
    import mlflow

    with open_run("pipeline", loaded) as pipeline:
        child_id = _projects_run(client, **{"mlflow.parentRunId": pipeline.run_id})
        mlflow.end_run()
        monkeypatch.setenv("MLFLOW_RUN_ID", child_id)
        with open_run("evaluate", loaded) as run:
            run.scores({"val/mAP": 0.5})
            run.scores({"test/mAP": 0.4})
    assert client.get_run(pipeline.run_id).data.metrics == {"test/mAP": 0.4}
    assert client.get_run(child_id).data.metrics == {"val/mAP": 0.5, "test/mAP": 0.4}


def test_a_step_that_fails_before_its_run_is_open_says_why_on_it(client, monkeypatch):
    from steps.evaluate import main

    run_id = _projects_run(client)
    monkeypatch.setenv("MLFLOW_RUN_ID", run_id)
    done = CliRunner().invoke(main, ["--train-run", "f" * 32])
    assert done.exit_code == 1
    tags = client.get_run(run_id).data.tags
    assert tags["exit_code"] == "1"
    assert "config.yaml cannot be read" in tags["failure"]
    assert tags["mlflow.note.content"] == f"**failed**: {tags['failure']}"


def test_other_ranks_do_not_touch_mlflow(client, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    with open_run("train", None) as run:
        run.log.metrics({"a": 1.0}, step=0)
        run.tag("a", "b")
        run.describe("nothing")
        run.artifact(Path(__file__))
    assert run.run_id == ""
    assert client.search_runs(["0"]) == []


def test_a_resumed_run_begins_with_the_earlier_curves(client, tmp_path):
    with open_run("train", None) as first:
        for step in (1, 2, 3):
            first.log.metrics({"train/loss": float(step)}, step=step)
        first.log.metrics({"test/mAP": 0.5}, step=0)
    with open_run("train", None) as second:
        second.resume_from(first.run_id, until_update=2, scored_until=2)
        second.log.metrics({"train/loss": 9.0}, step=3)
    history = client.get_metric_history(second.run_id, "train/loss")
    assert [(m.step, m.value) for m in history] == [(1, 1.0), (2, 2.0), (3, 9.0)]
    earlier = client.get_metric_history(first.run_id, "train/loss")
    assert [m.timestamp for m in history[:2]] == [m.timestamp for m in earlier[:2]]
    assert "test/mAP" not in client.get_run(second.run_id).data.metrics
    assert client.get_run(second.run_id).data.tags["resumed_from"] == first.run_id


def test_an_evaluation_that_is_made_again_is_not_taken_over(client):
    import numpy as np

    with open_run("train", None) as first:
        for step in (0, 4):
            first.log.metrics({"train/loss": 1.0}, step=step)
            first.log.metrics({"val/mAP": 0.5, "time/evaluate_s": 2.0}, step=step)
            first.log.pictures({"01": np.zeros((20, 30, 3), np.uint8)}, step=step)
    with open_run("train", None) as second:
        second.resume_from(first.run_id, until_update=4, scored_until=3)
        second.log.metrics({"val/mAP": 0.5}, step=4)
    scores = client.get_metric_history(second.run_id, "val/mAP")
    assert [metric.step for metric in scores] == [0, 4]
    losses = client.get_metric_history(second.run_id, "train/loss")
    assert [metric.step for metric in losses] == [0, 4]
    assert len(_files(client, second.run_id, "images")) == 2  # one picture, in two formats


def test_earlier_curves_come_from_the_store_where_no_spool_is(client, tmp_path, monkeypatch):
    with open_run("train", None) as first:
        for step in (1, 2, 3):
            first.log.metrics({"train/loss": float(step), "lr/all": 0.1}, step=step)
    monkeypatch.setenv("SIGHTFLOW_HOME", str(tmp_path / "another machine"))
    with open_run("train", None) as second:
        second.resume_from(first.run_id, until_update=2, scored_until=2)
    history = client.get_metric_history(second.run_id, "train/loss")
    assert [(m.step, m.value) for m in history] == [(1, 1.0), (2, 2.0)]


_STEP = """
import sys, time
from steps.runs import open_run
with open_run("train", None) as run:
    for step in range(50):
        run.log.metrics({"train/loss": step}, step=step)
    print(run.run_id, flush=True)
    for _ in range(600):
        time.sleep(0.1)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_run_as_killed_with_all_points(client, number):
    process = subprocess.Popen(
        [sys.executable, "-c", _STEP], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    run_id = process.stdout.readline().decode().strip()
    process.send_signal(number)
    process.send_signal(signal.SIGTERM)  # as `mlflow run` does after Ctrl-C
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0, errors
    found = client.get_run(run_id)
    assert found.info.status == "KILLED"
    assert "interrupted by" in found.data.tags["failure"]
    assert len(client.get_metric_history(run_id, "train/loss")) == 50


def test_points_recorded_a_moment_before_sigkill_are_in_the_spool(store, tmp_path):
    process = subprocess.Popen([sys.executable, "-c", _STEP], cwd=ROOT, stdout=subprocess.PIPE)
    run_id = process.stdout.readline().decode().strip()
    spool = tmp_path / "home" / "runs" / run_id / "spool.jsonl"
    deadline = time.monotonic() + 30
    while '"s":49' not in (spool.read_text() if spool.exists() else ""):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.kill()
    process.communicate()
    steps = [json.loads(line).get("s") for line in spool.read_text().splitlines()]
    assert [step for step in steps if step is not None] == list(range(50))


@pytest.mark.slow
def test_two_first_runs_at_once_both_work(tmp_path, monkeypatch):
    uri = f"sqlite:///{tmp_path}/a folder/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("SIGHTFLOW_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MLFLOW_RUN_ID", raising=False)
    code = "from steps.runs import open_run\nwith open_run('prepare', None): pass"
    both = [
        subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    results = [(process.communicate()[1].decode(), process.returncode) for process in both]
    assert [code for _, code in results] == [0, 0], results
    database = sqlite3.connect(tmp_path / "a folder" / "mlflow.db")
    assert database.execute("SELECT status FROM runs").fetchall() == [("FINISHED",)] * 2
    assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    locations = database.execute("SELECT artifact_location FROM experiments").fetchall()
    assert all(str(tmp_path / "a folder" / "mlruns") in location for (location,) in locations)
    database.close()


def test_a_disk_that_is_full_at_the_end_does_not_hide_the_error(client, monkeypatch):
    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    with pytest.raises(ValueError, match="the real reason"), open_run("prepare", None) as run:  # noqa: PT012
        monkeypatch.setattr("steps.run_end.write_status", full)
        raise ValueError("the real reason")
    assert client.get_run(run.run_id).info.status == "FAILED"


def test_a_run_left_open_ends_with_the_process(client):
    code = (
        "from steps.runs import open_run\n"
        "context = open_run('prepare', None)\n"
        "run = context.__enter__()\n"
        "run.log.metrics({'a': 1.0}, step=0)\n"
        "print(run.run_id, flush=True)\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = client.get_run(done.stdout.strip())
    assert found.info.status == "FAILED"
    assert found.data.metrics == {"a": 1.0}
