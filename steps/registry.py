"""The model registry as the steps use it: versions, the three aliases, notes, and one lock.

MLflow keeps no history of aliases and has no compare-and-swap: what is set is read back, who did it
and why goes into the version's description, and the old champion stays reachable as `previous`.
Nothing here deletes anything.
"""

from __future__ import annotations

import getpass
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

CANDIDATE, CHAMPION, PREVIOUS = "candidate", "champion", "previous"
GATE_TAG = "gate"
NOTES_HEADING = "### History"
# the registry's column holds 5000 characters; the oldest notes go first
MAX_DESCRIPTION = 4900


class RegistryError(Exception):
    """Something in the registry that is not as the caller thinks; one sentence."""

    exit_code = 1


@contextmanager
def registry_lock(folder: Path) -> Iterator[None]:
    """Hold the one lock under which versions are made and aliases moved from this machine.

    Args:
        folder: the working folder; all processes that share a local store share it.
    """
    import fcntl

    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "registry.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def model_name_or_only(client: MlflowClient, name: str) -> str:
    """Return the name, or, where it is empty, that of the only registered model.

    Raises:
        RegistryError: if no name is given and there is not exactly one model.
    """
    if name:
        return name
    known = registered_names(client)
    if len(known) != 1:
        raise RegistryError(
            f"which model? Give --model-name; registered are: {', '.join(known) or 'none yet'}"
        )
    return known[0]


def registered_names(client: MlflowClient) -> list[str]:
    """Return the names of all registered models, sorted."""
    return sorted(str(model.name) for model in client.search_registered_models())


def aliases_of(client: MlflowClient, name: str) -> dict[str, str]:
    """Return alias -> version of a registered model.

    Search results carry no aliases, so they are always read through this.

    Raises:
        RegistryError: if there is no such model; lists those there are.
    """
    from mlflow.exceptions import MlflowException

    try:
        found = client.get_registered_model(name).aliases
    except MlflowException as error:
        known = ", ".join(registered_names(client)) or "none yet"
        raise RegistryError(
            f"there is no registered model {name!r}; registered are: {known}"
        ) from error
    return {str(alias): str(version) for alias, version in found.items()}


def version_of(client: MlflowClient, name: str, version: str) -> ModelVersion:
    """Return a version by its number or by an alias.

    Args:
        client: the registry.
        name: registered model.
        version: a number, or `candidate`, `champion`, `previous`, or another alias.

    Raises:
        RegistryError: if there is no such model, alias or version.
    """
    from mlflow.exceptions import MlflowException

    aliases = aliases_of(client, name)
    number = version if version.isdigit() else aliases.get(version)
    if number is None:
        held = ", ".join(f"{alias}: {number}" for alias, number in sorted(aliases.items()))
        raise RegistryError(
            f"{name}: no version has the alias {version!r} ({held or 'no aliases'})"
        )
    try:
        return client.get_model_version(name, number)
    except MlflowException as error:
        numbers = ", ".join(all_versions(client, name))
        raise RegistryError(
            f"{name}: there is no version {number}; there are: {numbers or 'none'}"
        ) from error


def all_versions(client: MlflowClient, name: str) -> list[str]:
    """Return all version numbers of a registered model, rising."""
    found = client.search_model_versions(f"name='{name}'")
    return sorted((str(version.version) for version in found), key=int)


def move_alias(client: MlflowClient, name: str, *, alias: str, version: str) -> None:
    """Point an alias at a version and read it back.

    Raises:
        RegistryError: if another process moved it meanwhile.
    """
    client.set_registered_model_alias(name, alias, version)
    now = aliases_of(client, name).get(alias)
    if now != version:
        raise RegistryError(
            f"{name}: alias {alias!r} was set to version {version} but points to {now}; somebody "
            "else moved it at the same moment: look, then run again"
        )


def model_id_of(version: ModelVersion) -> str:
    """Return the id of the LoggedModel (`m-...`) behind a version; empty where there is none."""
    source = str(version.source or "")
    return source.removeprefix("models:/") if source.startswith("models:/m-") else ""


def add_note(client: MlflowClient, version: ModelVersion, note: str) -> None:
    """Add a line to the history in a version's description, newest first."""
    text = client.get_model_version(version.name, version.version).description or ""
    head, _, notes = text.partition(NOTES_HEADING)
    lines = [note, *(line[2:] for line in notes.splitlines() if line.startswith("- "))]
    write_description(client, version, head=head, notes=lines)


def write_description(
    client: MlflowClient, version: ModelVersion, *, head: str, notes: list[str]
) -> None:
    """Write headline and history; notes that do not fit are dropped, oldest first."""
    head = head.strip()[:MAX_DESCRIPTION]
    kept = list(notes)
    while kept and len(_description(head, kept)) > MAX_DESCRIPTION:
        kept.pop()
    client.update_model_version(version.name, version.version, _description(head, kept))


def notes_of(version: ModelVersion) -> list[str]:
    """Return the history in a version's description, newest first."""
    notes = (version.description or "").partition(NOTES_HEADING)[2]
    return [line[2:] for line in notes.splitlines() if line.startswith("- ")]


def _description(head: str, notes: list[str]) -> str:
    if not notes:
        return head
    return f"{head}\n\n{NOTES_HEADING}\n" + "\n".join(f"- {note}" for note in notes)


def signature_line() -> str:
    """Return when and who, for notes: `2026-01-31 12:00 UTC, user@host`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = "unknown"
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {user}@{socket.gethostname()}"
