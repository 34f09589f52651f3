"""Each committed experiment goes through the whole chain on the real sets."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shared import shared_data

ROOT = Path(__file__).parents[2]
SHORT = (
    "train.epochs=1 train.log_every=2 train.warmup.updates=2 register.gate.thresholds.mAP_50=0.0"
)
SETS = {
    "tiny-coco": "tiny_coco",
    "coco128-yolo": "coco128_yolo",
    "raccoon-voc": "raccoon_voc",
    "bccd-voc": "bccd_voc",
}

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("config", SETS)
def test_set_is_trained_evaluated_and_registered(config, client, store, tmp_path):
    data = shared_data(f"detection/{SETS[config]}").parent
    environment = {
        **os.environ,
        "DATA": str(data),
        "WEIGHTS": str(shared_data("weights")),
        "MLFLOW_TRACKING_URI": store,
        "SIGHTFLOW_HOME": str(tmp_path / "home"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    command = [sys.executable, "-m", "steps.main", "--set", SHORT]
    done = subprocess.run(
        [*command, "--config", f"configs/detection/{config}.yaml"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (model,) = client.search_registered_models()
    assert str(client.get_model_version_by_alias(model.name, "candidate").version) == "1"
