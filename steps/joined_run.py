"""The run of a step that needs none: joined where MLflow Projects made one, else left out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steps.run_handle import RunHandle


@contextmanager
def joined_run(step: str) -> Iterator[RunHandle | None]:
    """Open the run that `mlflow run` made for this process; None for a command of its own."""
    if not os.environ.get("MLFLOW_RUN_ID"):
        yield None
        return
    from steps.runs import open_run

    with open_run(step, None) as run:
        yield run
