"""A run's description: the verdict, the command that makes the run again, a table."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steps.experiment import Loaded

TAG = "mlflow.note.content"
# MLflow cuts a tag here
_LONGEST = 7900
_MOST_EVENTS = 10
_WORDS = {"FAILED": "failed", "KILLED": "killed"}


@dataclass(frozen=True)
class Description:
    """What stands at the top of a run's page.

    Args:
        verdict: one line of Markdown.
        command: shell command that makes the run again.
        rows: first -> second column of the table.
        more: Markdown after it.
        is_draft: whether the verdict only says that the run is going on.
    """

    verdict: str
    command: str
    rows: Mapping[str, str] = field(default_factory=dict)
    more: str = ""
    is_draft: bool = False

    @staticmethod
    def draft(step: str, loaded: Loaded | None, verdict: str) -> Description:
        """Return the description of a run that has just begun."""
        subject = f"{step} of `{loaded.experiment.name}`" if loaded else step
        return Description(
            verdict=verdict or f"{subject}: running",
            command=_command(step),
            rows={"config": f"`{loaded.path.name}` ({loaded.digest})"} if loaded else {},
            is_draft=True,
        )

    def with_verdict(self, verdict: str, rows: Mapping[str, str] | None, more: str) -> Description:
        """Return the description of a run that has something to say."""
        rows = {**self.rows, **(rows or {})}
        return replace(self, verdict=verdict, rows=rows, more=more, is_draft=False)

    def ended(self, status: str, reason: str) -> Description:
        """Return the description with the end in its first line, where that is news."""
        if status in _WORDS:
            return replace(self, verdict=f"**{_WORDS[status]}**: {reason}", is_draft=False)
        if self.is_draft:
            return replace(self, verdict=self.verdict.removesuffix(": running") + ": done")
        return self

    def markdown(self, events: Sequence[str] = ()) -> str:
        """Return the text, cut where MLflow would.

        Args:
            events: what happened on the way and is not in the verdict; the last ones are listed.
        """
        lines = [self.verdict, "", f"`{self.command}`", ""]
        if self.rows:
            lines += ["| | |", "|---|---|"]
            lines += [f"| {_cell(key)} | {_cell(value)} |" for key, value in self.rows.items()]
            lines.append("")
        if self.more:
            lines += [self.more, ""]
        told = [event for event in events if event.partition(": ")[2] not in self.verdict]
        lines += [f"- {_cell(event)}" for event in told[-_MOST_EVENTS:]]
        return "\n".join(lines).strip()[:_LONGEST]


def _cell(text: str) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")


def _command(step: str) -> str:
    """Return this process's command with the options that were not left empty."""
    words = ["python", "-m", f"steps.{'main' if step == 'pipeline' else step}"]
    rest = sys.argv[1:]
    while rest:
        if rest[0].startswith("--") and len(rest) > 1 and rest[1] == "":
            rest = rest[2:]
            continue
        words.append(rest[0])
        rest = rest[1:]
    return shlex.join(words)
