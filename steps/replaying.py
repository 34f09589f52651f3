"""What the replay step does: a capsule, its experiment and its checkpoints brought together."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steps.devices import find_device
from steps.experiment import ConfigError, load
from steps.options import working_folder
from steps.prepared import PreparedError, prepared_index, wiring_of
from steps.replay_report import as_json, report_lines
from steps.runs import open_run
from steps.tracking_store import open_client, use_tracking_store

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from engine.contract import Task
    from steps.experiment import Loaded

logger = logging.getLogger(__name__)


class ReplayError(Exception):
    """A capsule that cannot be replayed; one sentence."""

    exit_code = 1


@dataclass(frozen=True)
class Found:
    """A capsule on this machine.

    Args:
        folder: with `capsule.pt`.
        run_id: the train run that left it; empty where that is not known.
    """

    folder: Path
    run_id: str


def replay(capsule: str, *, prepare_run: str, device: str) -> list[str]:
    """Replay a capsule in a run of its own; return the report, the verdict last.

    Args:
        capsule: its folder or file, or `RUN_ID`, or `RUN_ID/update-<n>`.
        prepare_run: the prepare run whose index is used; empty: the train run's, or prepare now.
        device: auto, cpu, cuda or cuda:N.

    Raises:
        ReplayError, CapsuleError: if something that is needed cannot be had.
    """
    from engine.capsule import load_capsule

    client = open_client(use_tracking_store())
    found = find_capsule(capsule)
    content = load_capsule(found.folder)
    loaded = _experiment(found)
    torch_device = find_device(device)
    tags = {"capsule": str(found.folder), **({"train_run": found.run_id} if found.run_id else {})}
    with open_run("replay", loaded, tags=tags) as run:
        from engine.replay import Reference
        from engine.replay import replay as replay_capsule

        task = _build_task(loaded, found, client, prepare_run=prepare_run, run_id=run.run_id)
        try:
            states = _states_before(found, content)
            outcome = replay_capsule(
                task,
                content,
                device=torch_device,
                references=[Reference(name, state["network"]) for name, state in states],
                checkpoint=states[0][1] if states else None,
                compat=loaded.experiment.defects,
            )
        finally:
            task.close()
        lines = report_lines(outcome)
        run.json(as_json(outcome), "replay.json")
        run.tag("verdict", outcome.verdict.cause)
        run.describe(lines[-1], more="\n".join(f"    {line}" for line in lines[:-1]))
        return [*lines[:-1], f"run {run.run_id}", lines[-1]]


def find_capsule(capsule: str) -> Found:
    """Return the folder that a person means; it is fetched from the run's artifacts if need be.

    Raises:
        ReplayError: if there is none.
    """
    path = Path(capsule).expanduser()
    if path.exists():
        folder = (path if path.is_dir() else path.parent).absolute()
        inner = _capsules_in(folder) or _capsules_in(folder / "capsules")
        folder = folder if (folder / "capsule.pt").is_file() or not inner else inner[-1]
        return Found(folder, _run_of(folder))
    run_id, _, name = capsule.partition("/")
    if not run_id.isalnum() or "/" in name:
        raise ReplayError(f"capsule={capsule}: no such folder, and not the id of a run")
    folders = _capsules_in(working_folder() / "runs" / run_id / "capsules")
    folders = folders or _capsules_in(_fetch(run_id, "capsules"))
    chosen = [folder for folder in folders if name in ("", folder.name)]
    if not chosen:
        there = ", ".join(folder.name for folder in folders) or "none"
        raise ReplayError(
            f"capsule={capsule}: the run has no such capsule, on this machine or in the store; "
            f"there is {there}"
        )
    return Found(chosen[-1], run_id)


def _capsules_in(folder: Path | None) -> list[Path]:
    from engine.capsule import capsule_folders

    return [] if folder is None else capsule_folders(folder)


def _run_of(folder: Path) -> str:
    """Return the run whose working folder a capsule lies in, or an empty text."""
    runs = working_folder() / "runs"
    run_folder = folder.parent.parent
    return run_folder.name if run_folder.parent == runs else ""


def _experiment(found: Found) -> Loaded:
    """Return the experiment of a capsule: of the file beside it, or beside the checkpoints."""
    for folder in (found.folder, found.folder.parent.parent):
        if (folder / "config.yaml").is_file():
            return load(folder / "config.yaml")
    if found.run_id:
        fetched = _fetch(found.run_id, "config.yaml")
        if fetched is not None:
            return load(fetched)
    raise ReplayError(
        f"{found.folder}: there is no config.yaml beside the capsule, which says of which "
        "experiment it is; put the experiment's there, or give the train run's id as capsule"
    )


def _build_task(
    loaded: Loaded, found: Found, client: MlflowClient, *, prepare_run: str, run_id: str
) -> Task:
    """Return the experiment's task, which needs the index of its data.

    Raises:
        ReplayError: if there is no index and none can be made.
    """
    from readers.records import DatasetError

    source = prepare_run or _source_of_index(found, client)
    try:
        index = prepared_index(
            loaded, prepare_run=source, run_id=run_id, is_inherited=not prepare_run
        )
        return wiring_of(loaded).build_task(loaded.experiment, index=index)
    except (DatasetError, PreparedError, ConfigError, OSError) as error:
        raise ReplayError(
            "the task cannot be built without the index of the experiment's data: "
            f"{str(error).splitlines()[0]}; replay where the data is, or give prepare_run, the id "
            "of a prepare run that has it"
        ) from error


def _source_of_index(found: Found, client: MlflowClient) -> str:
    """Return the run whose index the train run used, or an empty text."""
    if not found.run_id:
        return ""
    if any((working_folder() / "runs" / found.run_id / "index").glob("*.arrow")):
        return found.run_id
    from mlflow.exceptions import MlflowException

    try:
        return str(client.get_run(found.run_id).data.tags.get("prepare_run", ""))
    except MlflowException:
        return ""


def _states_before(found: Found, capsule: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the run's checkpoints from before the capsule with names, the newest first."""
    from engine.checkpoint import CheckpointError, CheckpointStore

    store = CheckpointStore(found.folder.parent.parent / "checkpoints")
    paths = sorted(store.directory.glob("*.pt"), reverse=True) if store.directory.is_dir() else []
    if not paths and found.run_id:
        fetched = (_fetch(found.run_id, f"checkpoints/{name}.pt") for name in ("last", "best"))
        paths = [path for path in fetched if path is not None]
    states: dict[int, tuple[str, Any]] = {}
    for path in paths:
        try:
            state = store.load(path)
        except CheckpointError as error:
            logger.warning("%s", error)
            continue
        if state.get("update", 0) <= capsule["update"]:
            name = f"the checkpoint of update {state['update']} ({path.name})"
            states.setdefault(int(state["update"]), (name, state))
    return [states[update] for update in sorted(states, reverse=True)]


def _fetch(run_id: str, artifact: str) -> Path | None:
    """Return a local copy of a run's artifact, or None if it cannot be had."""
    import mlflow
    from mlflow.exceptions import MlflowException

    destination = working_folder() / "runs" / run_id / "fetched"
    destination.mkdir(parents=True, exist_ok=True)
    try:
        return Path(
            mlflow.artifacts.download_artifacts(
                run_id=run_id, artifact_path=artifact, dst_path=str(destination)
            )
        )
    except (MlflowException, OSError):
        return None
