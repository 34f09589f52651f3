"""The sync entry point: what a run could not send while its tracking store was away is sent now."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from steps.delivery import Delivery, StoreAwayError
from steps.file_queue import FileQueue
from steps.options import FAILED, step_command, working_folder
from steps.spool import Spool, SpoolInfo, read_json, read_status
from steps.tracking_store import StoreError, open_client, use_tracking_store, without_credentials

if TYPE_CHECKING:
    from mlflow import MlflowClient

logger = logging.getLogger(__name__)

ALL_RUNS = "all"
# files refused in a row after which the store counts as away
_MOST_REFUSED = 3
_CREDENTIALS = ("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_AUTH")


@dataclass(frozen=True)
class Outcome:
    """What came of one spool.

    Args:
        points: how many points were sent.
        files: how many artifacts were sent.
        status: the status that was set, or an empty text.
        problem: why something is left, or an empty text.
    """

    points: int = 0
    files: int = 0
    status: str = ""
    problem: str = ""


@step_command()
@click.option(
    "--run",
    "run_id",
    default=ALL_RUNS,
    metavar="RUN_ID|all",
    show_default=True,
    help="The run whose points and files are sent.",
)
@click.option(
    "--folder",
    default="",
    metavar="FOLDER",
    help="Folder of the spools. Default: `runs` in SIGHTFLOW_HOME or .sightflow.",
)
def main(run_id: str, folder: str) -> None:
    """Send what runs could not send to the tracking store when they ran.

    Goes into the same runs, with the original times; calling it again doubles nothing.
    """
    source = Path(folder).absolute() if folder else working_folder() / "runs"
    spools = list(find_spools(source, run_id or ALL_RUNS))
    if not spools and run_id not in ("", ALL_RUNS):
        raise click.UsageError(f"no spool of run {run_id} in {source}")
    has_failed = False
    for path, info in spools:
        outcome = send_spool(path, info)
        _report(info, outcome)
        has_failed |= bool(outcome.problem)
    if not spools:
        click.echo(f"nothing to send in {source}")
    if has_failed:
        click.get_current_context().exit(FAILED)


def find_spools(source: Path, run_id: str) -> Iterator[tuple[Path, SpoolInfo]]:
    """Yield the spools that hold something unsent.

    Args:
        source: folder of run folders, or a run's folder itself.
        run_id: the run that wrote them, the run that they go to, or `all`.
    """
    # a run's own spool, and that for its pipeline's run in `parent`
    patterns = ("meta.json", "parent/meta.json", "*/meta.json", "*/parent/meta.json")
    for meta in sorted({path for pattern in patterns for path in source.glob(pattern)}):
        info = SpoolInfo.read(meta.parent)
        if not _holds_something(meta.parent):
            continue
        if info is None:
            logger.warning("%s is damaged: whose points lie beside it cannot be told", meta)
            continue
        if run_id == ALL_RUNS or run_id in (info.run_id, *meta.parent.parts):
            yield meta.parent, info


def send_spool(folder: Path, info: SpoolInfo) -> Outcome:
    """Send what one spool holds, as far as the store takes it."""
    try:
        spool = Spool(folder)
    except BlockingIOError:
        return Outcome(problem="the run is still going on and sends by itself")
    num_points = spool.num_unsent_points
    files = FileQueue(folder)
    num_files = len(files.pending())
    status = str(read_status(folder).get("status", ""))
    problem = ""
    try:
        delivery = Delivery(info.run_id, spool, files, _client(info))
        delivery.send_records()
        problem = _send_files(delivery)
        delivery.send_status()
    except StoreAwayError as error:
        problem = str(error)
    finally:
        spool.close()
    return Outcome(
        points=num_points - spool.num_unsent_points,
        files=num_files - len(files.pending()),
        status="" if read_status(folder) else status,
        problem=problem,
    )


def _send_files(delivery: Delivery) -> str:
    """Send every file once; return what went wrong with the last one that was refused."""
    problem = ""
    while True:
        try:
            if not delivery.send_file(now=None):
                return problem
        except StoreAwayError as error:
            problem = str(error)
            if delivery.num_aside >= _MOST_REFUSED:
                return problem


def _client(info: SpoolInfo) -> MlflowClient:
    """Return a client of the spool's store; credentials come from the environment."""
    from mlflow import MlflowException

    asked = use_tracking_store()
    uri = asked if without_credentials(asked) == info.tracking_uri else info.tracking_uri
    if uri != asked and any(os.environ.get(name) for name in _CREDENTIALS):
        # MLflow sends them to whichever server it talks to
        raise StoreAwayError(
            f"it goes to {uri}, and the credentials in the environment are for "
            f"{without_credentials(asked)}; set MLFLOW_TRACKING_URI={uri} if they are right there"
        )
    os.environ["MLFLOW_TRACKING_URI"] = uri
    try:
        return open_client(uri)
    except (StoreError, MlflowException) as error:
        raise StoreAwayError(str(error)) from error


def _holds_something(folder: Path) -> bool:
    """Whether records, files or a status wait; does not disturb a process that writes."""
    path = folder / "spool.jsonl"
    size = path.stat().st_size if path.exists() else 0
    sent = int(read_json(folder / "sent.json").get("offset", 0))
    has_files = any((folder / "files").glob("*.json"))
    return sent < size or has_files or (folder / "status.json").exists()


def _report(info: SpoolInfo, outcome: Outcome) -> None:
    parts = [f"{outcome.points} points", f"{outcome.files} files"]
    if outcome.status:
        parts.append(f"status {outcome.status}")
    click.echo(f"run {info.run_id} ({info.step}): sent {', '.join(parts)}")
    if outcome.problem:
        click.echo(f"run {info.run_id}: something is left: {outcome.problem}", err=True)


if __name__ == "__main__":
    main()
