"""From an evaluate run to a model version: scores, gate, report, version, alias."""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from steps.experiment import Loaded, load
from steps.gate import GateReport, judge
from steps.gate_page import gate_page
from steps.model_package import quiet_mlflow
from steps.options import working_folder
from steps.problems import ConfigError
from steps.registry import CANDIDATE, move_alias, registry_lock
from steps.runs import open_run
from steps.scores import Scored, ScoresError, scored_run
from steps.tracking_store import open_client, use_tracking_store
from steps.versions import Headline, champion_of, describe_version, ensure_version

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from steps.run_handle import RunHandle


class GateNotMetError(Exception):
    """The model does not pass; the message says which check failed and by how much."""

    exit_code = 3


@dataclass(frozen=True)
class Registration:
    """What came of registering.

    Args:
        name: registered model.
        version: its number.
        created: false if the model had this version already.
        headline: the score that ranks models.
        report: the gate's.
    """

    name: str
    version: str
    created: bool
    headline: Headline
    report: GateReport

    @property
    def summary(self) -> str:
        """One line for the person who ran the step."""
        state = "is registered as" if self.created else "was registered already as"
        alias = f" (alias {CANDIDATE})" if self.report.passed else " (no alias)"
        return (
            f"{self.name}: the model {state} version {self.version}{alias}; {self.headline}; "
            f"{self.report.verdict}"
        )


def register(config: str | None, overrides: str, *, evaluate_run: str) -> Registration:
    """Register the model that an evaluate run scored, if it passes the gate.

    Args:
        config: YAML of the experiment whose `register` section counts; None: the run's own.
        overrides: values in place of the file's.
        evaluate_run: id of a finished evaluate run.

    Raises:
        ScoresError: if the run is no finished evaluation.
        ConfigError: if the experiment has no `register` section.
        GateNotMetError: if the gate is not met and `allow_failed` is off.
    """
    client = open_client(use_tracking_store())
    scored = scored_run(client, evaluate_run)
    loaded = load(config, overrides) if config else experiment_of_run(evaluate_run, overrides)
    if loaded.experiment.register_ is None:
        raise ConfigError(
            f"{loaded.path}: there is no `register` section; it names the model and its gate"
        )
    with open_run("register", loaded) as run:
        path = config or _kept_config(client, evaluate_run)
        return _register(client, scored, loaded, config=path, run=run)


def experiment_of_run(run_id: str, overrides: str) -> Loaded:
    """Return the experiment that a run kept as its artifact config.yaml.

    Raises:
        ScoresError: if the run has no such artifact.
    """
    import mlflow
    from mlflow.exceptions import MlflowException

    quiet_mlflow()
    with tempfile.TemporaryDirectory() as folder:
        try:
            path = mlflow.artifacts.download_artifacts(
                run_id=run_id, artifact_path="config.yaml", dst_path=folder
            )
        except (MlflowException, OSError) as error:
            raise ScoresError(
                f"run {run_id}: its config.yaml cannot be read ({error}); give --config"
            ) from error
        # resolved already; the file of a shared store must not ask for this machine's variables
        return load(Path(path), overrides, environ={})


def _kept_config(client: MlflowClient, run_id: str) -> str:
    """Return where a run's config.yaml can be read, for a command that a person can run."""
    folder = Path(client.get_run(run_id).info.artifact_uri.removeprefix("file://"))
    path = folder / "config.yaml"
    return str(path) if path.is_file() else "YAML_OF_THIS_EXPERIMENT"


def _register(
    client: MlflowClient,
    scored: Scored,
    loaded: Loaded,
    *,
    config: str,
    run: RunHandle,
) -> Registration:
    settings = loaded.experiment.register_
    assert settings is not None
    name = settings.name
    metric = loaded.experiment.evaluate.headline
    headline = Headline(metric, scored.scores.get(metric))
    with registry_lock(working_folder()):
        champion = None
        if settings.gate.champion is not None:
            champion = champion_of(client, name, scored=scored, config=config)
        report = judge(scored.scores, settings.gate, champion=champion)
        _leave_report(run, report, scored=scored, name=name)
        if not report.passed and not settings.allow_failed:
            raise GateNotMetError(f"{name}: {report.verdict}")
        version, created = ensure_version(client, name, model_id=scored.model_id)
        describe_version(
            client,
            version,
            scored=scored,
            headline=headline,
            report=report,
            text=settings.description,
        )
        number = str(version.version)
        if report.passed:
            move_alias(client, name, alias=CANDIDATE, version=number)
    registration = Registration(name, number, created, headline, report)
    run.tag("model_version", f"{name}/{number}")
    run.describe(
        f"{headline}: [{name}](#/models/{name}) [version {number}]"
        f"(#/models/{name}/versions/{number})",
        {"gate": report.verdict, "data": scored.dataset, "model": scored.model_id},
    )
    return registration


def _leave_report(run: RunHandle, report: GateReport, *, scored: Scored, name: str) -> None:
    """Put gate.json, gate.html and the verdict on the run."""
    facts = {
        "model": scored.model_id,
        "data": scored.dataset,
        "split": scored.split,
        "train run": scored.train_run,
        "evaluate run": scored.run_id,
    }
    # JSON has no NaN
    scores = {key: value if math.isfinite(value) else None for key, value in scored.scores.items()}
    content = {"model_name": name, **report.as_dict(), "facts": facts, "scores": scores}
    run.json(content, "gate.json")
    run.content(gate_page(report, title=name, facts=facts), "gate.html")
    verdict = "passed" if report.passed else "failed"
    run.tags({"gate": verdict, "model_id": scored.model_id, "dataset": scored.dataset})
