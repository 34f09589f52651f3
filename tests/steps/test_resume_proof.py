"""The resume proof as a step: with real trainings that are killed, and with planted differences."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

CONFIGS = {
    "detection": (
        "configs/detection/quickstart.yaml",
        "data.train.images=24 data.val.images=4 data.test.images=4 data.train.size=96 "
        "data.val.size=96 data.test.size=96 model.min_size=96 model.max_size=96 train.batch_size=6",
    ),
    "lanes": (
        "configs/lanes/quickstart.yaml",
        "data.train.roads=24 data.val.roads=4 data.test.roads=4 train.batch_size=6",
    ),
}


def prove(*arguments, config="detection", settings=""):
    from steps.resume_proof import main

    path, small = CONFIGS[config]
    given = ["--config", path, "--set", f"{small} {settings}", "--device", "cpu", *arguments]
    return CliRunner().invoke(main, given)


def only_run(client):
    """The one run of the store, and its report (None if there is none)."""
    from mlflow.artifacts import download_artifacts

    (run,) = client.search_runs([e.experiment_id for e in client.search_experiments()])
    if "resume_proof.json" not in [a.path for a in client.list_artifacts(run.info.run_id)]:
        return run, None
    path = download_artifacts(f"runs:/{run.info.run_id}/resume_proof.json")
    return run, json.loads(Path(path).read_text())


@pytest.fixture
def states(monkeypatch):
    """Takes the states that two trainings are said to have left; the batches are real."""
    from engine.proof import compare_states
    from steps.proving import Trial

    def leave(straight, broken):
        monkeypatch.setattr(Trial, "states", lambda self: compare_states(straight, broken))

    return leave


# killed within an epoch, and in one with the next begun; an epoch has four updates
@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "2"])
@pytest.mark.parametrize("config", CONFIGS)
def test_a_killed_training_is_proved_equal(config, workers, client, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = {"0": "3", "2": "4"}[workers]
    result = prove("--workers", workers, "--before", before, "--after", "2", config=config)
    assert result.exit_code == 0, result.output
    last = result.output.splitlines()[-1]
    assert last.startswith("resume-proof: equal: ")
    assert f"after {int(before) + 2} updates straight, and {before}, SIGKILL, resume" in last
    run, report = only_run(client)
    assert (run.info.status, run.data.tags["verdict"]) == ("FINISHED", "equal")
    assert (report["is_equal"], report["first_difference"]) == (True, None)
    assert report["workers"] == int(workers)
    assert all(part["is_equal"] for part in report["parts"].values())
    assert len(report["batches"]) == 10
    assert len({row["sha256"] for row in report["batches"] if row["start"] == 0}) == 1
    assert report["machine"]["versions"]["torch"]
    (folder,) = (tmp_path / "home" / "runs").iterdir()
    assert not (folder / "proof").exists()


@pytest.mark.slow
def test_a_state_that_was_changed_on_disk_is_found(client, monkeypatch, tmp_path):
    """A broken training whose checkpoint lost a bit on the way to the resume."""
    import torch

    from engine.checkpoint import CheckpointStore
    from steps.proving import Trial

    finish = Trial._finish

    def tamper(self, name, *, ends_at):
        if name == "broken":
            store = CheckpointStore(self._folder / name / "checkpoints")
            state = store.newest()
            bias = next(k for k, v in state["network"].items() if v.dtype == torch.float32)
            state["network"][bias] = state["network"][bias] + 1e-3
            store.save(state, update=state["update"])
        finish(self, name, ends_at=ends_at)

    monkeypatch.setattr(Trial, "_finish", tamper)
    result = prove("--workers", "0", "--before", "1", "--after", "1")
    assert result.exit_code == 1
    assert "Error: resume-proof: different: network." in result.output
    assert "Traceback" not in result.output
    run, report = only_run(client)
    assert (run.info.status, run.data.tags["verdict"]) == ("FAILED", "different")
    assert report["first_difference"]["name"].startswith("network.")
    assert report["first_difference"]["largest"] > 0
    (folder,) = (tmp_path / "home" / "runs").iterdir()
    assert sorted(path.name for path in (folder / "proof").iterdir()) == [
        "broken", "config.yaml", "straight",
    ]  # fmt: skip


def test_equal_states_end_with_exit_code_0(client, states):
    states({"update": 2, "rng": [1]}, {"update": 2, "rng": [1]})
    result = prove("--batches", "1")
    assert result.exit_code == 0, result.output
    run, report = only_run(client)
    assert report["parts"]["rng"]["values"] == 1
    assert report["batches"][3]["ranks"] == 2
    assert "resume-proof: equal" in run.data.tags["mlflow.note.content"]


def test_a_difference_ends_with_exit_code_1_and_is_on_the_run(client, states):
    states({"update": 2, "rng": [1.0]}, {"update": 2, "rng": [float("nan")]})
    result = prove("--batches", "1")
    assert result.exit_code == 1
    assert "Error: resume-proof: different: rng.0 (" in result.output
    run, report = only_run(client)
    assert run.data.tags["failure"].startswith("resume-proof: different: rng.0 (")
    assert report["first_difference"]["largest"] == "nan"
    assert report["parts"]["sampler"]["is_equal"]


def test_batches_that_differ_end_with_exit_code_1(client, states, monkeypatch):
    from tasks.detection.task import DetectionTask

    states({"update": 2}, {"update": 2})
    prepare = DetectionTask.prepare_batch
    calls = iter(range(1000))

    def varied(self, batch, *, update, draws):
        prepared = prepare(self, batch, update=update, draws=draws)
        if next(calls) == 1:
            prepared.inputs[1][2]["labels"] += 1
        return prepared

    monkeypatch.setattr(DetectionTask, "prepare_batch", varied)
    result = prove("--batches", "1")
    assert result.exit_code == 1
    assert "batches of ranks: 1, workers: 1: batch 0: sample 2 (" in result.output
    assert "has another content" in result.output
    assert only_run(client)[1]["is_equal"] is False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "arguments", "message"),
    [
        (
            "train.epochs=1",
            ["--before", "3"],
            "the straight training ended with exit code 2: train.epochs: this training ends after "
            "4 updates, the proof needs 6",
        ),
        (
            "train.batch_size=25",
            [],
            "train.batch_size=25",
        ),
    ],
)
def test_a_training_that_cannot_be_made_is_told(settings, arguments, message, client):
    result = prove(*arguments, settings=settings)
    assert result.exit_code != 0
    assert message in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--before", "0"], "--before"),
        (["--after", "no"], "--after"),
        (["--workers", "-1"], "'-1' is not a whole number of 0 or more"),
        (["--batches", "-1"], "--batches"),
    ],
)
def test_a_wrong_number_is_a_usage_error(arguments, message):
    result = prove(*arguments)
    assert result.exit_code == 2
    assert message in result.output
