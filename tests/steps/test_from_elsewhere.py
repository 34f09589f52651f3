"""The project runs from a zip, in a subfolder of it, and leaves nothing but runs."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tasks.detection.synthetic import ANNOTATIONS, IMAGES, write_synthetic

ROOT = Path(__file__).parents[2]
PACKAGES = ("steps", "engine", "models", "readers", "tasks", "configs")

pytestmark = pytest.mark.slow


@pytest.fixture
def zipped(tmp_path):
    """The project in a subfolder of a zip."""
    path = tmp_path / "project.zip"
    files = [ROOT / "MLproject", ROOT / "conda.yaml", ROOT / "pyproject.toml"]
    for package in PACKAGES:
        files += [p for p in (ROOT / package).rglob("*") if p.suffix in (".py", ".yaml")]
    with zipfile.ZipFile(path, "w") as archive:
        for file in files:
            archive.write(file, Path("all") / "vision" / file.relative_to(ROOT))
    return path


@pytest.fixture
def caller(tmp_path):
    """A folder with data, and an experiment that names them by relative paths."""
    folder = tmp_path / "caller"
    write_synthetic(folder / "set", images=6, size=96, seed=1)
    source = f"{{format: coco, images: set/{IMAGES}, annotations: set/{ANNOTATIONS}}}"
    quickstart = ROOT / "configs" / "detection" / "quickstart.yaml"
    (folder / "mine.yaml").write_text(
        f"extends: {quickstart}\n"
        f"name: mine\ndata:\n  train: {source}\n  val: {source}\n  test: {source}\n"
    )
    return folder


def test_a_zip_runs_with_data_beside_the_yaml_and_leaves_only_runs(
    client, store, zipped, caller, tmp_path
):
    before = sorted(path for path in caller.rglob("*") if path.is_file())
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        "TMPDIR": str(tmp_path),
    }
    command = [sys.executable, "-m", "mlflow", "run", f"{zipped}#all/vision", "-e", "prepare"]
    command += ["--env-manager", "local", "-P", f"config={caller / 'mine.yaml'}"]
    done = subprocess.run(
        command,
        env=environment,
        cwd=caller,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(path for path in caller.rglob("*") if path.is_file()) == before
    (run,) = client.search_runs([e.experiment_id for e in client.search_experiments()])
    assert run.info.status == "FINISHED"
    assert str(caller / "set") in run.inputs.dataset_inputs[0].dataset.source
    (copy,) = {path.parents[1] for path in tmp_path.glob("tmp*/**/MLproject")}
    assert not list(copy.rglob("mlflow.db")) + list(copy.rglob(".sightflow"))
