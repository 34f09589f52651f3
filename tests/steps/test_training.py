"""The train command refuses what it cannot do."""

import signal

import pytest
from click.testing import CliRunner


@pytest.fixture(autouse=True)
def _own_signals():
    """A command takes SIGTERM over for as long as its process lives."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def test_launcher_with_several_processes_is_refused(monkeypatch):
    from steps.train import main

    monkeypatch.setenv("WORLD_SIZE", "4")
    result = CliRunner().invoke(main, [])
    assert result.exit_code == 2
    assert "WORLD_SIZE=4: the train step is one process" in result.output


@pytest.mark.parametrize("has_parent", [False, True])
def test_training_started_alone_brings_the_saved_views(has_parent, client, monkeypatch):
    import mlflow

    from readers.records import DatasetError
    from steps import training
    from steps.runs import open_run

    def no_data(*arguments, **named):
        raise DatasetError("no data")

    monkeypatch.setattr(training, "prepared_index", no_data)
    experiment_id = client.create_experiment("views")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", experiment_id)
    if has_parent:
        with open_run("pipeline", None) as pipeline:
            tags = {"mlflow.parentRunId": pipeline.run_id}
            mlflow.end_run()
            run_id = client.create_run(experiment_id, tags=tags).info.run_id
            monkeypatch.setenv("MLFLOW_RUN_ID", run_id)
    with pytest.raises(DatasetError):
        training.train(None, "", device="cpu", prepare_run="", resume="")
    views = [key for key in client.get_experiment(experiment_id).tags if "sharedViewState" in key]
    assert len(views) == (0 if has_parent else 3)


def test_configuration_error_stands_on_the_run_that_waits(client, monkeypatch, tmp_path):
    from steps.train import main

    config = tmp_path / "wrong.yaml"
    config.write_text("name: x\ntask: detections\n")
    run_id = client.create_run("0").info.run_id
    monkeypatch.setenv("MLFLOW_RUN_ID", run_id)
    result = CliRunner().invoke(main, ["--config", str(config)])
    assert result.exit_code == 2
    tags = client.get_run(run_id).data.tags
    assert "detections" in tags["failure"]
    assert tags["exit_code"] == "2"


def test_sigterm_before_the_run_is_opened_ends_it_as_killed(client, monkeypatch):
    from steps.options import _end_unopened_run

    run_id = client.create_run("0").info.run_id
    monkeypatch.setenv("MLFLOW_RUN_ID", run_id)
    with pytest.raises(SystemExit):
        _end_unopened_run(signal.SIGTERM, None)
    run = client.get_run(run_id)
    assert run.info.status == "KILLED"
    assert run.data.tags["failure"] == "interrupted by SIGTERM before it began"
