"""Model versions: one per model, few short tags, a description that begins with the headline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from steps.gate import Champion, GateReport
from steps.model_package import DIGEST_TAG
from steps.registry import (
    CHAMPION,
    GATE_TAG,
    add_note,
    aliases_of,
    model_id_of,
    notes_of,
    signature_line,
    write_description,
)
from steps.scores import Scored, scores_on

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

ABOUT_ALIASES = (
    "`candidate`: the newest version that passed its gate. `champion`: the one in use, set by the "
    "promote step; `previous`: the one before, which the rollback step brings back."
)


@dataclass(frozen=True)
class Headline:
    """The one score that ranks models.

    Args:
        name: e.g. `mAP_50`.
        value: the model's; None where it was not measured.
    """

    name: str
    value: float | None

    def __str__(self) -> str:
        return f"{self.name} {'unknown' if self.value is None else format(self.value, '.3f')}"


def is_registered(client: MlflowClient, name: str) -> bool:
    """Tell whether there is a registered model of this name."""
    return bool(client.search_registered_models(f"name='{name}'"))


def champion_of(client: MlflowClient, name: str, *, scored: Scored, config: str) -> Champion | None:
    """Return who a model is to be compared with, and its scores on the same data.

    Args:
        client: registry and tracking store.
        name: registered model.
        scored: the evaluation of the model that asks.
        config: what `config` an evaluation of the champion would be given, for the message.

    Returns:
        None where there is no champion, or where the model itself is the champion.
    """
    if not is_registered(client, name):
        return None
    number = aliases_of(client, name).get(CHAMPION)
    if number is None:
        return None
    model_id = model_id_of(client.get_model_version(name, number))
    if model_id == scored.model_id:
        return None
    if not model_id:
        return Champion(number, None, "its model was not logged by this project; promote another")
    model = client.get_logged_model(model_id)
    other = scores_on(
        client,
        model_id,
        like=scored,
        experiment_ids=[scored.experiment_id, model.experiment_id],
    )
    advice = (
        f"run `mlflow run . -e evaluate -P train_run={model.source_run_id} -P config={config}`, "
        "then register again"
    )
    return Champion(number, None if other is None else other.scores, advice)


def existing_version(client: MlflowClient, name: str, model_id: str) -> ModelVersion | None:
    """Return the version that already holds this model, or one with the same weights.

    MLflow itself makes a new version each time the same model is registered.
    """
    versions = client.search_model_versions(f"name='{name}'")
    for version in versions:
        if model_id_of(version) == model_id:
            return version
    digest = client.get_logged_model(model_id).tags.get(DIGEST_TAG)
    for version in versions:
        other = model_id_of(version)
        if digest and other and client.get_logged_model(other).tags.get(DIGEST_TAG) == digest:
            return version
    return None


def ensure_version(client: MlflowClient, name: str, *, model_id: str) -> tuple[ModelVersion, bool]:
    """Return the model's version, and whether it was made now."""
    import mlflow

    is_new_name = not is_registered(client, name)
    found = None if is_new_name else existing_version(client, name, model_id)
    if found is not None:
        return found, False
    version = mlflow.register_model(f"models:/{model_id}", name)
    if is_new_name:
        client.update_registered_model(name, ABOUT_ALIASES)
    return version, True


def describe_version(
    client: MlflowClient,
    version: ModelVersion,
    *,
    scored: Scored,
    headline: Headline,
    report: GateReport,
    text: str,
) -> None:
    """Write a version's four tags, its description and a line of history.

    The registry's list shows 30 characters of a description: the headline comes first. A version
    that holds the same weights from another run keeps what it says of its own run.

    Args:
        client: the registry.
        version: as the registry had it before, so that a repeated call changes nothing.
        scored: the evaluation that the gate looked at.
        headline: the score that comes first.
        report: the gate's.
        text: Markdown from the experiment that goes below.
    """
    gate = "passed" if report.passed else "failed"
    was = version.tags.get(GATE_TAG)
    client.set_model_version_tag(version.name, version.version, GATE_TAG, gate)
    if model_id_of(version) == scored.model_id:
        tags = {"score": str(headline), "data": scored.dataset, "run": scored.train_run[:8]}
        for key, value in tags.items():
            client.set_model_version_tag(version.name, version.version, key, value)
        head = _head(client, scored=scored, headline=headline, report=report, text=text)
        write_description(client, version, head=head, notes=notes_of(version))
    if was != gate:
        verb = "judged again" if was else "registered"
        add_note(client, version, f"{verb} {signature_line()}: {report.verdict}")


def _head(
    client: MlflowClient, *, scored: Scored, headline: Headline, report: GateReport, text: str
) -> str:
    model = client.get_logged_model(scored.model_id)
    lines = [
        f"{headline}, update {model.params.get('update', 'unknown')}, {scored.dataset_name}",
        "",
        f"{report.verdict[:1].upper()}{report.verdict[1:]}.",
        "",
        *_table(scored.scores),
        "",
        f"Model `{model.name}` ({scored.model_id}) of "
        f"{_run_link('the train run', scored.train_run, model.experiment_id)}, scored by "
        f"{_run_link('the evaluate run', scored.run_id, scored.experiment_id)} on "
        f"`{scored.dataset}`.",
    ]
    return "\n".join([*lines, "", text] if text else lines)


def _table(scores: Mapping[str, float]) -> list[str]:
    rows = [f"| {name} | {value:.5g} |" for name, value in scores.items() if "/" not in name]
    return ["| score | value |", "|---|---|", *rows[:12]] if rows else []


def _run_link(text: str, run_id: str, experiment_id: str) -> str:
    return f"[{text}](#/experiments/{experiment_id}/runs/{run_id})" if run_id else text
