"""The lane predictor: pixels of the given picture, the table, the benchmark's own text."""

from __future__ import annotations

import base64
import csv
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from click.testing import CliRunner, Result
from torch import nn

from engine.weights import WeightsError
from models.lanes.build import build_lane_network
from steps.model_package import Deployable, ModelFiles, write_model_files
from steps.prediction_source import open_source
from steps.video import VideoReader, VideoWriter
from tasks.lanes import predictor as module
from tasks.lanes.config import DecodeConfig, UfldModelConfig
from tasks.lanes.decoding import DecodedLane
from tasks.lanes.predictions import LaneReader
from tasks.lanes.predictor import LanePredictor, build_predictor
from tasks.predictor import ModelError

ROOT = Path(__file__).parents[2]
MODEL = {
    "name": "ufldv2",
    "backbone": {"name": "slim_resnet", "widths": [8, 8, 8, 8], "blocks": [1, 1, 1, 1]},
    "lanes": 4,
    "input": [64, 32],
    "rows": {"anchors": 6, "cells": 8},
    "columns": {"anchors": 5, "cells": 8},
    "hidden": 16,
    "weights": "/not/there.pth",  # a path of the training machine: never looked at
}
EXPERIMENT = {"task": "lanes", "data": {"frame": [100, 50]}, "model": MODEL, "compat": ["all"]}
CLASSES = {"names": ["slot 1", "slot 2", "slot 3", "slot 4"], "ids": [1, 2, 3, 4]}
SOURCE = {"format": "tusimple", "root": "t", "labels": ["a.json"]}
TRAINED = {
    "name": "roads",
    "task": "lanes",
    "data": {"frame": [100, 50], "train": SOURCE, "val": SOURCE, "test": SOURCE},
    "model": {**MODEL, "weights": "none"},
    "train": {"epochs": 1, "batch_size": 2, "optimizer": {"name": "sgd", "lr": 0.1}},
}
CPU = torch.device("cpu")

pytestmark = pytest.mark.filterwarnings("ignore:.*type hint is inferred as AnyType:UserWarning")


def lane(slot: int, score: float, *points: tuple[float, float]) -> DecodedLane:
    return DecodedLane(slot=slot, kind="row", points=np.array(points, np.float32), score=score)


@pytest.fixture
def predictor(monkeypatch: pytest.MonkeyPatch) -> LanePredictor:
    """A predictor that finds the same two lanes on every picture, in a frame of 100 x 50 px."""
    found = [lane(2, 0.6, (60, 10), (80, 40)), lane(1, 0.9, (50, 10.5), (20, 40))]
    monkeypatch.setattr(module, "predict_lanes", lambda _, pictures, **__: [found] * len(pictures))
    reader = LaneReader(
        model=UfldModelConfig.model_validate({**MODEL, "weights": "none"}),
        decode=DecodeConfig(),
        frame=(100, 50),
    )
    return LanePredictor(nn.Identity(), reader, metric="f1", device=CPU)


def picture(height: int, width: int) -> np.ndarray:
    return np.zeros((height, width, 3), np.uint8)


def test_points_count_in_px_of_the_given_picture(predictor: LanePredictor) -> None:
    first, second = predictor.predict([picture(50, 100), picture(100, 400)], score_threshold=0)
    assert (first["width"], first["height"]) == (100, 50)
    assert [each["slot"] for each in first["lanes"]] == [1, 2]
    assert first["lanes"][0] == {
        "slot": 1,
        "kind": "row",
        "score": 0.9,
        "points": [[50.0, 10.5], [20.0, 40.0]],
    }
    assert second["lanes"][0]["points"] == [[200.0, 21.0], [80.0, 80.0]]
    json.dumps(second)


def test_the_threshold_is_held_against_the_lanes_score(predictor: LanePredictor) -> None:
    (answer,) = predictor.predict([picture(50, 100)], score_threshold=0.7)
    assert [each["score"] for each in answer["lanes"]] == [0.9]


def test_the_table_has_a_row_per_point(predictor: LanePredictor) -> None:
    (answer,) = predictor.predict([picture(50, 100)], score_threshold=0.7)
    table = [dict(zip(predictor.columns, row, strict=True)) for row in predictor.rows(answer)]
    assert table == [
        {"slot": 1, "kind": "row", "score": 0.9, "point": 0, "x": 50.0, "y": 10.5},
        {"slot": 1, "kind": "row", "score": 0.9, "point": 1, "x": 20.0, "y": 40.0},
    ]


def test_lanes_are_also_given_as_culanes_text(predictor: LanePredictor) -> None:
    (answer,) = predictor.predict([picture(50, 100)], score_threshold=0.7)
    ((name, text),) = predictor.files("drive/0001.jpg", answer).items()
    assert name == "lines/drive/0001.lines.txt"
    assert [float(number) for number in text.split()] == [50.0, 10.5, 20.0, 40.0]
    assert list(predictor.files("clip.mp4/000012", answer)) == ["lines/clip.mp4/000012.lines.txt"]


