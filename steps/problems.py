"""What is wrong with a configuration, and where: one line per problem, all of them at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


class ConfigError(Exception):
    """A configuration that cannot be used; the message has one line per problem."""

    exit_code = 2


@dataclass(frozen=True)
class Place:
    """Where a value was written.

    Args:
        source: the file as the user would name it, or the text of a `--set` assignment.
        line: counted from 1; None for an assignment.
        folder: what relative paths at this place count from.
    """

    source: str
    line: int | None
    folder: Path

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.line}"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    Args:
        place: where the value, or the section that lacks it, was written.
        path: keys and list indices from the root; empty for the whole file.
        message: what is wrong and what is right, without the place.
    """

    place: Place
    path: tuple[str | int, ...]
    message: str

    def __str__(self) -> str:
        parts = [str(self.place), ".".join(map(str, self.path)), self.message]
        return ": ".join(part for part in parts if part)


def config_error(problems: Iterable[Problem]) -> ConfigError:
    """Return the error that tells all problems, in the order of files and lines."""
    ordered = sorted(problems, key=lambda problem: (problem.place.source, problem.place.line or 0))
    return ConfigError("\n".join(dict.fromkeys(map(str, ordered))))
