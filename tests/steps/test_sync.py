"""What a run left behind is sent into the same run, once."""

import pytest
from click.testing import CliRunner

from steps.file_queue import FileQueue
from steps.spool import Spool, SpoolInfo, point_record, write_status
from steps.sync import main


@pytest.fixture
def left_behind(client, store, tmp_path):
    """A run whose step could send nothing, with its spool's folder."""
    run_id = client.create_run("0").info.run_id
    folder = tmp_path / "home" / "runs" / run_id
    SpoolInfo(run_id, store, "train").write(folder)
    spool = Spool(folder)
    for step in range(20):
        spool.append(point_record({"train/loss": 1.0, "lr/all": 0.1}, step=step, time_ms=step))
    spool.append({"t": 1, "tags": {"failure": "the server went away"}})
    spool.close()
    FileQueue(folder).add_bytes(b"x", "checkpoints/last.pt")
    write_status(folder, status="FAILED", end_time=123_456)
    return run_id, folder


def test_points_files_and_status_are_sent(client, left_behind):
    run_id, _ = left_behind
    result = CliRunner().invoke(main, ["--run", run_id])
    assert result.exit_code == 0, result.output
    assert "sent 40 points, 1 files, status FAILED" in result.output
    run = client.get_run(run_id)
    assert (run.info.status, run.info.end_time) == ("FAILED", 123_456)
    assert run.data.tags["failure"] == "the server went away"
    history = client.get_metric_history(run_id, "train/loss")
    assert [(m.step, m.timestamp) for m in history] == [(i, i) for i in range(20)]
    assert [info.path for info in client.list_artifacts(run_id, "checkpoints")]


def test_sending_again_doubles_nothing(client, left_behind):
    run_id, folder = left_behind
    assert CliRunner().invoke(main, []).exit_code == 0
    (folder / "sent.json").unlink()  # as if it was killed before it could note what was taken
    result = CliRunner().invoke(main, ["--run", "all"])
    assert result.exit_code == 0, result.output
    assert len(client.get_metric_history(run_id, "lr/all")) == 20
    assert "nothing to send" in CliRunner().invoke(main, []).output


def test_a_store_that_is_still_away_is_told_and_nothing_is_lost(client, left_behind, monkeypatch):
    run_id, folder = left_behind
    SpoolInfo(run_id, "http://127.0.0.1:9", "train").write(folder)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    result = CliRunner().invoke(main, [])
    assert result.exit_code == 1
    assert "something is left" in result.output
    assert "sent 0 points, 0 files" in result.output


def test_a_run_that_still_writes_is_left_alone(client, left_behind):
    _, folder = left_behind
    spool = Spool(folder)
    result = CliRunner().invoke(main, [])
    spool.close()
    assert result.exit_code == 1
    assert "still going on" in result.output


def test_an_unknown_run_is_a_usage_error(store):
    assert CliRunner().invoke(main, ["--run", "nonsense"]).exit_code == 2
