from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml
from click.testing import CliRunner

ROOT = Path(__file__).parents[2]
MODEL = {
    "name": "fasterrcnn",
    "backbone": {
        "name": "slim_resnet",
        "widths": [8, 8, 8, 8],
        "blocks": [1, 1, 1, 1],
    },
    "weights": "/not/there.pt",  # a path of the training machine: never looked at
    "min_size": 64,
    "max_size": 96,
    "fpn_channels": 8,
    "head_width": 16,
    "score_threshold": 0.0,
    "detections_per_image": 5,
}
CLASS_NAMES, CLASS_IDS = ("cat", "dog"), (1, 7)

pytestmark = pytest.mark.filterwarnings("ignore:.*type hint is inferred as AnyType:UserWarning")


@pytest.fixture(scope="module")
def network():
    import torch
    from pydantic import TypeAdapter

    from models.detection.build import build_detector
    from tasks.detection.config import DetectionModelConfig

    torch.manual_seed(0)
    config = TypeAdapter(DetectionModelConfig).validate_python({**MODEL, "weights": "none"})
    return build_detector(config, num_classes=len(CLASS_NAMES))


@pytest.fixture(scope="module")
def deployable(network):
    from steps.model_package import Deployable

    text = yaml.safe_dump({"name": "tiny", "task": "detection", "model": MODEL})
    return Deployable(network.state_dict(), text, CLASS_NAMES, CLASS_IDS)


@pytest.fixture(scope="module")
def store(tmp_path_factory, deployable):
    """Return a store that holds the model, registered as `tiny` with the alias candidate."""
    from steps.model_package import log_deployable
    from steps.registry import move_alias
    from steps.versions import ensure_version
    from tests.steps.model_store import sqlite_store

    folder = tmp_path_factory.mktemp("store")
    with sqlite_store(folder) as client:
        run = client.create_run(client.get_experiment_by_name("runs").experiment_id)
        client.log_metric(run.info.run_id, "train/loss", 1.0, step=0)
        model = log_deployable(
            deployable,
            run_id=run.info.run_id,
            name="7f3k@300",
            step=300,
            params={"update": 300},
            tags={"task": "detection"},
        )
        ensure_version(client, "tiny", model_id=model.model_id)
        move_alias(client, "tiny", alias="candidate", version="1")
        yield client, f"sqlite:///{folder}/mlflow.db", model.model_id


@pytest.fixture(scope="module")
def served(store):
    import mlflow

    before = list(sys.path)
    yield mlflow.pyfunc.load_model("models:/tiny@candidate")
    sys.path[:] = before  # MLflow put the model's code in front


@pytest.fixture(scope="module")
def jpeg():
    noise = np.random.RandomState(0).randint(0, 255, (40, 60, 3), np.uint8)
    return cv2.imencode(".jpg", noise)[1].tobytes()


def _frame(values):
    import pandas as pd

    return pd.DataFrame({"image": pd.Series(values, dtype=object)})


def test_a_logged_model_holds_no_pickle_and_is_linked_to_no_metric(store):
    client, _, model_id = store
    model = client.get_logged_model(model_id)
    folder = Path(model.artifact_location.removeprefix("file://"))
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert {"serving.py", "artifacts/weights.safetensors", "code/models/__init__.py"} <= files
    assert not [name for name in files if name.endswith((".pkl", ".pickle", ".pt", ".pyc"))]
    assert not (folder / "code/steps").exists()
    assert not model.metrics
    assert model.params == {"update": "300"}
    assert model.status.name == "READY"
    outputs = client.get_run(model.source_run_id).outputs.model_outputs
    assert [(output.model_id, output.step) for output in outputs] == [(model_id, 300)]


def test_requirements_are_pinned_and_need_no_screen(store):
    client, _, model_id = store
    folder = client.get_logged_model(model_id).artifact_location.removeprefix("file://")
    lines = (Path(folder) / "requirements.txt").read_text().split()
    names = {line.split("==")[0] for line in lines}
    assert all("==" in line and "+" not in line for line in lines)
    assert {"torch", "torchvision", "opencv-python-headless", "safetensors"} <= names
    assert "opencv-python" not in names


