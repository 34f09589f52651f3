"""Where a step finds the prepared data: an earlier prepare run's index, or one made on the spot."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steps.options import working_folder

if TYPE_CHECKING:
    from steps.experiment import Loaded
    from tasks.catalogue import SplitSummary, Wiring


# beside the indexes: the data that they were made from
DATA_FILE = "data.json"
# it becomes a folder's name, and may come from a tag of a store that others write to
_RUN_ID = re.compile(r"[A-Za-z0-9_-]+")


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
    splits = wiring_of(loaded).prepare(
        loaded.experiment, base=loaded.base, working=working_folder(), output=output, jobs=jobs
    )
    (output / DATA_FILE).write_text(json.dumps(_data_of(loaded), indent=1) + "\n")
    return splits


def prepared_index(
    loaded: Loaded, *, prepare_run: str, run_id: str, is_inherited: bool = False
) -> Path:
    """Return the folder with the experiment's split indexes.

    Args:
        loaded: the experiment.
        prepare_run: the prepare run whose index is taken; empty: prepare now.
        run_id: this run; a new or fetched index goes into its working folder.
        is_inherited: the prepare run was not named now, but by the run that this one goes on
            from; if its data is other, the experiment's own is prepared instead.

    Raises:
        PreparedError: when the prepare run has no index, or one of other data.
        DatasetError: when the data cannot be used.
    """
    runs = working_folder() / "runs"
    if prepare_run:
        if not _RUN_ID.fullmatch(prepare_run):
            raise PreparedError(f"prepare run {prepare_run!r}: this is no run's id")
        is_here = any((runs / prepare_run / "index").glob("*.arrow"))
        folder = runs / prepare_run / "index" if is_here else _fetch(prepare_run, runs / run_id)
        if _is_of(loaded, folder):
            return folder
        if not is_inherited:
            raise PreparedError(
                f"prepare run {prepare_run!r}: it prepared other data than `data` of "
                f"{loaded.path.name} names; prepare this experiment, or give no prepare run"
            )
    prepare_into(loaded, runs / run_id / "index", jobs=0)  # all CPUs
    return runs / run_id / "index"


def _is_of(loaded: Loaded, index: Path) -> bool:
    """Tell whether an index was made from the data that the experiment names."""
    noted = index / DATA_FILE
    return not noted.exists() or json.loads(noted.read_text()) == _data_of(loaded)


def _data_of(loaded: Loaded) -> Any:
    return json.loads(json.dumps(wiring_of(loaded).data_key(loaded.experiment)))


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
