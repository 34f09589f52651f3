"""A tracking store of its own for each test, and tools to look into it."""

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

# before anything imports mlflow
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("DO_NOT_TRACK", "true")

FOREIGN = ("MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME", "RANK")


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory) -> Path:
    """A database with MLflow's tables: making them takes seconds, so once for all tests."""
    from steps.tracking_store import init_store

    path = tmp_path_factory.mktemp("empty-store") / "mlflow.db"
    init_store(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


@pytest.fixture
def store(empty_database, tmp_path, monkeypatch) -> str:
    """The address of an empty SQLite store in `tmp_path`, which also is the working folder."""
    import mlflow

    path = tmp_path / "mlflow.db"
    shutil.copyfile(empty_database, path)
    for name in FOREIGN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SIGHTFLOW_HOME", str(tmp_path / "home"))
    uri = f"sqlite:///{path}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    mlflow.set_tracking_uri(uri)
    yield uri
    while mlflow.active_run():
        mlflow.end_run()
    mlflow.set_tracking_uri(None)


@pytest.fixture
def client(store):
    """A client of that store."""
    import mlflow

    return mlflow.MlflowClient(tracking_uri=store)
