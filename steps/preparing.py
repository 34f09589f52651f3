"""What the prepare step does: checks the data, builds the index, records the data sets."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from steps.experiment import load
from steps.options import working_folder
from steps.prepared import DATA_FILE, dataset_digest, dataset_name, prepare_into
from steps.runs import open_run

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from steps.experiment import Loaded
    from steps.run_handle import RunHandle
    from tasks.catalogue import SplitSummary


def prepare(config: str | None, overrides: str, *, jobs: int) -> str:
    """Prepare an experiment's data in a run of its own; return one line for the person.

    Raises:
        DatasetError: when the data cannot be used; the quality report is on the run.
    """
    loaded = load(config, overrides)
    with open_run("prepare", loaded) as run:
        output = working_folder() / "runs" / run.run_id / "index"
        try:
            splits = prepare_into(loaded, output, jobs=jobs or os.cpu_count() or 1)
        finally:
            _leave_reports(run, output)
        for path in [*sorted(output.glob("*.arrow")), output / DATA_FILE]:
            run.artifact(path, "index")
        record_datasets(run, loaded, splits)
        run.tag("dataset", f"{loaded.experiment.name} {dataset_digest(splits, '+'.join(splits))}")
        counts = ", ".join(f"{name} {summary.items}" for name, summary in splits.items())
        rows = {name: f"{s.items} items, digest `{s.digest[:12]}`" for name, s in splits.items()}
        run.describe(f"{loaded.experiment.name}: {counts} [report](quality.html)", rows)
        return f"Prepared: {counts} items; quality report and index on run {run.run_id}."


def record_datasets(run: RunHandle, loaded: Loaded, splits: Mapping[str, SplitSummary]) -> None:
    """Log each split as an input of the run, with its source and number of items."""
    for name, summary in splits.items():
        run.dataset(
            dataset_name(loaded.experiment.name, name),
            digest=summary.digest[:12],
            context=name,
            source=summary.source,
            profile=json.dumps({"num_items": summary.items}),
        )


def _leave_reports(run: RunHandle, output: Path) -> None:
    for report in ("quality.html", "quality.json"):
        if (output / report).exists():
            run.artifact(output / report)