def test_prediction_imports_nothing_beyond_the_requirements(store, deployable, tmp_path):
    from steps.model_package import pip_requirements, write_model_files

    files = write_model_files(deployable, tmp_path)
    unneeded = ["matplotlib", "faster_coco_eval", "pycocotools", "scipy", "joblib", "tqdm", "click"]
    unneeded = [name for name in unneeded if name not in str(pip_requirements())]
    # what MLflow itself imports may stay: it is blocked only for our own packages
    code = (
        "import sys, mlflow.pyfunc, pathlib, numpy\n"
        f"for name in {unneeded!r}:\n"
        "    for known in [m for m in sys.modules if m.split('.')[0] == name]:\n"
        "        del sys.modules[known]\n"
        "    sys.modules[name] = None\n"
        "from steps.serving import load_predictor\n"
        f"paths = [pathlib.Path(p) for p in {[str(files.weights), str(files.config)]!r}]\n"
        f"predictor = load_predictor(*paths, pathlib.Path({str(files.classes)!r}))\n"
        "predictor.predict([numpy.zeros((40, 60, 3), numpy.uint8)], score_threshold=0.0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_all_forms_of_a_picture_give_the_same_answer(served, jpeg, tmp_path):
    path = tmp_path / "a.jpg"
    path.write_bytes(jpeg)
    array = cv2.cvtColor(cv2.imdecode(np.frombuffer(jpeg, np.uint8), 1), cv2.COLOR_BGR2RGB)
    forms = [jpeg, base64.b64encode(jpeg).decode(), path, array]
    answers = served.predict(_frame(forms), params={"score_threshold": 0.0})
    assert len(answers[0]["boxes"]) == 5
    assert answers[0]["width"], answers[0]["height"] == (60, 40)
    assert answers[1:] == [answers[0]] * 3
    model = served.unwrap_python_model()
    assert model.predict(None, array, {"score_threshold": 0.0}) == answers[:1]
    assert model.predict(None, [jpeg], {"score_threshold": 0.0}) == answers[:1]


def test_answers_carry_the_names_and_the_ids_of_the_data_set(served, jpeg):
    (answer,) = served.predict(_frame([jpeg]), params={"score_threshold": 0.0})
    known = dict(zip(CLASS_NAMES, CLASS_IDS, strict=True))
    assert set(answer["labels"]) <= set(known)
    assert answer["label_ids"] == [known[name] for name in answer["labels"]]
    assert answer["scores"] == sorted(answer["scores"], reverse=True)
    json.dumps(answer)


def test_an_answer_does_not_depend_on_the_other_pictures_of_the_request(served, jpeg):
    larger = cv2.imencode(".jpg", np.full((200, 90, 3), 90, np.uint8))[1].tobytes()
    alone = served.predict(_frame([jpeg]), params={"score_threshold": 0.0})
    together = served.predict(_frame([larger, jpeg]), params={"score_threshold": 0.0})
    assert together[1] == alone[0]


def test_the_threshold_cuts_and_has_a_default(served, jpeg):
    (answer,) = served.predict(_frame([jpeg]), params={"score_threshold": 0.0})
    middle = answer["scores"][2] - 1e-6  # answers are rounded
    (cut,) = served.predict(_frame([jpeg]), params={"score_threshold": middle})
    assert cut["scores"] == [score for score in answer["scores"] if score >= middle]
    (default,) = served.predict(_frame([jpeg]))
    assert all(score >= 0.5 for score in default["scores"])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["***"], "row 0: text that is not base64"),
        (["/etc/hostname"], "row 0: "),
        ([b"no picture"], "row 0: not a readable picture"),
        ([b""], "row 0: not a readable picture"),
        ([Path("no-such.jpg")], "row 0: not a readable picture"),
        ([np.zeros((4, 4), np.uint8)], r"row 0: array of uint8 \(4, 4\)"),
        ([3.5], "row 0: float given"),
    ],
    ids=["not base64", "path as text", "not a picture", "empty", "no file", "grey", "number"],
)
def test_a_picture_that_cannot_be_used_is_an_invalid_parameter_with_its_row(
    served, values, message
):
    from mlflow.exceptions import MlflowException

    with pytest.raises(MlflowException, match=message) as caught:
        served.unwrap_python_model().predict(None, _frame(values), {})
    assert caught.value.error_code == "INVALID_PARAMETER_VALUE"


def test_the_row_of_a_bad_picture_is_its_own(served, jpeg):
    from mlflow.exceptions import MlflowException

    with pytest.raises(MlflowException, match="row 1: not a readable picture"):
        served.predict(_frame([jpeg, b"bad"]))


def test_weights_that_do_not_fit_are_told(deployable):
    from steps.serving import ModelError, build_predictor

    experiment = yaml.safe_load(deployable.config_text)
    classes = {"names": ["cat"], "ids": [1]}
    with pytest.raises(ModelError, match="the weights do not fit the network"):
        build_predictor(deployable.network_state, experiment, classes)
    with pytest.raises(ModelError, match="task is 'cooking'"):
        build_predictor({}, {"task": "cooking"}, classes)


