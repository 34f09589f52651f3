"""Ready-made views of an experiment in MLflow's UI, and links and commands to open them.

A view is an experiment tag that MLflow 3.17's UI reads (menu "Views" above the runs table). The
format is not documented, so other versions get none, and a view that cannot be written only costs a
warning.
"""

from __future__ import annotations

import json
import logging
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from steps.tracking_store import database_file, without_credentials

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from steps.experiment import Loaded

logger = logging.getLogger(__name__)

PIPELINES = "sf-runs"
TRAININGS = "sf-training"
CURVES = "sf-curves"
LOCAL_UI = "http://127.0.0.1:5000"
_TAG = "mlflow.sharedViewState."
_KNOWN_VERSION = "3.17."
_LONGEST_TAG = 20_000


@dataclass(frozen=True)
class Shown:
    """What the runs of an experiment record, in the order in which it is worth looking at.

    Args:
        headline: the score that ranks runs, without its split (`mAP_50`).
        split: what evaluate runs score, as metrics begin with it (`test`, `val-test`).
        scores: further scores, without split.
        losses: keys of `train/...`, `train/loss` first.
        rates: keys of `lr/...`.
        pictures: keys of `pictures/...`.
        params: params worth a column.
    """

    headline: str
    split: str = "test"
    scores: Sequence[str] = ()
    losses: Sequence[str] = ("train/loss",)
    rates: Sequence[str] = ("lr/base",)
    pictures: Sequence[str] = ("pictures/01", "pictures/02", "pictures/03", "pictures/04")
    params: Sequence[str] = (
        "model.name",
        "train.optimizer.lr",
        "train.epochs",
        "train.batch_size",
        "seed",
    )


def shown_of(loaded: Loaded) -> Shown:
    """Return what the runs of an experiment record."""
    evaluate = loaded.experiment.evaluate
    pictures = [f"pictures/{number + 1:02d}" for number in range(evaluate.pictures)]
    split = evaluate.split.replace("+", "-")
    return Shown(headline=evaluate.headline, split=split, pictures=pictures)


