"""A tracking server that goes away, hangs or fails does not stop a training or lose its points."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from steps.run_log import Channel, MlflowRunLog
from steps.runs import open_run
from steps.spool import SpoolInfo, read_status


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """`mlflow server` over an SQLite file, which can be killed and started again."""

    def __init__(self, database, artifacts):
        self.port = _free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self._options = ["--backend-store-uri", f"sqlite:///{database}"]
        self._options += ["--artifacts-destination", str(artifacts), "--workers", "1"]
        self._log = (artifacts.parent / "server.log").open("a")
        self._process = None

    def start(self):
        command = [sys.executable, "-m", "mlflow", "server", "--port", str(self.port)]
        environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        self._process = subprocess.Popen(
            command + self._options,
            stdout=self._log,
            stderr=self._log,
            env=environment,
            start_new_session=True,
        )
        deadline = time.monotonic() + 120
        while not self._answers():
            assert time.monotonic() < deadline, "the server did not start"
            assert self._process.poll() is None, "the server ended"
            time.sleep(0.3)

    def kill(self):
        """Kill it and its worker at once, as a lost machine would."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _answers(self):
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=2) as answer:
                return answer.status == 200
        except OSError:
            return False


@pytest.fixture
def server(store, tmp_path, monkeypatch):
    import mlflow

    server = Server(tmp_path / "mlflow.db", tmp_path / "artifacts")
    server.start()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
    mlflow.set_tracking_uri(server.uri)
    yield server
    server.kill()


def _log_points(run, steps):
    for step in steps:
        run.log.metrics({"train/loss": step / 3, "lr/all": 0.1}, step=step)


@pytest.mark.slow
def test_server_killed_and_started_again_in_mid_training(server):
    import mlflow
    import numpy as np

    with open_run("train", None) as run:
        _log_points(run, range(150))
        assert run.log.flush(60.0)
        server.kill()
        _log_points(run, range(150, 300))
        run.log.pictures({"01": np.zeros((20, 30, 3), np.uint8)}, step=200)
        run.tag("dataset", "later")
        assert not run.log.flush(30.0, patience_s=0.5)
        assert run.log.unsent()[0] == 300
        server.start()
        assert run.log.flush(120.0, patience_s=120.0)
    client = mlflow.MlflowClient()
    for key in ("train/loss", "lr/all"):
        history = client.get_metric_history(run.run_id, key)
        assert sorted(metric.step for metric in history) == list(range(300))
    found = client.get_run(run.run_id)
    assert found.info.status == "FINISHED"
    assert found.data.tags["dataset"] == "later"
    assert len(client.list_artifacts(run.run_id, "images")) == 2


@pytest.mark.slow
def test_server_away_at_the_end_leaves_all_to_sync(server, monkeypatch):
    import mlflow
    from click.testing import CliRunner

    from steps.sync import main

    monkeypatch.setattr("steps.run_end.Ending.limits_s", (20.0, 1.0))
    with pytest.raises(ValueError, match="the real reason"), open_run("train", None) as run:  # noqa: PT012
        _log_points(run, range(100))
        server.kill()
        _log_points(run, range(100, 200))
        raise ValueError("the real reason")
    assert read_status(run.log.folder)["status"] == "FAILED"
    assert CliRunner().invoke(main, []).exit_code == 1
    server.start()
    result = CliRunner().invoke(main, ["--run", run.run_id])
    assert result.exit_code == 0, result.output
    found = mlflow.MlflowClient().get_run(run.run_id)
    assert found.info.status == "FAILED"
    assert found.data.tags["failure"] == "ValueError: the real reason"
    assert len(mlflow.MlflowClient().get_metric_history(run.run_id, "train/loss")) == 200


class Stub(BaseHTTPRequestHandler):
    """Answers 500, or not at all."""

    is_hanging = False

    def do_POST(self):
        if type(self).is_hanging:
            time.sleep(5)
        self.send_error(500)

    do_GET = do_POST  # noqa: N815

    def log_message(self, *arguments):
        pass


@pytest.fixture(params=["fails", "hangs"])
def broken_server(request, monkeypatch):
    monkeypatch.setattr(Stub, "is_hanging", request.param == "hangs")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Stub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_broken_server_takes_nothing_and_stops_nothing(broken_server, tmp_path):
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=broken_server)
    log = MlflowRunLog(Channel(tmp_path, SpoolInfo("a" * 32, broken_server, "train"), client))
    for step in range(100):
        log.metrics({"train/loss": 1.0}, step=step)
    log.content(b"x", "config.yaml")
    assert not log.finish(20.0, patience_s=0.5)
    assert log.unsent() == (100, 2)  # points.jsonl is the second file
