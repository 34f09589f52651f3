"""The run that MLflow Projects made: joined by a step that needs none, told why it never began."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from steps.secrets import without_secrets

if TYPE_CHECKING:
    from steps.run_handle import RunHandle

logger = logging.getLogger(__name__)


@contextmanager
def joined_run(step: str) -> Iterator[RunHandle | None]:
    """Open the run that `mlflow run` made for this process; None for a command of its own."""
    if not os.environ.get("MLFLOW_RUN_ID"):
        yield None
        return
    from steps.runs import open_run

    with open_run(step, None) as run:
        yield run


def tell_unopened_run(reason: str, *, exit_code: int, status: str = "FAILED") -> None:
    """Say on the run that waits for this process why the step ended before it opened it.

    Does nothing where the run was opened, or where no run waits.

    Args:
        reason: one sentence.
        exit_code: the process's.
        status: that the run ends with; `mlflow run`, if it still lives, says FAILED itself.
    """
    # opening a run takes its id out of the environment (steps/run_identity.py)
    run_id = os.environ.get("MLFLOW_RUN_ID", "")
    if not run_id or int(os.environ.get("RANK", "0")) > 0:
        return
    import mlflow

    reason = without_secrets(reason)
    tags = {
        "failure": reason,
        "exit_code": str(exit_code),
        "mlflow.note.content": f"**failed**: {reason}",
    }
    try:
        client = mlflow.MlflowClient()
        for key, value in tags.items():
            client.set_tag(run_id, key, value[:4000])
        client.set_terminated(run_id, status)
    except mlflow.MlflowException as error:
        logger.warning("the reason could not be put on run %s: %s", run_id, error)