def write_saved_views(client: MlflowClient, experiment_id: str, shown: Shown) -> None:
    """Write the three views of an experiment, or renew them. Never raises for lack of a server."""
    import mlflow

    if not mlflow.__version__.startswith(_KNOWN_VERSION):
        logger.info("no saved views: MLflow is %s, not %sx", mlflow.__version__, _KNOWN_VERSION)
        return
    try:
        for key, value in view_tags(shown, now_ms=time.time_ns() // 1_000_000).items():
            client.set_experiment_tag(experiment_id, key, value)
    except (mlflow.MlflowException, OSError) as error:
        logger.warning("saved views could not be written: %s", str(error).splitlines()[0])


def view_tags(shown: Shown, *, now_ms: int) -> dict[str, str]:
    """Return the experiment tags of the three views."""
    states = {
        PIPELINES: ("Pipelines", _pipelines(shown)),
        TRAININGS: ("Training runs", _trainings(shown)),
        CURVES: ("Curves and pictures", _curves(shown)),
    }
    tags = {}
    for key, (name, state) in states.items():
        view = {"name": name, "createdAt": now_ms, "updatedAt": now_ms, "state": json.dumps(state)}
        text = json.dumps(view)
        assert len(text) <= _LONGEST_TAG, f"view {key} has {len(text)} characters"
        tags[_TAG + key] = text
    return tags


def runs_link(base: str, experiment_id: str, view: str = PIPELINES) -> str:
    """Return the address of an experiment's runs, in one of the saved views."""
    # without the workflow type, a first visit lands among GenAI traces and shows no run
    mode = "&compareRunsMode=CHART" if view == CURVES else ""
    query = f"viewStateShareKey={view}{mode}&workflowType=machine_learning"
    return f"{base}/#/experiments/{experiment_id}/runs?{query}"


def run_link(base: str, experiment_id: str, run_id: str) -> str:
    """Return the address of a run's page."""
    return f"{base}/#/experiments/{experiment_id}/runs/{run_id}?workflowType=machine_learning"


def ui_address(tracking_uri: str) -> str:
    """Return where the UI is, or will be after the command of `ui_command`."""
    if tracking_uri.startswith(("http://", "https://")):
        return without_credentials(tracking_uri).rstrip("/")
    return LOCAL_UI


def ui_command(tracking_uri: str) -> str:
    """Return the command that opens the UI, or an empty text if a server runs already."""
    if tracking_uri.startswith(("http://", "https://", "databricks")):
        return ""
    port = LOCAL_UI.rpartition(":")[2]
    uri = without_credentials(tracking_uri)
    return f"mlflow ui --backend-store-uri {shlex.quote(uri)} --port {port}"


def ui_instructions(tracking_uri: str, experiment_id: str, run_id: str) -> str:
    """Return the lines to print at the end of a run: where it is and how to look at it."""
    base = ui_address(tracking_uri)
    path = database_file(tracking_uri)
    lines = [f"run {run_id} in {path or without_credentials(tracking_uri)}"]
    if command := ui_command(tracking_uri):
        lines.append(f"open the UI:  {command}")
    lines += [
        f"this run:     {run_link(base, experiment_id, run_id)}",
        f"all runs:     {runs_link(base, experiment_id)}",
        f"curves:       {runs_link(base, experiment_id, CURVES)}",
    ]
    return "\n".join(lines)


def _pipelines(shown: Shown) -> dict[str, Any]:
    final = [f"{shown.split}/{shown.headline}"] if shown.split != "val" else []
    columns = [
        *(_metric(key) for key in (*final, f"val/{shown.headline}")),
        "attributes.`Models`",
        "attributes.`Dataset`",
        _tag("task"),
        _tag("config"),
        _tag("git.dirty"),
    ]
    return _state(columns, search="tags.step = 'pipeline'")


def _trainings(shown: Shown) -> dict[str, Any]:
    # any order but the time of creation shows the runs as a flat list, children included
    best = _metric(f"val/best_{shown.headline}")
    columns = [best, _metric(f"val/{shown.headline}"), _metric("train/loss")]
    columns += [f"params.`{name}`" for name in shown.params]
    columns += [_tag("resumed_from"), _tag("git.dirty"), "attributes.`Models`"]
    return _state(columns, search="tags.step = 'train'", order=best)


def _curves(shown: Shown) -> dict[str, Any]:
    scores = [f"val/{name}" for name in (shown.headline, *shown.scores)]
    cards = [
        ("Scores", [_line([scores[0]]), *([_line(scores)] if shown.scores else [])]),
        ("Pictures", [_pictures(shown.pictures)]),
        ("Losses", [_line([shown.losses[0]]), _line(list(shown.losses), scale="log")]),
        ("Learning rate and gradient", [_line(list(shown.rates)), _line(["grad/norm"])]),
        ("Speed", [_line(["time/images_per_s"]), _line(["memory/peak_gib"])]),
    ]
    sections: list[dict[str, Any]] = []
    charts: list[dict[str, Any]] = []
    for number, (name, section_cards) in enumerate(cards):
        section = f"sf-section-{number}"
        sections.append(
            {
                "uuid": section,
                "name": name,
                "display": True,
                "isReordered": True,
                "deleted": False,
                "isGenerated": False,
            }
        )
        for card in section_cards:
            identity = {"uuid": f"sf-card-{len(charts)}", "metricSectionId": section}
            charts.append({**card, **identity})
    # pipelines carry the scores and pictures, train runs the rest, so both are shown
    state = _state([_metric(key) for key in scores], search="")
    state["compareRunSections"] = sections
    state["compareRunCharts"] = charts
    return state


def _state(columns: Sequence[str], *, search: str, order: str = "") -> dict[str, Any]:
    return {
        "searchFilter": search,
        "orderByKey": order or "attributes.start_time",
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": list(columns),
        "columnOrder": [],
        "columnWidths": {},
        "runsHiddenMode": "FIRST_10_RUNS",
        "isAccordionReordered": True,
        "hideEmptyCharts": True,
        "globalLineChartConfig": {"xAxisKey": "step", "lineSmoothness": 0},
    }


def _line(keys: Sequence[str], *, scale: str = "linear") -> Mapping[str, Any]:
    return {
        "type": "LINE",
        "metricKey": keys[0],
        "selectedMetricKeys": list(keys),
        "scaleType": scale,
        "xAxisKey": "step",
        # a card smooths heavily unless told not to
        "lineSmoothness": 0,
        "useGlobalLineSmoothing": False,
        "displayPoints": True,
        "runsCountToCompare": 10,
        "range": {},
        "deleted": False,
        "isGenerated": False,
    }


def _pictures(keys: Sequence[str]) -> Mapping[str, Any]:
    return {
        "type": "IMAGE",
        "imageKeys": list(keys),
        "step": 0,
        # a train run has a hundred params, which would push the picture out of its card
        "showRunParams": False,
        "runsCountToCompare": 10,
        "deleted": False,
        "isGenerated": False,
    }


def _metric(key: str) -> str:
    return f"metrics.`{key}`"


def _tag(key: str) -> str:
    return f"tags.`{key}`"
