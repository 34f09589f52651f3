"""Each committed experiment goes through the whole chain on the real sets, and predicts."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shared import shared_data

ROOT = Path(__file__).parents[2]
SHORT = "train.epochs=1 train.log_every=2 train.warmup.updates=2"
GATES = {"detection": "register.gate.thresholds.mAP_50=0.0", "lanes": ""}
SETS = {
    "detection/tiny-coco": "tiny_coco",
    "detection/coco128-yolo": "coco128_yolo",
    "detection/raccoon-voc": "raccoon_voc",
    "detection/bccd-voc": "bccd_voc",
    "lanes/tusimple-frames": "tusimple_512x288",
}

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("config", SETS)
def test_set_is_trained_evaluated_registered_and_predicted(config, client, store, tmp_path):
    task = config.split("/")[0]
    data = shared_data(f"{task}/{SETS[config]}").parent
    environment = {
        **os.environ,
        "DATA": str(data),
        "WEIGHTS": str(shared_data("weights")),
        "MLFLOW_TRACKING_URI": store,
        "SIGHTFLOW_HOME": str(tmp_path / "home"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    command = [sys.executable, "-m", "steps.main", "--set", f"{SHORT} {GATES[task]}"]
    run([*command, "--config", f"configs/{config}.yaml"], environment)
    (model,) = client.search_registered_models()
    assert str(client.get_model_version_by_alias(model.name, "candidate").version) == "1"

    pictures, output = tmp_path / "pictures", tmp_path / "out"
    pictures.mkdir()
    for number, picture in enumerate(sorted((data / SETS[config]).rglob("*.jpg"))[:3]):
        shutil.copy(picture, pictures / f"{number}.jpg")
    command = [sys.executable, "-m", "steps.predict", "--source", f"models:/{model.name}@candidate"]
    run([*command, "--input", str(pictures), "--output", str(output)], environment)
    assert len((output / "predictions.jsonl").read_text().splitlines()) == 3
    assert len(list((output / "drawn").glob("*.jpg"))) == 3


def run(command, environment):
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
