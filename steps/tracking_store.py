"""Where runs are kept: the tracking store's address, its first set-up, its experiments.

`MLFLOW_TRACKING_URI` says where; without it, `mlflow.db` in the project's folder with the artifacts
in `mlruns` beside it, whatever the current directory is.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
from collections.abc import Iterator, MutableMapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from steps.options import PROJECT_FOLDER

if TYPE_CHECKING:
    from mlflow import MlflowClient

logger = logging.getLogger(__name__)

SQLITE = "sqlite:///"
# MLflow's own (7 tries, 120 s each) block a call for minutes. What does not get through is tried
# again from the spool, so short ones lose nothing.
HTTP_LIMITS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}
# file systems on which several machines' locks, or memory maps, do not work as SQLite needs them
NETWORK_FILE_SYSTEMS = {
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "lustre",
    "gpfs",
    "beegfs",
    "fuse.sshfs",
    "9p",
}


class StoreError(Exception):
    """The tracking store cannot be used; the message says which and why."""

    exit_code = 1


def use_tracking_store(environ: MutableMapping[str, str] = os.environ) -> str:
    """Decide on the tracking store for this process and its children; return its address.

    Also shortens MLflow's HTTP limits where the user has not set them.

    Raises:
        StoreError: if the address is a folder, which MLflow no longer keeps runs in.
    """
    for name, value in HTTP_LIMITS.items():
        environ.setdefault(name, value)
    uri = absolute_uri(environ.get("MLFLOW_TRACKING_URI") or default_uri())
    if urlsplit(uri).scheme in ("", "file") and not uri.startswith("databricks"):
        raise StoreError(
            f"MLFLOW_TRACKING_URI={uri} is a folder, and MLflow keeps runs in a database or on a "
            f"server: use {SQLITE}/PATH/mlflow.db or http://HOST:PORT "
            "(`mlflow migrate-filestore` moves old runs)"
        )
    environ["MLFLOW_TRACKING_URI"] = uri
    return uri


def default_uri() -> str:
    """Return the address of the embedded store."""
    return f"{SQLITE}{PROJECT_FOLDER / 'mlflow.db'}"


def absolute_uri(uri: str) -> str:
    """Return the address with a relative database path made absolute."""
    if not uri.startswith(SQLITE) or uri == f"{SQLITE}:memory:":
        return uri
    return f"{SQLITE}{Path(uri.removeprefix(SQLITE)).absolute()}"


def without_credentials(uri: str) -> str:
    """Return the address without a user's name and password."""
    parts = urlsplit(uri)
    if "@" not in parts.netloc:
        return uri
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def database_file(uri: str) -> Path | None:
    """Return the file of an SQLite store, or None for any other store."""
    return Path(uri.removeprefix(SQLITE)) if uri.startswith(SQLITE) else None


def init_store(uri: str) -> None:
    """Set an SQLite store up if it is new; any other store is left alone.

    Processes that come at the same time wait for the first one: MLflow itself lets them collide.

    Raises:
        StoreError: if the database cannot be made or opened, or is of another MLflow's format.
    """
    path = database_file(uri)
    if path is None or _has_tables(path):
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _only_one(path.with_name(f"{path.name}-init.lock")):
            if not _has_tables(path):
                _create(uri, path)
    except OSError as error:
        raise StoreError(f"{path}: the tracking database cannot be made: {error}") from error


def open_client(uri: str) -> MlflowClient:
    """Return a client for the store, which is set up before if need be.

    Raises:
        StoreError: as `init_store`.
    """
    init_store(uri)
    import mlflow

    # MLflow logs each database error with its traceback before it raises it
    logging.getLogger("mlflow.store.db.utils").addFilter(_without_tracebacks)
    mlflow.set_tracking_uri(uri)
    try:
        return mlflow.MlflowClient(tracking_uri=uri)
    except mlflow.MlflowException as error:
        raise StoreError(
            f"{without_credentials(uri)}: the tracking store cannot be opened: {error}"
        ) from error


def _without_tracebacks(record: logging.LogRecord) -> bool:
    return not record.exc_info


def find_experiment(client: MlflowClient, uri: str, name: str) -> str:
    """Return the id of the experiment of that name, which is made if there is none.

    `MLFLOW_EXPERIMENT_ID` and `MLFLOW_EXPERIMENT_NAME` go before `name`. With an SQLite store the
    artifacts of a new experiment lie beside the database.

    Raises:
        StoreError: if the experiment was deleted in the UI.
    """
    if experiment_id := os.environ.get("MLFLOW_EXPERIMENT_ID"):
        return experiment_id
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or name
    found = client.get_experiment_by_name(name)
    if found is None:
        return _create_experiment(client, uri, name)
    if found.lifecycle_stage == "deleted":
        raise StoreError(
            f"experiment {name!r} was deleted: restore it (`mlflow experiments restore -x "
            f"{found.experiment_id}`) or set MLFLOW_EXPERIMENT_NAME to another name"
        )
    return str(found.experiment_id)


def _create_experiment(client: MlflowClient, uri: str, name: str) -> str:
    from mlflow import MlflowException

    path = database_file(uri)
    folder = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
    location = None if path is None else str(path.parent / "mlruns" / folder)
    try:
        return str(client.create_experiment(name, artifact_location=location))
    except MlflowException:
        # another process may have made it in between
        found = client.get_experiment_by_name(name)
        if found is None:
            raise
        return str(found.experiment_id)


def _create(uri: str, path: Path) -> None:
    from mlflow import MlflowException
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
    from sqlalchemy.exc import SQLAlchemyError

    logger.info("setting up the tracking database %s", path)
    try:
        SqlAlchemyStore(uri, str(path.parent / "mlruns"))
    except (MlflowException, SQLAlchemyError) as error:
        raise StoreError(f"{path}: the tracking database cannot be made: {error}") from error
    if file_system(path) in NETWORK_FILE_SYSTEMS:
        logger.warning(
            "%s lies on a network file system, where SQLite may lose data when several machines "
            "write: use a tracking server (MLFLOW_TRACKING_URI=http://...)",
            path,
        )
        return
    with closing(sqlite3.connect(path)) as connection:
        # readers and the writer no longer wait for each other; stays set for this file
        connection.execute("PRAGMA journal_mode=WAL")


def _has_tables(path: Path) -> bool:
    """Whether the set-up of the database was finished: its last step adds experiment 0."""
    if not path.exists() or path.stat().st_size == 0:
        return False
    try:
        with closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        ) as connection:
            query = "SELECT count(*) FROM experiments WHERE experiment_id = 0"
            return bool(connection.execute(query).fetchone()[0])
    except sqlite3.Error:
        return False


@contextmanager
def _only_one(path: Path) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def file_system(path: Path) -> str:
    """Return the type of the file system that a path lies on, or an empty text if unknown."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return ""
    folder = path.absolute().parent
    best, kind = "", ""
    for line in mounts.read_text().splitlines():
        fields = line.split()
        point = fields[1].replace("\\040", " ")
        if folder.is_relative_to(point) and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind
