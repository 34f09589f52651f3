"""What a step says on its run while the run is open."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steps import descriptions
from steps.history import earlier_pictures, earlier_points
from steps.options import working_folder
from steps.run_log import MlflowRunLog
from steps.secrets import without_secrets

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from engine.contract import RunLog
    from engine.interrupt import Interruption
    from steps.run_end import Ending
    from steps.run_identity import RunIdentity


class RunHandle:
    """An open run. Nothing here waits for MLflow or fails for lack of it.

    Args:
        step: the pipeline step.
        identity: which run this is; None on ranks other than 0.
        log: where the training loop's log goes.
        interruption: turns signals into `Interrupted`; installed while the run is open.
        description: the run's description so far.
    """

    def __init__(
        self,
        step: str,
        *,
        identity: RunIdentity | None,
        log: RunLog,
        interruption: Interruption,
        description: descriptions.Description,
    ) -> None:
        self.step = step
        self.identity = identity
        self.log = log
        self.interruption = interruption
        self._description = description

    @property
    def run_id(self) -> str:
        """The run's id, or an empty text on ranks other than 0."""
        return self.identity.run_id if self.identity else ""

    @property
    def experiment_id(self) -> str:
        """The id of the run's experiment, or an empty text on ranks other than 0."""
        return self.identity.experiment_id if self.identity else ""

    @property
    def client(self) -> MlflowClient:
        """A client of the run's store, for what cannot be queued; its calls may fail or wait."""
        assert self.identity is not None, "only rank 0 talks to MLflow"
        return self.identity.client

    def tag(self, key: str, value: str) -> None:
        """Set a tag."""
        self.tags({key: value})

    def tags(self, values: Mapping[str, str]) -> None:
        """Set tags."""
        if isinstance(self.log, MlflowRunLog):
            self.log.tags(values)

    def params(self, values: Mapping[str, Any]) -> None:
        """Log params; those that the run has already (from MLproject) keep their value."""
        if isinstance(self.log, MlflowRunLog) and self.identity:
            new = {k: str(v) for k, v in values.items() if k not in self.identity.params}
            self.identity.params.update(new)
            self.log.params(new)

    def scores(
        self,
        values: Mapping[str, float],
        *,
        model_id: str = "",
        dataset: tuple[str, str] = ("", ""),
    ) -> None:
        """Record final scores (`test/<name>`): at step 0 the UI shows them as bars.

        Args:
            values: the scores.
            model_id: the LoggedModel that was scored; the Models tab ranks models by it.
            dataset: name and digest of the data that it was scored on.
        """
        if isinstance(self.log, MlflowRunLog):
            self.log.scores(values, model_id=model_id, dataset=dataset)

    def dataset(
        self, name: str, *, digest: str, context: str, source: str, profile: str = ""
    ) -> None:
        """Log a data set as the run's input.

        Args:
            name: as it is to be shown.
            digest: of its content; the first 36 characters are kept.
            context: `train`, `val` or `test`.
            source: folder or file that it was read from.
            profile: counts and the like, as JSON; the first record of a name and digest in an
                experiment is the one that the UI shows.
        """
        if isinstance(self.log, MlflowRunLog):
            values = {"name": name, "digest": digest[:36], "context": context, "source": source}
            self.log.dataset({**values, "profile": profile} if profile else values)

    def artifact(self, path: Path, folder: str = "") -> None:
        """Queue a copy of a file, as it is now, as an artifact in a folder."""
        if isinstance(self.log, MlflowRunLog):
            self.log.artifact(path, f"{folder}/{path.name}" if folder else path.name)

    def artifacts(self, path: Path, folder: str = "") -> None:
        """Queue copies of all files below a folder."""
        for file in sorted(path.rglob("*")):
            if file.is_file():
                inner = file.relative_to(path).parent.as_posix()
                parts = [part for part in (folder, inner) if part not in ("", ".")]
                self.artifact(file, "/".join(parts))

    def content(self, data: bytes | str, artifact: str) -> None:
        """Queue content as an artifact; a text without the environment's secrets."""
        if isinstance(self.log, MlflowRunLog):
            text = without_secrets(data) if isinstance(data, str) else ""
            self.log.content(text.encode() if isinstance(data, str) else data, artifact)

    def json(self, value: Any, artifact: str) -> None:
        """Queue a value as a JSON artifact."""
        self.content(json.dumps(value, indent=2) + "\n", artifact)

    def describe(self, verdict: str, rows: Mapping[str, str] | None = None, more: str = "") -> None:
        """Write the run's description anew.

        Args:
            verdict: one line of Markdown, with the headline number.
            rows: table below the command that reproduces the run.
            more: Markdown after the table.
        """
        self._description = self._description.with_verdict(verdict, rows, more)
        self.publish_description()

    def publish_description(self, ending: Ending | None = None) -> None:
        """Set the description as it is now; with an ending, say so in its first line."""
        if ending is not None:
            self._description = self._description.ended(ending.status, ending.reason)
        events = self.log.events if isinstance(self.log, MlflowRunLog) else []
        self.tag(descriptions.TAG, self._description.markdown(events))

    def resume_from(self, run_id: str, *, until_update: int, scored_until: int) -> None:
        """Begin this run's curves and pictures with those of the run that it goes on from.

        Args:
            run_id: the earlier run.
            until_update: update count of the checkpoint; what came later is left out.
            scored_until: the last update whose evaluation this run does not make again.
        """
        if not isinstance(self.log, MlflowRunLog):
            return
        spool = working_folder() / "runs" / run_id
        points = earlier_points(
            self.client, run_id, until=until_update, scored_until=scored_until, spool=spool
        )
        self.log.history(points)
        self.log.copied_pictures(earlier_pictures(self.client, run_id, until=scored_until))
        self.tag("resumed_from", run_id)
