"""The views that the pipeline ships, and the links to them."""

import json
import re

import pytest

from steps.saved_views import (
    Shown,
    run_link,
    runs_link,
    ui_command,
    ui_instructions,
    view_tags,
    write_saved_views,
)
from tests.engine.running import ListLog, run

SHOWN = Shown("mAP_50", scores=("mAP",), losses=("train/loss", "train/box"))


def _state(key):
    return json.loads(
        json.loads(view_tags(SHOWN, now_ms=5)[f"mlflow.sharedViewState.{key}"])["state"]
    )


def test_views_are_written_as_experiment_tags_and_renewed(client):
    for _ in range(2):
        write_saved_views(client, "0", SHOWN)
    tags = client.get_experiment("0").tags
    names = [json.loads(value)["name"] for key, value in sorted(tags.items()) if "sf-" in key]
    assert names == ["Curves and pictures", "Pipelines", "Training runs"]


def test_training_runs_are_ranked_by_the_best_score():
    state = _state("sf-training")
    assert state["searchFilter"] == "tags.step = 'train'"
    assert state["orderByKey"] == "metrics.`val/best_mAP_50`"
    assert state["selectedColumns"][0] == state["orderByKey"]


@pytest.mark.parametrize(
    ("split", "columns"),
    [
        ("val-test", ["val-test/mAP", "val/mAP"]),
        ("val", ["val/mAP"]),
        ("test", ["test/mAP", "val/mAP"]),
    ],
)
def test_pipelines_show_the_score_of_the_split_that_is_evaluated(split, columns):
    tags = view_tags(Shown("mAP", split=split), now_ms=5)
    state = json.loads(json.loads(tags["mlflow.sharedViewState.sf-runs"])["state"])
    shown = [c for c in state["selectedColumns"] if c.startswith("metrics.")]
    assert shown == [f"metrics.`{key}`" for key in columns]


def test_every_card_lies_in_a_section():
    state = _state("sf-curves")
    sections = {section["uuid"] for section in state["compareRunSections"]}
    assert {card["metricSectionId"] for card in state["compareRunCharts"]} == sections
    assert len({card["uuid"] for card in state["compareRunCharts"]}) == len(
        state["compareRunCharts"]
    )
    (pictures,) = [card for card in state["compareRunCharts"] if card["type"] == "IMAGE"]
    assert pictures["showRunParams"] is False


def test_every_curve_is_one_that_the_loop_draws(tmp_path):
    log = ListLog()
    run(tmp_path, log=log, epochs=1)
    text = json.loads(view_tags(Shown("fit"), now_ms=5)["mlflow.sharedViewState.sf-curves"])[
        "state"
    ]
    shown = set(re.findall(r'"((?:train|lr|grad|time|memory|val)/\w+)"', text))
    assert "lr/base" in shown
    assert shown <= {name for _, values in log.points for name in values}


def test_another_mlflow_gets_no_views(client, monkeypatch):
    monkeypatch.setattr("mlflow.__version__", "3.99.0")
    write_saved_views(client, "0", SHOWN)
    assert not [key for key in client.get_experiment("0").tags if "sharedView" in key]


def test_a_server_that_is_away_costs_a_warning(monkeypatch, caplog):
    import mlflow

    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    write_saved_views(mlflow.MlflowClient(tracking_uri="http://127.0.0.1:9"), "0", SHOWN)
    assert "saved views could not be written" in caplog.text


def test_links_open_the_training_half_of_the_ui():
    for link in (runs_link("http://a", "1"), run_link("http://a", "1", "b")):
        assert "workflowType=machine_learning" in link
    assert "compareRunsMode=CHART" in runs_link("http://a", "1", "sf-curves")


@pytest.mark.parametrize(
    ("uri", "command"),
    [
        ("http://user:secret@host:5000", ""),
        ("sqlite:////a b/mlflow.db", "mlflow ui --backend-store-uri 'sqlite:////a b/mlflow.db'"),
    ],
)
def test_instructions_say_how_to_open_the_ui(uri, command):
    text = ui_instructions(uri, "1", "abc")
    assert command in text
    assert bool(command) == bool(ui_command(uri))
    assert "secret" not in text
    assert "/#/experiments/1/runs/abc" in text
