"""Where a step finds the prepared data: an earlier prepare run's index, or one made on the spot."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from steps.options import working_folder

if TYPE_CHECKING:
    from steps.experiment import Loaded
    from tasks.catalogue import SplitSummary, Wiring


class PreparedError(Exception):
    """A prepare run whose index cannot be had; one sentence."""

    exit_code = 1


def wiring_of(loaded: Loaded) -> Wiring:
    """Return what ties the experiment's task to the steps."""
    from tasks.catalogue import TASKS

    return TASKS[loaded.experiment.task]()


def prepare_into(loaded: Loaded, output: Path, *, jobs: int) -> Mapping[str, SplitSummary]:
    """Check the experiment's data, write indexes and quality report into `output`.

    Raises:
        DatasetError: when a data set cannot be used; the report is in `output` all the same.
    """
    output.mkdir(parents=True, exist_ok=True)
    return wiring_of(loaded).prepare(
        loaded.experiment, base=loaded.base, working=working_folder(), output=output, jobs=jobs
    )


def prepared_index(loaded: Loaded, *, prepare_run: str, run_id: str) -> Path:
    """Return the folder with the experiment's split indexes.

    Args:
        loaded: the experiment.
        prepare_run: the prepare run whose index is taken; empty: prepare now.
        run_id: this run; a new or fetched index goes into its working folder.

    Raises:
        PreparedError: when the prepare run has no index.
        DatasetError: when the data cannot be used.
    """
    runs = working_folder() / "runs"
    if not prepare_run:
        prepare_into(loaded, runs / run_id / "index", jobs=1)
        return runs / run_id / "index"
    if any((runs / prepare_run / "index").glob("*.arrow")):
        return runs / prepare_run / "index"
    return _fetch(prepare_run, runs / run_id)


def dataset_name(experiment: str, split: str) -> str:
    """Return what a split is called on runs, e.g. `vehicles-test`."""
    return f"{experiment}-{split.replace('+', '-')}"


def dataset_digest(splits: Mapping[str, SplitSummary], split: str) -> str:
    """Return 12 hex digits that stand for a split's content, or that of several joined by `+`."""
    parts = [splits[part].digest for part in split.split("+")]
    if len(parts) == 1:
        return parts[0][:12]
    import hashlib

    return hashlib.sha256("+".join(parts).encode()).hexdigest()[:12]


def _fetch(prepare_run: str, destination: Path) -> Path:
    import mlflow
    from mlflow.exceptions import MlflowException

    destination.mkdir(parents=True, exist_ok=True)
    try:
        found = mlflow.artifacts.download_artifacts(
            run_id=prepare_run, artifact_path="index", dst_path=str(destination)
        )
    except (MlflowException, OSError) as error:
        raise PreparedError(
            f"prepare run {prepare_run!r}: its artifact `index` cannot be had "
            f"({str(error).splitlines()[0]}); give the id of a finished prepare run, or none"
        ) from error
    return Path(found)
