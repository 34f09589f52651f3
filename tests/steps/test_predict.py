from __future__ import annotations

import csv
import json

import cv2
import numpy as np
import pytest
from click.testing import CliRunner

from steps import predicting
from steps.predict import main as predict
from steps.video import VideoReader, VideoWriter
from tasks.detection.predictor import DetectionPredictor
from tasks.predictor import Predictor
from tests.steps.model_store import sqlite_store


class BrightSpot:
    """A predictor that needs no network: one box around what is brighter than 128."""

    unit, columns = DetectionPredictor.unit, DetectionPredictor.columns
    rows, files, lines = DetectionPredictor.rows, Predictor.files, Predictor.lines

    def predict(self, pictures, *, score_threshold):
        self.batches = [*getattr(self, "batches", []), len(pictures)]
        return [self._answer(picture, score_threshold) for picture in pictures]

    def _answer(self, picture, score_threshold):
        rows, columns = np.nonzero(picture[:, :, 0] > 128)
        found = len(rows) > 0 and score_threshold <= 0.9
        box = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1] if found else []
        return {
            "boxes": [[float(value) for value in box]] if found else [],
            "scores": [0.9] if found else [],
            "labels": ["spot"] if found else [],
            "label_ids": [7] if found else [],
            "width": picture.shape[1],
            "height": picture.shape[0],
        }

    def draw(self, picture, answer):
        return 255 - picture


@pytest.fixture
def predictor(monkeypatch, tmp_path):
    predictor = BrightSpot()
    monkeypatch.setattr(predicting, "open_source", lambda *_, **__: predictor)
    monkeypatch.setenv("SIGHTFLOW_HOME", str(tmp_path / "work"))
    monkeypatch.delenv("MLFLOW_RUN_ID", raising=False)
    return predictor


def _picture(left=4, size=(24, 32)):
    picture = np.zeros((*size, 3), np.uint8)
    picture[8:12, left : left + 6] = 255
    return picture


def _write(path, picture=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), _picture() if picture is None else picture)
    return path


def _predict(source, output, *options):
    arguments = ["--source", "models:/x@champion", "--device", "cpu"]
    arguments += ["--input", str(source), "--output", str(output), *options]
    return CliRunner().invoke(predict, arguments, catch_exceptions=False)


def _lines(output):
    return [json.loads(line) for line in (output / "predictions.jsonl").read_text().splitlines()]


def test_a_folder_is_walked_in_order_of_name_and_other_files_are_counted(predictor, tmp_path):
    folder = tmp_path / "in"
    for name in ("b.png", "a/z.PNG", "c d.bmp"):
        _write(folder / name)
    (folder / "notes.txt").write_text("no picture")
    result = _predict(folder, tmp_path / "out", "--batch-size", "2")
    assert result.exit_code == 0, result.output
    assert [line["path"] for line in _lines(tmp_path / "out")] == ["a/z.PNG", "b.png", "c d.bmp"]
    assert predictor.batches == [2, 1]
    assert "3 boxes in 3 pictures" in result.output
    assert "1 other files" in result.output
    drawn = sorted(p.relative_to(tmp_path / "out/drawn") for p in tmp_path.glob("out/drawn/**/*.*"))
    assert [path.as_posix() for path in drawn] == ["a/z.PNG", "b.png", "c d.bmp.jpg"]


