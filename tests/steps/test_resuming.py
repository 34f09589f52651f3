"""Which training a run goes on from, and what it takes along."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from engine.checkpoint import CheckpointStore
from engine.weights import WeightsError
from steps.experiment import load
from steps.resuming import ResumeError, find_start
from steps.runs import open_run


def _state(update, *, iteration=0, best_update=None):
    return {"update": update, "iteration": iteration, "best_update": best_update}


def _trained(loaded, *updates, best=None, tags=None, error=None):
    """A run that left states of these updates; returns its id."""
    error = error or ValueError("it broke")
    with pytest.raises(type(error)), open_run("train", loaded, tags=tags) as run:  # noqa: PT012
        store = CheckpointStore(
            Path(os.environ["SIGHTFLOW_HOME"], "runs", run.run_id, "checkpoints")
        )
        for update in updates:
            path = store.save(_state(update, best_update=best), update=update)
            run.log.checkpoint(str(path), kind="last")
            if update == best:
                run.log.checkpoint(str(store.mark_best(path)), kind="best")
        assert run.log.flush(20.0)
        raise error
    return run.run_id


def _start(client, *, resume, config=None, overrides=""):
    return find_start(config, overrides, resume=resume, client=client)


@pytest.fixture
def loaded(store):
    return load(None)


def test_nothing_to_resume_is_a_fresh_start(client, loaded, caplog):
    assert _start(client, resume="").state is None
    assert _start(client, resume="auto").state is None
    assert "no unfinished run of this experiment" in caplog.text


def test_auto_takes_the_newest_run_of_this_very_experiment_that_left_a_state(client, loaded):
    _trained(loaded, 4)
    wanted = _trained(loaded, 4, 8)
    _trained(loaded)  # ended before its first checkpoint
    _trained(load(None, "seed=7"), 12)
    start = _start(client, resume="auto")
    assert (start.run_id, start.state["update"]) == (wanted, 8)


def test_auto_does_not_go_behind_a_finished_run(client, loaded):
    _trained(loaded, 4)
    with open_run("train", loaded):
        pass
    assert _start(client, resume="auto").state is None


def test_a_run_whose_process_lives_is_never_gone_on_from(client, loaded):
    run_id = _trained(loaded, 4)
    client.update_run(run_id, status="RUNNING")
    assert _start(client, resume="auto").state is None
    with pytest.raises(ResumeError, match=f"still training, process {os.getpid()}"):
        _start(client, resume=run_id)


def test_a_run_that_was_killed_and_says_running_is_gone_on_from(client, loaded):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    run_id = _trained(loaded, 4, tags={"pid": str(gone.pid), "host": socket.gethostname()})
    client.update_run(run_id, status="RUNNING")
    assert _start(client, resume="auto").run_id == run_id


def test_a_named_run_brings_its_own_experiment(client, store):
    run_id = _trained(load(None, "seed=5"), 4, tags={"prepare_run": "abc", "dataset": "x 12"})
    start = _start(client, resume=run_id, overrides="train.epochs=99")
    assert (start.loaded.experiment.seed, start.loaded.experiment.train.epochs) == (5, 99)
    assert (start.prepare_run, start.dataset) == ("abc", "x 12")


@pytest.mark.parametrize(
    ("state", "scored_until"),
    [
        (_state(8), 8),
        (_state(8, iteration=4), 7),  # in mid-epoch, or before its epoch's evaluation
        (_state(0), -1),
    ],
)
def test_evaluations_that_the_state_does_not_know_of_are_made_again(
    client, loaded, state, scored_until
):
    run_id = _trained(loaded)
    folder = Path(os.environ["SIGHTFLOW_HOME"], "runs", run_id, "checkpoints")
    CheckpointStore(folder).save(state, update=state["update"])
    assert _start(client, resume=run_id).scored_until == scored_until


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_best_state_comes_along_also_from_the_store(
    client, loaded, is_elsewhere, tmp_path, monkeypatch
):
    run_id = _trained(loaded, 4, 8, best=4)
    if is_elsewhere:
        monkeypatch.setenv("SIGHTFLOW_HOME", str(tmp_path / "another machine"))
    start = _start(client, resume=run_id)
    assert start.state["update"] == 8
    assert torch.load(start.best, weights_only=True)["update"] == 4


def test_a_run_that_cannot_be_gone_on_from_is_told(client, loaded):
    with pytest.raises(ResumeError, match="no such run"):
        _start(client, resume="0" * 32)
    with open_run("prepare", None) as run:
        pass
    with pytest.raises(ResumeError, match="a run of step 'prepare', not of `train`"):
        _start(client, resume=run.run_id)
    with pytest.raises(ResumeError, match="no whole checkpoint of it"):
        _start(client, resume=_trained(loaded))


def test_a_file_is_gone_on_from_with_its_experiment_named(client, loaded, tmp_path):
    path = tmp_path / "ep004.pth"
    torch.save({"model": {"module.a": torch.zeros(2)}}, path)
    start = _start(client, resume=f"{path}@7", config=loaded.path)
    assert (start.run_id, start.state["epoch"]) == ("", 7)
    assert set(start.state["network"]) == {"a"}
    with pytest.raises(ResumeError, match="give config"):
        _start(client, resume=str(path))
    with pytest.raises(WeightsError, match="no such weights file"):
        _start(client, resume=str(tmp_path / "ep005.pth"), config=loaded.path)
