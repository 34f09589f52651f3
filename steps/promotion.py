"""Moving the alias `champion`, forwards and back, with who, when, why and evidence written down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from steps.evidence import comparison, evidence_of
from steps.registry import (
    CHAMPION,
    GATE_TAG,
    PREVIOUS,
    RegistryError,
    add_note,
    aliases_of,
    move_alias,
    signature_line,
    version_of,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion


@dataclass(frozen=True)
class Promotion:
    """What came of it.

    Args:
        name: registered model.
        champion: version that holds the alias now.
        replaced: version that held it before; empty where there was none.
        changed: false if the version was the champion already.
        evidence: scores and runs, in words.
    """

    name: str
    champion: str
    replaced: str
    changed: bool
    evidence: str

    @property
    def summary(self) -> str:
        """One line for the person who ran the step."""
        if not self.changed:
            return f"{self.name}: version {self.champion} is the champion already; nothing to do"
        before = f", version {self.replaced} is `previous` now" if self.replaced else ""
        return f"{self.name}: version {self.champion} is the champion{before} ({self.evidence})"


def promote(
    client: MlflowClient, name: str, *, version: str, reason: str, force: bool
) -> Promotion:
    """Make a version the champion; the old one becomes `previous`. Hold `registry_lock` meanwhile.

    Args:
        client: the registry.
        name: registered model.
        version: its number or an alias.
        reason: why, for the record.
        force: take a version that did not pass its gate; needs a reason.

    Raises:
        RegistryError: if there is no such version, if it did not pass its gate, or if somebody
            else moved the alias at the same time.
    """
    target = version_of(client, name, version)
    number = str(target.version)
    old = aliases_of(client, name).get(CHAMPION, "")
    if old == number:
        return Promotion(name, number, old, changed=False, evidence=evidence_of(target))
    _check_gate(target, reason=reason, force=force)
    if old:
        # first, so that the way back exists whatever happens next
        move_alias(client, name, alias=PREVIOUS, version=old)
    move_alias(client, name, alias=CHAMPION, version=number)
    _record(client, target, old=old, reason=reason, verb="promoted")
    return Promotion(name, number, old, changed=True, evidence=evidence_of(target))


def roll_back(client: MlflowClient, name: str, *, reason: str) -> Promotion:
    """Swap `champion` and `previous`. Hold `registry_lock` meanwhile.

    Raises:
        RegistryError: if there is nothing to go back to, or somebody else moved an alias.
    """
    aliases = aliases_of(client, name)
    back, now = aliases.get(PREVIOUS, ""), aliases.get(CHAMPION, "")
    if not back or back == now:
        raise RegistryError(
            f"{name}: there is no earlier champion to go back to (champion: "
            f"{now or 'none'}, previous: {back or 'none'})"
        )
    target = version_of(client, name, back)
    move_alias(client, name, alias=CHAMPION, version=back)
    if now:
        move_alias(client, name, alias=PREVIOUS, version=now)
    _record(client, target, old=now, reason=reason, verb="rolled back to")
    return Promotion(name, back, now, changed=True, evidence=evidence_of(target))


def _check_gate(target: ModelVersion, *, reason: str, force: bool) -> None:
    state = target.tags.get(GATE_TAG)
    if state == "passed":
        return
    what = f"{target.name}: version {target.version} " + (
        "did not pass its gate" if state else "was never held against a gate"
    )
    if not force:
        raise RegistryError(f"{what}; promote another, or insist with `--force true --reason TEXT`")
    if not reason.strip():
        raise RegistryError(f"{what}; to force it, say why with `--reason TEXT`")


def _record(
    client: MlflowClient, target: ModelVersion, *, old: str, reason: str, verb: str
) -> None:
    """Write the move into the history of the version that comes and of the one that goes."""
    name, line = target.name, signature_line()
    why = reason.strip().replace("\n", " ") or "no reason given"
    forced = "" if target.tags.get(GATE_TAG) == "passed" else " (forced: gate not passed)"
    replaced = client.get_model_version(name, old) if old else None
    before = ""
    if replaced is not None:
        before = f"; replaces version {old} ({evidence_of(replaced)}): "
        before += comparison(client, target, replaced)
    add_note(
        client, target, f"{verb} {CHAMPION} {line}{forced}: {why}; {evidence_of(target)}{before}"
    )
    if replaced is not None:
        add_note(client, replaced, f"no longer {CHAMPION} {line}: version {target.version} ({why})")