def test_each_answer_is_a_line_and_each_box_a_row(predictor, tmp_path):
    _predict(_write(tmp_path / "in/a.png"), tmp_path / "out")
    (line,) = _lines(tmp_path / "out")
    assert line == {
        "path": "a.png",
        "boxes": [[4.0, 8.0, 10.0, 12.0]],
        "scores": [0.9],
        "labels": ["spot"],
        "label_ids": [7],
        "width": 32,
        "height": 24,
    }
    with (tmp_path / "out/predictions.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["path"] == "a.png"
    assert (row["label"], row["label_id"], row["score"]) == ("spot", "7", "0.9")
    assert [row[key] for key in ("x1", "y1", "x2", "y2")] == ["4.0", "8.0", "10.0", "12.0"]


def test_the_drawn_picture_keeps_its_colours(predictor, tmp_path):
    picture = np.zeros((8, 8, 3), np.uint8)
    picture[:, :, 0] = 255  # blue, as OpenCV writes it
    _predict(_write(tmp_path / "a.png", picture), tmp_path / "out")
    drawn = cv2.imread(str(tmp_path / "out/drawn/a.png"))
    assert drawn[0, 0].tolist() == [0, 255, 255]


def test_the_threshold_reaches_the_model(predictor, tmp_path):
    _predict(_write(tmp_path / "a.png"), tmp_path / "out", "--score-threshold", "0.95")
    assert _lines(tmp_path / "out")[0]["boxes"] == []


def test_unreadable_pictures_are_listed_and_left_out(predictor, tmp_path):
    _write(tmp_path / "in/good.png")
    (tmp_path / "in/bad.jpg").write_bytes(b"not a picture")
    result = _predict(tmp_path / "in", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "warning: 1 pictures could not be read" in result.output
    assert "bad.jpg" in result.output
    assert [line["path"] for line in _lines(tmp_path / "out")] == ["good.png"]


def test_when_no_picture_can_be_read_the_exit_code_is_1(predictor, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/bad.jpg").write_bytes(b"")
    result = _predict(tmp_path / "in", tmp_path / "out")
    assert result.exit_code == 1
    assert "no picture could be read" in result.output
    assert not (tmp_path / "out/predictions.jsonl").exists()


def test_predictions_are_never_overwritten(predictor, tmp_path):
    picture = _write(tmp_path / "a.png")
    assert _predict(picture, tmp_path / "out").exit_code == 0
    result = _predict(picture, tmp_path / "out")
    assert result.exit_code == 2
    assert "holds predictions.jsonl already" in result.output


def test_without_an_output_each_call_gets_a_new_folder(predictor, tmp_path):
    picture = _write(tmp_path / "a.png")
    for _ in range(2):
        assert _predict(picture, "").exit_code == 0
    folders = list((tmp_path / "work/predictions").iterdir())
    assert len(folders) == 2
    assert all(folder.name.startswith("x@champion-") for folder in folders)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--input", "a.png"], 2, "--source is missing"),
        (["--source", "models:/x/1"], 2, "--input is missing"),
        (["--source", "models:/x/1", "--input", "no-such.png"], 1, "no-such.png: no such picture"),
        (["--source", "m", "--input", ".", "--score-threshold", "1.5"], 2, "score-threshold"),
    ],
    ids=["no source", "no input", "no file", "threshold"],
)
def test_mistakes_are_told_before_anything_is_done(
    predictor, tmp_path, monkeypatch, arguments, code, message
):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(predict, arguments)
    assert (result.exit_code, message in result.output) == (code, True), result.output
    assert not (tmp_path / "work").exists()


def test_a_folder_without_pictures_is_told(predictor, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.txt").write_text("x")
    result = _predict(tmp_path / "in", tmp_path / "out")
    assert result.exit_code == 1
    assert "none of the 1 files in it is a picture" in result.output


def test_a_video_gets_a_line_per_frame_and_a_drawn_webm(predictor, tmp_path):
    with VideoWriter(tmp_path / "in", fps=10, width=64, height=48) as writer:
        for index in range(5):
            writer.write(_picture(left=4 + 8 * index, size=(48, 64)))
    assert writer.path.name == "in.webm"
    result = _predict(writer.path, tmp_path / "out", "--batch-size", "2")
    assert result.exit_code == 0, result.output
    lines = _lines(tmp_path / "out")
    assert [line["frame"] for line in lines] == [0, 1, 2, 3, 4]
    assert [line["time_s"] for line in lines] == [0.0, 0.1, 0.2, 0.3, 0.4]
    lefts = [line["boxes"][0][0] for line in lines]
    assert np.allclose(lefts, [4, 12, 20, 28, 36], atol=2)  # the codec blurs edges
    drawn = VideoReader(tmp_path / "out/drawn/in.webm")
    assert len(list(drawn)) == 5
    assert drawn.fps == 10


def test_a_file_that_is_no_video_is_told(predictor, tmp_path):
    (tmp_path / "a.mp4").write_bytes(b"not a video")
    result = _predict(tmp_path / "a.mp4", tmp_path / "out")
    assert result.exit_code == 1
    assert "a.mp4: not a video that can be decoded" in result.output


def test_frames_of_odd_or_other_sizes_fit_the_video(tmp_path):
    with VideoWriter(tmp_path / "v", fps=25, width=33, height=21) as writer:
        writer.write(np.zeros((21, 33, 3), np.uint8))
        writer.write(np.zeros((40, 60, 3), np.uint8))
    shapes = {frame.picture.shape for frame in VideoReader(writer.path)}
    assert shapes == {(20, 32, 3)}


def test_under_mlflow_run_the_results_go_onto_its_run(predictor, tmp_path, monkeypatch):
    with sqlite_store(tmp_path) as client:
        run = client.create_run(client.get_experiment_by_name("runs").experiment_id)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
        monkeypatch.setenv("MLFLOW_RUN_ID", run.info.run_id)
        monkeypatch.setattr(predicting, "MOST_DRAWN_ON_RUN", 1)
        for name in ("a.png", "sub/b.png"):
            _write(tmp_path / "in" / name)
        assert _predict(tmp_path / "in", tmp_path / "out").exit_code == 0
        folder = tmp_path / "artifacts" / run.info.run_id / "artifacts"
        assert (folder / "predictions.jsonl").is_file()
        assert (folder / "predictions.csv").is_file()
        assert [path.name for path in folder.glob("drawn/**/*.png")] == ["a.png"]
        tags = client.get_run(run.info.run_id).data.tags
    assert tags["step"] == "predict"
    assert "2 boxes in 2 pictures" in tags["mlflow.note.content"]


class TwoFormats(BrightSpot):
    """The same, with files in formats of its own."""

    def files(self, item, answer):
        return {f"own/{item.partition('.')[0]}.txt": item}

    def lines(self, item, answer):
        return {"all.json": f"{item} {len(answer['boxes'])}"}


@pytest.fixture
def two_formats(predictor, monkeypatch):
    monkeypatch.setattr(predicting, "open_source", lambda *_, **__: TwoFormats())


def test_a_task_may_write_files_in_the_benchmarks_own_formats(two_formats, tmp_path):
    for name in ("a.png", "sub/b.png"):
        _write(tmp_path / "in" / name)
    result = _predict(tmp_path / "in", tmp_path / "out")
    assert (tmp_path / "out/all.json").read_text() == "a.png 1\nsub/b.png 1\n"
    assert (tmp_path / "out/own/sub/b.txt").read_text() == "sub/b.png"
    assert "predictions.csv, own/, all.json, drawn/" in result.output


def test_of_two_pictures_of_one_name_the_first_keeps_its_file(two_formats, tmp_path, caplog):
    for name in ("a.jpg", "a.png"):
        _write(tmp_path / "in" / name)
    assert _predict(tmp_path / "in", tmp_path / "out").exit_code == 0
    assert (tmp_path / "out/own/a.txt").read_text() == "a.jpg"
    assert "a.txt: is there already, of a picture of the same name; kept" in caplog.text


def test_the_frames_of_a_video_are_items_by_number(two_formats, tmp_path):
    with VideoWriter(tmp_path / "in", fps=10, width=64, height=48) as writer:
        for _ in range(2):
            writer.write(_picture(size=(48, 64)))
    _predict(writer.path, tmp_path / "out")
    lines = (tmp_path / "out/all.json").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["in.webm/000000", "in.webm/000001"]
