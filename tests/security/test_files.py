"""Names that come from data lead nowhere else, and files without end are not read."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from readers.images import read_image
from readers.records import DatasetError
from readers.regular_files import read_regular
from readers.text_files import load_json
from readers.xml_files import walk_xml
from readers.yolo import read_yolo
from steps.predictions import OutputError, PredictionFiles, claim_folder
from tests.builders import build_yolo, write_picture

OUTSIDE = ["../out.txt", "a/../../out.txt", "/tmp/out.txt", "drawn/../../../out.txt"]


class Answers:
    """A predictor that wants its files where a list of names from elsewhere says."""

    unit, columns = "boxes", ("label",)

    def __init__(self, files=(), lines=()) -> None:
        self._files, self._lines = files, lines

    def rows(self, answer):
        return []

    def files(self, item, answer):
        return dict.fromkeys(self._files, "text")

    def lines(self, item, answer):
        return dict.fromkeys(self._lines, "text")


@pytest.fixture
def folder(tmp_path):
    """An output folder deep enough that nothing outside of `tmp_path` can be reached from it."""
    yield claim_folder(tmp_path / "a" / "b" / "c" / "output")
    assert not list(tmp_path.rglob("out.txt*"))


@pytest.mark.parametrize("name", [name for name in OUTSIDE if not name.startswith("/")])
def test_drawn_pictures_stay_in_the_output_folder(folder, name):
    with (
        PredictionFiles(folder, Answers()) as files,
        pytest.raises(OutputError, match=r"would be written outside of .*output"),
    ):
        files.add_drawn(name, np.zeros((8, 8, 3), np.uint8))


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("kind", ["files", "lines"])
def test_files_in_the_benchmarks_formats_stay_in_the_output_folder(folder, kind, name):
    predictor = Answers(**{kind: (name,)})
    with (
        PredictionFiles(folder, predictor) as files,
        pytest.raises(OutputError, match="would be written outside"),
    ):
        files.add("a.jpg", {"boxes": []}, frame={})


def test_names_within_the_output_folder_are_fine(folder):
    with PredictionFiles(folder, Answers(files=("lines/a..b/..c.txt",))) as files:
        files.add("a.jpg", {"boxes": []}, frame={})
        files.add_drawn("day..1/a.jpg", np.zeros((8, 8, 3), np.uint8))
    assert (folder / "lines/a..b/..c.txt").exists()
    assert (folder / "drawn/day..1/a.jpg").exists()


def test_an_experiments_name_makes_no_folder_elsewhere(client, store, tmp_path):
    from steps.tracking_store import find_experiment

    experiment = client.get_experiment(find_experiment(client, store, "../../../escaped"))
    location = Path(experiment.artifact_location.removeprefix("file://"))
    assert location.parent == tmp_path / "mlruns"
    assert ".." not in location.parts


@pytest.mark.parametrize("prepare_run", ["../../elsewhere", "/etc", "..", "a/b", "a\nb"])
def test_a_prepare_run_named_by_a_tag_is_no_path(tmp_path, monkeypatch, prepare_run):
    from steps.experiment import load
    from steps.prepared import PreparedError, prepared_index

    monkeypatch.setenv("SIGHTFLOW_HOME", str(tmp_path))
    with pytest.raises(PreparedError, match="this is no run's id"):
        prepared_index(load(None), prepare_run=prepare_run, run_id="mine", is_inherited=True)


@pytest.fixture(params=["pipe", "device", "link to a device"])
def endless(request, tmp_path):
    """A name in an unpacked data set that can be read for ever."""
    path = tmp_path / "endless"
    if request.param == "device":
        return Path("/dev/zero")
    if request.param == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    return path


def test_pipes_and_devices_are_not_read(endless):
    readers = (read_image, load_json, lambda path: walk_xml(path, start=print, end=print))
    for read in readers:
        with pytest.raises(DatasetError, match="cannot be read: Not a file but a pipe"):
            read(endless)


def test_a_pipe_in_the_place_of_labels_is_told(tmp_path):
    source = build_yolo(tmp_path, images=12)
    labels = sorted((tmp_path / "labels" / "train").glob("*.txt"))[0]
    labels.unlink()
    os.mkfifo(labels)
    found = read_yolo(Path(source["path"]), split="train", names=None)
    list(found.records)
    assert any("Not a file but a pipe" in finding.message for finding in found.findings)


def test_a_file_that_is_far_too_large_is_not_read(tmp_path):
    path = tmp_path / "sparse.jpg"
    with path.open("wb") as file:
        file.truncate(100 * 1024**3)
    with pytest.raises(DatasetError, match="Larger than the 1 GiB that such a file may have"):
        read_image(path)
    with pytest.raises(OSError, match="Larger than the 8 GiB"):
        read_regular(path)


@pytest.mark.parametrize("kind", ["name", "link"])
def test_a_data_yaml_cannot_have_another_file_quoted_in_its_report(tmp_path, kind):
    secret = tmp_path / "credentials"
    secret.write_text("aws_secret_access_key = abcdefgh\n")
    entry = str(secret)
    if kind == "link":
        entry = "train.txt"
        (tmp_path / entry).symlink_to(secret)
    description = tmp_path / "data.yaml"
    description.write_text(json.dumps({"train": entry, "names": ["a"]}))
    with pytest.raises(DatasetError, match=r"a list file ends in \.txt") as caught:
        read_yolo(description, split="train", names=None)
    assert "abcdefgh" not in str(caught.value)


def test_hostile_names_of_pictures_are_only_names(tmp_path, trace):
    """Blanks, quotes, shell words, line breaks: a picture is a picture."""
    for name in (f"$(touch {trace.name}).jpg", "a;b`c`'\".jpg", "line\nbreak.jpg", "-rf.jpg"):
        path = write_picture(tmp_path / name)
        assert read_image(path).shape == (72, 96, 3)