@pytest.mark.parametrize("kind", ["alias", "version", "model", "run", "checkpoint", "folder"])
def test_predict_takes_a_model_by_any_of_its_names(
    store, deployable, jpeg, tmp_path, monkeypatch, kind
):
    import torch

    from steps.model_package import write_model_files
    from steps.predict import main

    client, uri, model_id = store
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.delenv("MLFLOW_RUN_ID", raising=False)
    (tmp_path / "in.jpg").write_bytes(jpeg)
    folder = tmp_path / "model"
    (folder / "checkpoints").mkdir(parents=True)
    write_model_files(deployable, folder)
    checkpoint = folder / "checkpoints" / "best.pt"
    state = {"network": None, "ema": dict(deployable.network_state), "deploy": "ema"}
    torch.save(state, checkpoint)
    source = {
        "alias": "models:/tiny@candidate",
        "version": "models:/tiny/1",
        "model": f"models:/{model_id}",
        "run": client.get_logged_model(model_id).source_run_id,
        "checkpoint": str(checkpoint),
        "folder": str(folder),
    }[kind]
    arguments = ["--source", source, "--input", str(tmp_path / "in.jpg"), "--device", "cpu"]
    arguments += ["--output", str(tmp_path / "out"), "--score-threshold", "0"]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    (line,) = (tmp_path / "out/predictions.jsonl").read_text().splitlines()
    assert len(json.loads(line)["boxes"]) == 5
    assert (tmp_path / "out/drawn/in.jpg").exists()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("models:/tiny@champion", "models:/tiny@champion: cannot be read"),
        ("models:/no-such/1", "models:/no-such/1: cannot be read"),
        ("0" * 32, "cannot be read"),
        ("champion", "source 'champion': no such file; right are models:/NAME@champion"),
    ],
    ids=["alias", "model", "run", "word"],
)
def test_predict_says_which_model_is_not_there(store, tmp_path, monkeypatch, source, message):
    from steps.predict import main

    monkeypatch.setenv("MLFLOW_TRACKING_URI", store[1])
    (tmp_path / "in.jpg").write_bytes(b"")
    arguments = ["--source", source, "--input", str(tmp_path / "in.jpg")]
    result = CliRunner().invoke(main, [*arguments, "--output", str(tmp_path / "out")])
    assert result.exit_code == 1
    assert message in result.output


@pytest.mark.slow
def test_mlflow_serves_the_registered_model_over_http(store, served, jpeg, tmp_path):
    with _server(store[1], tmp_path) as address:
        status, body = _ask(address, base64.b64encode(jpeg).decode(), threshold=0.0)
        (expected,) = served.predict(_frame([jpeg]), params={"score_threshold": 0.0})
        assert (status, body) == (200, {"predictions": [expected]})

        status, body = _ask(address, "a", threshold=0.0)
        assert status == 400, body
        status, body = _ask(address, base64.b64encode(b"no picture").decode(), threshold=0.0)
        assert status == 400
        assert "row 0: not a readable picture" in body["message"]


class _server:  # noqa: N801
    """`mlflow models serve` in a process group of its own, ready to be asked."""

    def __init__(self, uri: str, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        self.log = folder / "server.log"
        binaries = Path(sys.executable).parent
        self.command = [
            *(sys.executable, "-m", "mlflow", "models", "serve", "-m", "models:/tiny@candidate"),
            *("--env-manager", "local", "--host", "127.0.0.1", "--port", str(port)),
        ]
        # mlflow starts `uvicorn` by its name: it must be this environment's
        self.environ = {
            **os.environ,
            "MLFLOW_TRACKING_URI": uri,
            "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
            "SIGHTFLOW_DEVICE": "cpu",
        }
        self.folder = folder

    def __enter__(self) -> str:
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                self.command,
                cwd=self.folder,
                env=self.environ,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        for _ in range(240):
            try:
                with urllib.request.urlopen(f"{self.address}/ping", timeout=5):
                    return self.address
            except OSError:
                assert self.process.poll() is None, self.log.read_text()[-3000:]
                time.sleep(0.5)
        self.__exit__()
        raise AssertionError(f"no answer from the server:\n{self.log.read_text()[-3000:]}")

    def __exit__(self, *_: object) -> None:
        # the group: uvicorn outlives its parent
        os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def _ask(address: str, text: str, *, threshold: float):
    body = {
        "dataframe_split": {"columns": ["image"], "data": [[text]]},
        "params": {"score_threshold": threshold},
    }
    request = urllib.request.Request(
        f"{address}/invocations",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())