def test_with_tusimples_metric_lanes_are_also_given_as_its_json(predictor: LanePredictor) -> None:
    (answer,) = predictor.predict([picture(72, 100)], score_threshold=0.7)
    assert predictor.lines("20.jpg", answer) == {}
    predictor.metric = "tusimple"
    ((name, line),) = predictor.lines("clips/a/20.jpg", answer).items()
    found = json.loads(line)
    assert (name, found["raw_file"]) == ("tusimple.json", "clips/a/20.jpg")
    assert found["h_samples"] == list(range(16, 72))
    # the lane runs from (50, 15.12) to (20, 57.6) in px of this picture
    (xs,) = found["lanes"]
    assert xs[0] == int(50 - 30 * (16 - 15.12) / 42.48)
    assert xs[57 - 16] == 20
    assert set(xs[58 - 16 :]) == {-2}


def test_lanes_are_drawn_on_a_copy(predictor: LanePredictor) -> None:
    given = picture(50, 100)
    (answer,) = predictor.predict([given], score_threshold=0)
    drawn = predictor.draw(given, answer)
    assert drawn.shape == given.shape
    assert drawn.any()
    assert not given.any()


def test_a_trained_network_is_rebuilt_without_what_only_training_needs() -> None:
    torch.manual_seed(0)
    trained = build_lane_network(
        UfldModelConfig.model_validate({**MODEL, "weights": "none", "aux": {}})
    )
    state = trained.state_dict()
    experiment = {**EXPERIMENT, "model": {**MODEL, "aux": {"classes": None}}}
    predictor = build_predictor(state, experiment, CLASSES, device=CPU)
    assert not [name for name in predictor.network.state_dict() if name.startswith("seg_head")]
    assert predictor.reader.compat == {"lr_curve", "measures", "tta_shift", "file_centre"}
    answers = predictor.predict([picture(50, 100), picture(90, 160)], score_threshold=0)
    assert [answer["width"] for answer in answers] == [100, 160]


def test_pooled_lanes_of_a_group_instance_network_are_drawn() -> None:
    torch.manual_seed(0)
    model = {**MODEL, "head": "group_instance", "lanes": 10}
    network = build_lane_network(UfldModelConfig.model_validate({**model, "weights": "none"}))
    decode = {"mode": "pooled", "row_share": 0, "column_share": 0}
    experiment = {**EXPERIMENT, "model": model, "decode": decode}
    predictor = build_predictor(network.state_dict(), experiment, CLASSES, device=CPU)
    (answer,) = predictor.predict([picture(50, 100)], score_threshold=0)
    assert {each["kind"] for each in answer["lanes"]} == {"pooled"}
    assert predictor.draw(picture(50, 100), answer).any()
    texts = predictor.files("valid/a.jpg", answer)
    assert list(texts) == ["lines/valid/a.lines.txt", "lines/valid/a.lines.json"]
    written = json.loads(texts["lines/valid/a.lines.json"])["Lines"]
    assert [len(each) for each in written] == [len(each["points"]) for each in answer["lanes"]]


def test_weights_of_another_network_are_told() -> None:
    with pytest.raises(ModelError, match="the weights do not fit the network"):
        build_predictor({}, EXPERIMENT, CLASSES, device=CPU)
    other = UfldModelConfig.model_validate({**MODEL, "weights": "none", "lanes": 2})
    state = build_lane_network(other).state_dict()
    message = r"config \(cls\.3\.bias is \[\d+\], \[\d+\] is right, and 1 more\); use the config"
    with pytest.raises(ModelError, match=message) as caught:
        build_predictor(state, EXPERIMENT, CLASSES, device=CPU)
    assert "\n" not in str(caught.value)


@pytest.fixture
def packed(tmp_path: Path) -> ModelFiles:
    """The files of a deployable model that finds lanes everywhere."""
    torch.manual_seed(0)
    network = build_lane_network(UfldModelConfig.model_validate({**MODEL, "weights": "none"}))
    experiment = {**EXPERIMENT, "decode": {"row_share": 0, "column_share": 0}}
    experiment["evaluate"] = {"metric": {"name": "tusimple"}}
    text = yaml.safe_dump(experiment)
    (tmp_path / "model").mkdir()
    deployable = Deployable(network.state_dict(), text, CLASSES["names"], CLASSES["ids"])
    return write_model_files(deployable, tmp_path / "model")


def predict(source: Path, output: Path) -> Result:
    from steps.predict import main

    arguments = ["--source", str(output.parent / "model"), "--input", str(source)]
    arguments += ["--output", str(output), "--device", "cpu"]
    return CliRunner().invoke(main, arguments, catch_exceptions=False)


