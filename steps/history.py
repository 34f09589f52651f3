"""What an earlier run recorded until a checkpoint, for the run that goes on from there."""

from __future__ import annotations

import logging
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from steps.spool import Record, read_records

if TYPE_CHECKING:
    from mlflow import MlflowClient

logger = logging.getLogger(__name__)

# not counted in updates, or final
_LEFT_OUT = ("system/", "test/")
# made by an evaluation
_SCORED = ("val/", "time/evaluate_s")
_PICTURE_STEP = re.compile(r"\+step\+(\d+)\+")


def earlier_points(
    client: MlflowClient, run_id: str, *, until: int, scored_until: int, spool: Path
) -> list[Record]:
    """Return the points of a run up to an update, as records with their timestamps.

    Args:
        client: a client of the run's store.
        run_id: the earlier run.
        until: the last update that counts.
        scored_until: the same for points of an evaluation: one that is made again has others.
        spool: folder of the run's spool on this machine. If it is there it is read instead of the
            store: it is faster, and whole even if the store was away.
    """
    records = _spooled(spool) or _stored(client, run_id)
    kept = []
    for record in records:
        left_out = _LEFT_OUT if record["s"] <= scored_until else _LEFT_OUT + _SCORED
        values = {k: v for k, v in record.get("m", {}).items() if not k.startswith(left_out)}
        if values and record["s"] <= until:
            kept.append({"t": record["t"], "s": record["s"], "m": values})
    return kept


def earlier_pictures(
    client: MlflowClient, run_id: str, *, until: int
) -> Iterator[tuple[bytes, str]]:
    """Yield content and artifact path of pictures of a run and of its pipeline, up to an update."""
    from mlflow import MlflowException

    try:
        yield from _pictures(client, run_id, until)
        if parent := client.get_run(run_id).data.tags.get("mlflow.parentRunId"):
            yield from _pictures(client, parent, until)
    except (MlflowException, OSError) as error:  # no reason to not train
        logger.warning("pictures of run %s are not taken over: %s", run_id, error)


def _spooled(spool: Path) -> list[Record]:
    return [record for record in read_records(spool) if "m" in record]


def _stored(client: MlflowClient, run_id: str) -> list[Record]:
    points: dict[tuple[int, int], dict[str, float]] = defaultdict(dict)
    for key in client.get_run(run_id).data.metrics:
        if key.startswith(_LEFT_OUT):
            continue
        for metric in client.get_metric_history(run_id, key):
            points[metric.timestamp, metric.step][key] = metric.value
    return [{"t": t, "s": s, "m": values} for (t, s), values in sorted(points.items())]


def _pictures(client: MlflowClient, run_id: str, until: int) -> Iterator[tuple[bytes, str]]:
    with tempfile.TemporaryDirectory() as folder:
        for info in client.list_artifacts(run_id, "images"):
            found = _PICTURE_STEP.search(info.path)
            if found and int(found[1]) <= until:
                local = client.download_artifacts(run_id, info.path, folder)
                yield Path(local).read_bytes(), info.path
