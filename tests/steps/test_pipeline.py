"""The main job, without its children."""

import os
import sys
from pathlib import Path

import pytest

from steps import pipeline
from steps.devices import DeviceError


def test_a_device_that_is_not_there_is_told_before_anything_is_done(client, monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    started = []
    monkeypatch.setattr(pipeline, "_child", lambda run, step, given: started.append(step))
    with pytest.raises(DeviceError, match="sees no CUDA device"):
        pipeline.run_pipeline(None, "", device="cuda")
    assert not started
    (run,) = client.search_runs([client.get_experiment_by_name("detection").experiment_id])
    assert run.info.status == "FAILED"
    assert run.data.tags["exit_code"] == "2"


def test_children_are_started_by_the_python_that_runs_the_pipeline(monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin")
    pipeline._find_own_python_first()
    pipeline._find_own_python_first()
    own = str(Path(sys.executable).parent)
    assert os.environ["PATH"].split(os.pathsep) == [own, "/usr/bin"]