@pytest.mark.usefixtures("packed")
def test_the_predict_step_counts_lanes_and_writes_their_points(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "a.png"), picture(50, 100))
    result = predict(tmp_path / "a.png", tmp_path / "out")
    (answer,) = map(json.loads, (tmp_path / "out/predictions.jsonl").read_text().splitlines())
    assert f"{len(answer['lanes'])} lanes in 1 pictures" in result.output
    assert "predictions.csv, lines/, tusimple.json, drawn/" in result.output
    with (tmp_path / "out/predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == sum(len(lane["points"]) for lane in answer["lanes"]) > 0
    assert list(rows[0]) == ["path", "frame", "time_s", *LanePredictor.columns]
    text = (tmp_path / "out/lines/a.lines.txt").read_text()
    assert len(text.splitlines()) == len(answer["lanes"])


@pytest.mark.usefixtures("packed")
def test_lanes_are_drawn_into_a_video(tmp_path: Path) -> None:
    with VideoWriter(tmp_path / "drive", fps=10, width=100, height=50) as writer:
        for _ in range(3):
            writer.write(picture(50, 100))
    result = predict(writer.path, tmp_path / "out")
    assert result.exit_code == 0, result.output
    lines = (tmp_path / "out/predictions.jsonl").read_text().splitlines()
    assert [json.loads(line)["frame"] for line in lines] == [0, 1, 2]
    assert all(json.loads(line)["lanes"] for line in lines)
    drawn = list(VideoReader(tmp_path / "out/drawn/drive.webm"))
    assert len(drawn) == 3
    # the given frames are black: all colour is that of lanes
    assert all((frame.picture.max(2) > 100).any() for frame in drawn)
    texts = [path.read_text() for path in (tmp_path / "out/lines").rglob("*.lines.txt")]
    assert len(texts) == 3
    assert all(text.strip() for text in texts)


def test_a_served_model_answers_with_lanes(packed: ModelFiles) -> None:
    from steps.serving import ServedModel

    files = {name: str(getattr(packed, name)) for name in ("weights", "config", "classes")}
    model = ServedModel()
    model.load_context(SimpleNamespace(artifacts=files))
    data = cv2.imencode(".png", picture(90, 160))[1].tobytes()
    table = pd.DataFrame({"image": [data, base64.b64encode(data).decode()]})
    first, second = model.predict(None, table, {"score_threshold": 0.0})
    assert first == second
    assert (first["width"], first["height"]) == (160, 90)
    assert set(first["lanes"][0]) == {"slot", "kind", "score", "points"}
    json.dumps(first)


def test_prediction_imports_nothing_beyond_the_requirements_of_a_served_model() -> None:
    from steps.model_package import pip_requirements

    unneeded = ["matplotlib", "scipy", "joblib", "tqdm", "click", "mlflow", "faster_coco_eval"]
    unneeded = [
        name for name in unneeded if name == "mlflow" or name not in str(pip_requirements())
    ]
    code = (
        f"import sys, numpy, torch, pydantic\nfor name in {unneeded!r}:\n"
        "    sys.modules[name] = None\n"
        "from models.lanes.build import build_lane_network\n"
        "from tasks.lanes.config import UfldModelConfig\n"
        "from tasks.lanes.predictor import build_predictor\n"
        f"experiment = {EXPERIMENT!r}\n"
        "model = UfldModelConfig.model_validate({**experiment['model'], 'weights': 'none'})\n"
        "state = build_lane_network(model).state_dict()\n"
        "predictor = build_predictor(state, experiment, {}, device=torch.device('cpu'))\n"
        "picture = numpy.zeros((50, 100, 3), numpy.uint8)\n"
        "predictor.draw(picture, predictor.predict([picture], score_threshold=0.0)[0])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_file_of_another_program_is_a_model_by_its_config(tmp_path: Path) -> None:
    model = UfldModelConfig.model_validate({**MODEL, "weights": "none", "aux": {}})
    state = build_lane_network(model).state_dict()
    names = {f"module.{name}": tensor for name, tensor in state.items()}
    torch.save({"model": names, "optimizer": {"state": {}}}, tmp_path / "ep012.pth")
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(TRAINED), encoding="utf-8")
    (tmp_path / "mine.yaml").write_text("extends: base.yaml\n", encoding="utf-8")

    found = open_source(
        str(tmp_path / "ep012.pth"),
        config=str(tmp_path / "mine.yaml"),
        overrides="decode.window=3",
        device=CPU,
    )

    assert isinstance(found, LanePredictor)
    assert found.reader.decode.window == 3
    ours = found.network.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in ours.items())
    assert not any(name.startswith("seg_head") for name in ours)


def test_a_file_without_a_network_is_no_model(tmp_path: Path) -> None:
    torch.save([1, 2], tmp_path / "junk.pth")
    with pytest.raises(WeightsError, match="holds no state dict"):
        open_source(str(tmp_path / "junk.pth"), config="", device=CPU)
