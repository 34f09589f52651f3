from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from steps.promote import main as promote
from steps.register import main as register
from steps.registry import aliases_of
from steps.rollback import main as rollback
from tests.steps.model_store import log_scored, score_again, sqlite_store

CONFIG = """
name: cats
task: detection
data:
  train: {format: synthetic, images: 4, size: 64, seed: 1}
  val: {format: synthetic, images: 4, size: 64, seed: 2}
  test: {format: synthetic, images: 4, size: 64, seed: 3}
model: {name: fasterrcnn, backbone: {name: slim_resnet}}
train: {epochs: 1, batch_size: 2, optimizer: {name: sgd, lr: 0.01}}
evaluate: {headline: mAP}
register:
  name: NAME
  description: "Finds cats."
  gate: {thresholds: {mAP: 0.5}, champion: {metric: mAP}}
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    with sqlite_store(folder) as client:
        yield client, folder


@pytest.fixture
def client(store, monkeypatch):
    client, folder = store
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
    monkeypatch.setenv("SIGHTFLOW_HOME", str(folder / "work"))
    monkeypatch.delenv("MLFLOW_RUN_ID", raising=False)
    monkeypatch.delenv("SIGHTFLOW_PARENT_RUN_ID", raising=False)
    return client


@pytest.fixture
def name(request):
    return request.node.name.replace("[", "-").replace("]", "")[:60]


@pytest.fixture
def config(tmp_path, name):
    path = tmp_path / "cats.yaml"
    path.write_text(CONFIG.replace("NAME", name))
    return path


def _register(config: Path, run_id: str, *options: str):
    arguments = ["--config", str(config), "--evaluate-run", run_id, *options]
    return CliRunner().invoke(register, arguments, catch_exceptions=False)


def _last_run(client):
    experiment = client.get_experiment_by_name("detection").experiment_id
    runs = client.search_runs([experiment], "tags.step = 'register'", max_results=1)
    return runs[0]


def _artifact(client, name):
    folder = _last_run(client).info.artifact_uri.removeprefix("file://")
    return (Path(folder) / name).read_text()


def test_a_model_that_passes_gets_a_version_with_the_alias_candidate(client, config, name):
    run_id, model_id = log_scored(client, {"mAP": 0.61234, "mAP_50": 0.9})
    result = _register(config, run_id)
    assert result.exit_code == 0, result.output
    assert "registered as version 1 (alias candidate); mAP 0.612" in result.output
    version = client.get_model_version_by_alias(name, "candidate")
    assert version.source == f"models:/{model_id}"
    assert version.tags["gate"] == "passed"
    assert version.description.startswith("mAP 0.612, update 300, cats-test")
    assert "Finds cats." in version.description


def test_the_report_and_the_verdict_are_on_the_run(client, config, name):
    run_id, _ = log_scored(client, {"mAP": 0.6})
    _register(config, run_id)
    report = json.loads(_artifact(client, "gate.json"))
    assert report["passed"] is True
    assert report["checks"][0]["limit"] == 0.5
    assert "gate passed" in _artifact(client, "gate.html")
    tags = _last_run(client).data.tags
    assert tags["gate"] == "passed"
    assert tags["model_version"] == f"{name}/1"


def test_a_model_that_fails_ends_with_exit_code_3_a_report_and_no_version(client, config, name):
    run_id, _ = log_scored(client, {"mAP": 0.4})
    result = _register(config, run_id)
    assert result.exit_code == 3
    assert "mAP is 0.4, below 0.5" in result.output
    assert not client.search_registered_models(f"name='{name}'")
    assert json.loads(_artifact(client, "gate.json"))["passed"] is False
    run = _last_run(client)
    assert run.info.status == "FAILED"
    assert run.data.tags["gate"] == "failed"


def test_allow_failed_makes_a_version_without_an_alias(client, config, name):
    run_id, _ = log_scored(client, {"mAP": 0.4})
    result = _register(config, run_id, "--set", "register.allow_failed=true")
    assert result.exit_code == 0, result.output
    assert client.get_model_version(name, "1").tags["gate"] == "failed"
    assert aliases_of(client, name) == {}


def test_the_same_model_registered_twice_has_one_version(client, config, name):
    run_id, _ = log_scored(client, {"mAP": 0.6})
    _register(config, run_id)
    before = client.get_model_version(name, "1").description
    result = _register(config, run_id)
    assert "was registered already as version 1" in result.output
    assert len(client.search_model_versions(f"name='{name}'")) == 1
    assert client.get_model_version(name, "1").description == before


def test_the_same_weights_from_another_run_have_one_version(client, config, name):
    first, _ = log_scored(client, {"mAP": 0.6}, digest="same00000000")
    second, _ = log_scored(client, {"mAP": 0.6}, digest="same00000000")
    _register(config, first)
    _register(config, second)
    assert len(client.search_model_versions(f"name='{name}'")) == 1


def test_registering_an_older_version_again_gives_it_back_the_alias(client, config, name):
    first, _ = log_scored(client, {"mAP": 0.6})
    second, _ = log_scored(client, {"mAP": 0.7})
    for run_id in (first, second, first):
        _register(config, run_id)
    assert aliases_of(client, name) == {"candidate": "1"}


def test_a_champion_scored_on_the_same_data_must_be_matched(client, config, name):
    first, _ = log_scored(client, {"mAP": 0.7})
    _register(config, first)
    CliRunner().invoke(promote, ["--model-name", name], catch_exceptions=False)
    worse, _ = log_scored(client, {"mAP": 0.69})
    result = _register(config, worse)
    assert result.exit_code == 3
    assert "mAP is 0.69, champion (version 1) has 0.7" in result.output


def test_a_champion_not_scored_on_this_data_is_told_with_the_command_that_scores_it(
    client, config, name
):
    first, model_id = log_scored(client, {"mAP": 0.7})
    _register(config, first)
    CliRunner().invoke(promote, ["--model-name", name], catch_exceptions=False)
    other, _ = log_scored(client, {"mAP": 0.9}, dataset="cats-test ffffffffffff")
    result = _register(config, other)
    train_run = client.get_logged_model(model_id).source_run_id
    assert result.exit_code == 3
    assert f"-e evaluate -P train_run={train_run} -P config={config}" in result.output

    score_again(client, model_id, {"mAP": 0.8}, dataset="cats-test ffffffffffff")
    assert _register(config, other).exit_code == 0


def test_the_experiment_is_the_evaluate_runs_own_unless_another_is_given(client, config, name):
    run_id, _ = log_scored(client, {"mAP": 0.6})
    client.log_text(run_id, config.read_text(), "config.yaml")
    result = CliRunner().invoke(register, ["--evaluate-run", run_id], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert aliases_of(client, name) == {"candidate": "1"}


@pytest.mark.parametrize("kind", ["unknown", "train run", "failed"])
def test_a_run_that_is_no_finished_evaluation_is_refused(client, config, name, kind):
    run_id, model_id = log_scored(client, {"mAP": 0.6})
    if kind == "unknown":
        run_id, message = "0" * 32, "cannot be read"
    elif kind == "train run":
        run_id = client.get_logged_model(model_id).source_run_id
        message = "is no evaluation of a logged model (step 'train'"
    else:
        client.update_run(run_id, status="FAILED")
        message = "ended as FAILED"
    result = _register(config, run_id)
    assert result.exit_code == 1
    assert message in result.output


def test_without_a_run_or_a_register_section_it_is_a_usage_error(client, config):
    assert CliRunner().invoke(register, ["--config", str(config)]).exit_code == 2
    run_id, _ = log_scored(client, {"mAP": 0.6})
    config.write_text(CONFIG[: CONFIG.index("register:")])
    result = _register(config, run_id)
    assert result.exit_code == 2
    assert "there is no `register` section" in result.output


def test_promote_and_rollback_from_the_command_line(client, config, name):
    for score in (0.6, 0.7):
        run_id, _ = log_scored(client, {"mAP": score})
        _register(config, run_id)
        result = CliRunner().invoke(promote, ["--model-name", name, "--reason", "better"])
        assert result.exit_code == 0, result.output
    assert aliases_of(client, name) == {"candidate": "2", "champion": "2", "previous": "1"}
    result = CliRunner().invoke(promote, ["--model-name", name])
    assert (result.exit_code, "nothing to do" in result.output) == (0, True)
    result = CliRunner().invoke(rollback, ["--model-name", name, "--reason", "too slow"])
    assert result.exit_code == 0, result.output
    assert aliases_of(client, name) == {"candidate": "2", "champion": "1", "previous": "2"}
    assert CliRunner().invoke(promote, ["--model-name", "no-such"]).exit_code == 1


def test_the_registered_model_says_what_its_aliases_mean(client, config, name):
    run_id, model_id = log_scored(client, {"mAP": 0.6})
    _register(config, run_id)
    assert "`candidate`: the newest version" in client.get_registered_model(name).description
    versions = json.loads(client.get_logged_model(model_id).tags["mlflow.modelVersions"])
    assert [version["name"] for version in versions] == [name]


def test_promote_joins_the_run_that_mlflow_made(client, config, name, monkeypatch):
    run_id, _ = log_scored(client, {"mAP": 0.6})
    _register(config, run_id)
    joined = client.create_run(client.get_experiment_by_name("runs").experiment_id)
    monkeypatch.setenv("MLFLOW_RUN_ID", joined.info.run_id)
    result = CliRunner().invoke(promote, ["--model-name", name], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    tags = client.get_run(joined.info.run_id).data.tags
    assert (tags["step"], tags["model_version"]) == ("promote", f"{name}/1")
