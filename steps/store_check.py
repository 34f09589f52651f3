"""Is the tracking store there, of the right format, and does it take what is written?"""

from __future__ import annotations

import os
import socket
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

from steps.checks import Check
from steps.tracking_store import (
    NETWORK_FILE_SYSTEMS,
    StoreError,
    database_file,
    file_system,
    use_tracking_store,
    without_credentials,
)

_CONNECT_S = 5.0


def check_store() -> Check:
    """Look at the tracking store without changing it."""
    try:
        uri = use_tracking_store()
    except StoreError as error:
        return Check("tracking store", "FAIL", str(error))
    path = database_file(uri)
    if path is not None:
        return _check_database(path)
    if uri.startswith(("http://", "https://")):
        return _check_server(uri)
    return Check("tracking store", "ok", f"{without_credentials(uri)} (not tried)")


def _check_server(uri: str) -> Check:
    shown = without_credentials(uri)
    parts = urlsplit(uri)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with socket.create_connection((parts.hostname or "", port), timeout=_CONNECT_S):
            pass
    except OSError as error:
        advice = "start the server, or unset MLFLOW_TRACKING_URI for the embedded database"
        return Check("tracking store", "FAIL", f"{shown}: {error}", advice)
    return _ask_server(uri, shown)


def _ask_server(uri: str, shown: str) -> Check:
    import mlflow

    os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = "0"
    os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] = "10"
    try:
        mlflow.MlflowClient(tracking_uri=uri).search_experiments(max_results=1)
    except mlflow.MlflowException as error:
        finding = f"{shown}: {str(error).splitlines()[0]}"
        advice = "look at the server's log; 401 and 403 ask for MLFLOW_TRACKING_USERNAME/PASSWORD"
        return Check("tracking store", "FAIL", finding, advice)
    return Check("tracking store", "ok", f"{shown} answers")


def _check_database(path: Path) -> Check:
    kind = file_system(path)
    if kind in NETWORK_FILE_SYSTEMS:
        advice = "use a tracking server: SQLite loses data where several machines write"
        return Check("tracking store", "warn", f"{path} lies on {kind}", advice)
    if not path.exists():
        return _check_place(path)
    try:
        found = _schema(path)
        with closing(sqlite3.connect(path, timeout=5)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.rollback()
    except sqlite3.Error as error:
        advice = "another process may hold it, or it cannot be written"
        return Check("tracking store", "FAIL", f"{path}: {error}", advice)
    expected = _expected_schema()
    if found != expected:
        advice = (
            f"back {path.name} up, then `mlflow db upgrade sqlite:///{path}` "
            "(a database of a newer MLflow cannot be used by this one)"
        )
        finding = f"{path} has schema {found}, this MLflow needs {expected}"
        return Check("tracking store", "FAIL", finding, advice)
    return Check("tracking store", "ok", f"{path}, schema {found}")


def _check_place(path: Path) -> Check:
    folder = path.parent
    while not folder.exists():
        folder = folder.parent
    if not os.access(folder, os.W_OK):
        advice = "set MLFLOW_TRACKING_URI to a place that can be written"
        return Check("tracking store", "FAIL", f"{folder} cannot be written", advice)
    advice = (
        "made at the first run; before starting several at once: python -m steps.doctor --init true"
    )
    return Check("tracking store", "ok", f"{path} does not exist yet", advice)


def _schema(path: Path) -> str:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=5)) as connection:
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return str(row[0]) if row else "none"


def _expected_schema() -> str:
    """Return the newest revision among MLflow's migrations."""
    from alembic.script import ScriptDirectory
    from mlflow.store import db_migrations

    return str(ScriptDirectory(str(Path(db_migrations.__path__[0]))).get_current_head())
