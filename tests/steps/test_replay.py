"""A capsule of a real task's training is replayed as a step."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

CONFIGS = {
    "detection": (
        "configs/detection/quickstart.yaml",
        "data.train.images=12 data.val.images=2 data.test.images=2 data.train.size=96 "
        "data.val.size=96 data.test.size=96 model.min_size=96 model.max_size=96",
    ),
    "lanes": (
        "configs/lanes/quickstart.yaml",
        "data.train.roads=12 data.val.roads=2 data.test.roads=2",
    ),
}
SETTINGS = (
    "train.epochs=3 train.batch_size=4 train.log_every=1 train.evaluate_first=false "
    "train.evaluate_every=3 train.warmup=null train.ema=null train.clip_norm=null "
    "'train.optimizer={name: sgd, lr: 1.0e+9, momentum: 0.0}' train.checkpoint.every_updates=1"
)


def invoke(command, *arguments):
    return CliRunner().invoke(command, list(arguments))


@pytest.fixture
def diverged(request, client, tmp_path):
    """The folder of a train run that ended with exit code 4."""
    from steps.train import main

    config, small = CONFIGS[request.param]
    arguments = ["--config", config, "--set", f"{small} {SETTINGS}", "--device", "cpu"]
    result = invoke(main, *arguments)
    assert result.exit_code == 4, result.output
    (capsule,) = (tmp_path / "home" / "runs").glob("*/capsules/*")
    return capsule.parent.parent


def replayed(*arguments):
    from steps.replay import main

    result = invoke(main, *arguments, "--device", "cpu")
    assert result.exit_code == 0, result.output
    return result.output


def replay_runs(client):
    from mlflow.artifacts import download_artifacts

    runs = client.search_runs(["0", *(e.experiment_id for e in client.search_experiments())])
    return [
        (
            run,
            json.loads(
                Path(download_artifacts(f"runs:/{run.info.run_id}/replay.json")).read_text()
            ),
        )
        for run in runs
        if run.data.tags.get("step") == "replay"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("diverged", CONFIGS, indirect=True)
def test_a_rate_that_is_too_high_is_found_by_the_runs_id(diverged, client):
    output = replayed("--capsule", diverged.name)
    assert output.splitlines()[-1] == "verdict: learning rate"
    assert "blown up" in output
    assert "with the checkpoint of update" in output or "with fresh weights" in output
    ((run, report),) = replay_runs(client)
    assert run.data.tags["verdict"] == report["verdict"] == "learning rate"
    assert report["capsule"]["reason"]


@pytest.mark.slow
@pytest.mark.parametrize("diverged", ["detection"], indirect=True)
def test_a_copied_folder_is_enough_and_a_bad_label_is_named(diverged, client, tmp_path):
    """The train run's artifacts hold what a capsule needs, elsewhere too."""
    import torch
    from mlflow.artifacts import download_artifacts

    folder = download_artifacts(
        f"runs:/{diverged.name}/capsules", dst_path=str(tmp_path / "elsewhere")
    )
    (capsule,) = (tmp_path / "elsewhere" / "capsules").iterdir()
    assert {path.name for path in capsule.iterdir()} == {
        "capsule.pt", "capsule.json", "config.yaml", "classes.json",
    }  # fmt: skip
    shutil.rmtree(diverged)
    content = torch.load(capsule / "capsule.pt", weights_only=True)
    batch = content["batches"][0]
    boxes, counts = batch["inputs"]["boxes_xyxy"], batch["inputs"]["counts"]
    third = next(i for i in (2, 1, 0, 3) if counts[i])
    boxes[sum(counts[:third])] = float("nan")
    checkpoint = _untrained(content)
    torch.save({**content, "network": checkpoint}, capsule / "capsule.pt")
    output = replayed("--capsule", folder)
    assert output.splitlines()[-1] == "verdict: label"
    assert f"because: {batch['ids'][third]}: its picture or labels hold numbers" in output


def _untrained(content):
    """Weights of ordinary size in place of those that are blown up."""
    import torch

    torch.manual_seed(0)
    return {
        name: torch.randn_like(value) * 0.02 if value.is_floating_point() else value
        for name, value in content["network"].items()
    }


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "give --capsule"),
        (["--capsule", "no/such/folder"], 1, "no such folder, and not the id of a run"),
        (["--capsule", "0123456789abcdef"], 1, "the run has no such capsule"),
    ],
)
def test_what_cannot_be_replayed_is_told_in_one_sentence(arguments, code, message, store):
    from steps.replay import main

    result = invoke(main, *arguments)
    assert result.exit_code == code
    assert message in result.output
    assert "Traceback" not in result.output


def test_a_capsule_without_its_experiment_or_data_says_what_is_missing(store, tmp_path):
    from engine.capsule import CAPSULE_FILE
    from steps.experiment import load
    from steps.replay import main
    from tests.engine.test_capsule import diverge

    folder = diverge(tmp_path) / "update-00000002"
    result = invoke(main, "--capsule", str(folder / CAPSULE_FILE))
    assert result.exit_code == 1
    assert "there is no config.yaml beside the capsule" in result.output
    gone = f"'data.train={{format: coco, annotations: {tmp_path}/gone.json, images: {tmp_path}}}'"
    (folder / "config.yaml").write_text(load(None, gone).text)
    result = invoke(main, "--capsule", str(folder), "--device", "cpu")
    assert result.exit_code == 1
    assert "the task cannot be built without the index" in result.output
    assert "gone.json" in result.output
