"""Doctor says what is missing and what to do about it."""

import os
import socket
import subprocess
import sys

import pytest
from click.testing import CliRunner

from steps import checks, store_check
from steps.doctor import main
from steps.provenance import is_process_alive, process_start
from steps.tracking_store import open_client, use_tracking_store


def _doctor(*arguments):
    return CliRunner().invoke(main, arguments)


@pytest.fixture
def quick(monkeypatch):
    """Leave the slow import of OpenCV out."""
    monkeypatch.setattr(checks, "check_opencv", lambda: checks.Check("opencv", "ok", "5"))


def test_a_sound_machine_gets_exit_code_0(store, quick):
    result = _doctor()
    assert result.exit_code == 0, result.output
    assert "FAIL" not in result.output
    assert "none says RUNNING" in result.output


def test_a_missing_library_fails_with_the_command_that_installs_it(store, quick, monkeypatch):
    monkeypatch.setattr(checks, "_version", lambda name: None if name == "pyarrow" else "1.0")
    result = _doctor()
    assert result.exit_code == 1
    assert "pyarrow is missing" in result.output
    assert "pip install -e" in result.output


def test_versions_out_of_range_are_named(monkeypatch):
    monkeypatch.setattr(checks, "_version", lambda name: "0.0.1")
    assert "click is 0.0.1, <9,>=8.1 is needed" in checks.check_libraries().finding


def test_missing_libgl_names_both_ways_out(monkeypatch):
    error = "ImportError: libGL.so.1: cannot open shared object file: No such file or directory"
    failed = subprocess.CompletedProcess([], 1, "", f"Traceback\n{error}\n")
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: failed)
    check = checks.check_opencv()
    assert (check.verdict, check.finding) == ("FAIL", error)
    assert "opencv-python-headless" in check.advice
    assert "apt-get install libgl1" in check.advice


@pytest.mark.parametrize(
    ("on_path", "told"),
    [
        ({"mlflow"}, "add --env-manager local"),
        ({"mlflow", "uv"}, "add --env-manager local or uv"),
        ({"mlflow", "conda"}, ""),
        (set(), "put this environment first"),
    ],
)
def test_the_env_manager_to_use_is_told(monkeypatch, on_path, told):
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}" if name in on_path else None)
    monkeypatch.delenv("MLFLOW_CONDA_HOME", raising=False)
    advice = checks.check_env_manager().advice
    assert told in advice
    assert bool(told) == bool(advice)


@pytest.mark.parametrize(("asked", "verdict"), [("1", "ok"), ("4096", "warn"), ("x", "warn")])
def test_more_threads_than_cores_are_noted(monkeypatch, asked, verdict):
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert checks.check_threads().verdict == verdict


def test_a_working_folder_that_cannot_be_written_fails(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SIGHTFLOW_HOME", str(tmp_path / "file" / "below"))
    check = checks.check_working_folder()
    assert check.verdict == "FAIL"
    assert "SIGHTFLOW_HOME" in check.advice


@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("./mlruns", "is a folder"),
        ("file:///tmp/mlruns", "is a folder"),
        ("http://127.0.0.1:9", "refused"),
        ("http://me:secret@127.0.0.1:9", "refused"),
    ],
)
def test_a_store_that_cannot_work_fails(monkeypatch, uri, told):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    check = store_check.check_store()
    assert check.verdict == "FAIL"
    assert told in check.finding
    assert "secret" not in check.finding


def test_a_database_of_another_mlflow_is_told_how_to_upgrade(store, tmp_path):
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'abc'")
        connection.commit()
    check = store_check.check_store()
    assert check.verdict == "FAIL"
    assert "mlflow db upgrade" in check.advice


def test_a_database_error_is_raised_and_not_logged_as_well(store, caplog):
    import logging

    open_client(store)
    log = logging.getLogger("mlflow.store.db.utils")
    log.error("told with its traceback", exc_info=ValueError())
    log.error("told")
    assert "told" in caplog.messages
    assert "told with its traceback" not in caplog.messages


def test_the_default_store_does_not_depend_on_the_current_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    environ = {}
    uri = use_tracking_store(environ)
    assert uri == f"sqlite:///{checks.PROJECT_FOLDER}/mlflow.db"
    assert environ["MLFLOW_TRACKING_URI"] == uri
    assert (
        use_tracking_store({"MLFLOW_TRACKING_URI": "sqlite:///a.db"})
        == f"sqlite:///{tmp_path}/a.db"
    )


@pytest.mark.slow
def test_init_makes_the_database(monkeypatch, tmp_path, quick):
    monkeypatch.setenv("SIGHTFLOW_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/new/mlflow.db")
    assert "does not exist yet" in _doctor().output
    result = _doctor("--init", "true")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "new" / "mlflow.db").exists()


def _dead_process():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return str(process.pid)


def _run(client, **tags):
    return client.create_run("0", tags={"host": socket.gethostname(), **tags}).info.run_id


def test_runs_whose_process_is_gone_are_listed_and_closed_when_asked(client, quick):
    gone = _run(client, pid=_dead_process())
    reused = _run(client, pid=str(os.getpid()), **{"pid.started": "another+time"})
    alive = _run(client, pid=str(os.getpid()), **{"pid.started": process_start(os.getpid())})
    elsewhere = _run(client, pid="1", host="another machine")
    listed = _doctor().output
    assert gone in listed
    assert reused in listed
    assert "--close true" in listed
    assert alive not in listed
    assert elsewhere not in listed
    assert client.get_run(gone).info.status == "RUNNING"
    assert _doctor("--close", "true").exit_code == 0
    statuses = [client.get_run(run).info.status for run in (gone, reused, alive, elsewhere)]
    assert statuses == ["FAILED", "FAILED", "RUNNING", "RUNNING"]
    assert "is gone" in client.get_run(gone).data.tags["failure"]


def test_old_runs_that_never_started_are_closed_by_all_only(client, quick):
    old = client.create_run("0", start_time=1).info.run_id
    young = client.create_run("0").info.run_id
    assert "its step never started" in _doctor("--close", "true").output
    assert client.get_run(old).info.status == "RUNNING"
    _doctor("--close", "all")
    assert client.get_run(old).info.status == "FAILED"
    assert client.get_run(young).info.status == "RUNNING"


def test_points_that_wait_are_pointed_out(client, quick, tmp_path):
    from steps.spool import Spool, SpoolInfo, point_record

    folder = tmp_path / "home" / "runs" / "abc"
    SpoolInfo("abc", "http://away", "train").write(folder)
    spool = Spool(folder)
    spool.append(point_record({"a": 1.0}, step=0, time_ms=0))
    spool.close()
    assert "python -m steps.sync" in _doctor().output


def test_a_living_process_is_known_by_its_start():
    assert is_process_alive(os.getpid(), process_start(os.getpid()))
    assert not is_process_alive(os.getpid(), "another+time")
    assert not is_process_alive(int(_dead_process()), None)
