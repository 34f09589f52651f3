from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from readers.records import DatasetError
from readers.yolo import read_yolo, write_yolo
from readers.yolo_sources import label_path
from tests.builders import draw_records, record_of, write_picture
from tests.readers.test_images import CORNERS, encoded, exif
from tests.shared import shared_data

NAMES = ("cat", "dog")


def labelled(folder, text, name="a"):
    """A picture of 96x72 with a label file of this text (None: no file)."""
    write_picture(folder / "images" / f"{name}.png")
    if text is not None:
        (folder / "labels").mkdir(exist_ok=True)
        (folder / "labels" / f"{name}.txt").write_bytes(text.encode())
    return folder / "images"


def read(path, *, split=None, names=NAMES):
    found = read_yolo(path, split=split, names=names)
    return list(found.records), found


def codes(found):
    return [finding.code for finding in found.findings]


@pytest.mark.parametrize(
    "text",
    [
        "1 0.5 0.5 0.25 0.5\n",
        "1 0.5 0.5 0.25 0.5",
        "\ufeff1 0.5 0.5 0.25 0.5\r\n\r\n",
        "\n1\t0.5\t0.5\t0.25\t0.5  \n",
        "1.0 5e-1 .5 0.25 0.5\n",
    ],
)
def test_row_is_read_whatever_the_line_ends(tmp_path, text):
    records, found = read(labelled(tmp_path, text))
    assert records[0].boxes_xyxy.tolist() == [[36, 18, 60, 54]]
    assert records[0].labels.tolist() == [1]
    assert codes(found) == []


@pytest.mark.parametrize(
    ("row", "code", "left"),
    [
        ("2 0.5 0.5 0.2 0.2", "unknown-class", 1),
        ("-1 0.5 0.5 0.2 0.2", "unknown-class", 1),
        ("1.5 0.5 0.5 0.2 0.2", "unknown-class", 1),
        ("0 0.5 0.5 0 0.2", "zero-area-box", 1),
        ("0 nan 0.5 0.2 0.2", "non-finite-box", 1),
        ("0 0.99 0.5 0.2 0.2", "box-out-of-frame", 2),
        ("1 0.5 0.5 0.2 0.2", "duplicate-box", 1),
        ("0 0.5 0.5 0.2", "bad-row", 1),
        ("0 0.5 0.5 0.2 0.2 0.9 1 2", "bad-row", 1),
        ("cat 0.5 0.5 0.2 0.2", "bad-row", 1),
        ("0 48 36 10 10", "not-fractions", 1),
        ("0 0.5 0.5 0.2 0.2 0.87", "sixth-column", 2),
        ("0 0.1 0.1 0.5 0.1 0.3 0.6", "polygon-row", 2),
    ],
)
def test_bad_row_is_told_with_file_and_line(tmp_path, row, code, left):
    records, found = read(labelled(tmp_path, f"1 0.5 0.5 0.2 0.2\n{row}\n"))
    assert codes(found) == [code]
    assert found.findings[0].where == "a.txt:2"
    assert len(records[0].labels) == left


def test_polygon_gives_its_bounds(tmp_path):
    records, _ = read(labelled(tmp_path, "0 0.25 0.5 0.75 0.25 0.5 1\n"))
    np.testing.assert_allclose(records[0].boxes_xyxy, [[24, 18, 72, 72]])


def test_empty_label_file_and_no_label_file_are_background(tmp_path):
    labelled(tmp_path, "0 0.5 0.5 0.2 0.2\n")
    labelled(tmp_path, "", name="b")
    records, found = read(labelled(tmp_path, None, name="c"))
    assert [len(record.labels) for record in records] == [1, 0, 0]
    assert codes(found) == ["no-annotation", "no-label-file"]


def test_labels_without_picture_are_told(tmp_path):
    images = labelled(tmp_path, "0 0.5 0.5 0.2 0.2\n")
    (tmp_path / "labels" / "orphan.txt").write_text("0 0.5 0.5 0.2 0.2\n")
    (tmp_path / "labels" / "classes.txt").write_text("cat\ndog\n")
    _, found = read(images)
    assert [(one.code, one.where) for one in found.findings] == [
        ("labels-without-picture", f"{tmp_path / 'labels' / 'orphan.txt'}")
    ]


def test_labels_count_in_the_upright_picture(tmp_path):
    labelled(tmp_path, "0 0.5 0.5 0.5 0.25\n")
    (tmp_path / "images" / "a.png").unlink()
    (tmp_path / "images" / "a.jpg").write_bytes(encoded(CORNERS, "JPEG", exif=exif(6)))
    records, _ = read(tmp_path / "images")
    assert (records[0].width, records[0].height, records[0].turn) == (32, 48, 6)
    assert records[0].boxes_xyxy.tolist() == [[8, 18, 24, 30]]


@pytest.mark.parametrize(
    ("picture", "labels"),
    [
        ("/d/images/a.jpg", "/d/labels/a.txt"),
        ("/images/d/images/train/a.b.jpg", "/images/d/labels/train/a.b.txt"),
        ("/d/pictures/a.jpg", "/d/pictures/a.txt"),
        ("/d/images.old/a.jpg", "/d/images.old/a.txt"),
    ],
)
def test_labels_lie_where_the_last_images_folder_says(tmp_path, picture, labels):
    assert label_path(tmp_path / picture[1:]) == tmp_path / labels[1:]


@pytest.mark.parametrize(
    "yaml",
    [
        "path: .\ntrain: images\nnames: [cat, dog]\n",
        "train: ../images\nnames: {0: cat, 1: dog}\nnc: 2\n",
        "path: /where/the/author/had/it\ntrain: [images]\nnames:\n  0: cat\n  1: dog\n",
        "\ufefftrain: list.txt\r\nnames: [cat, dog]\r\n",
    ],
)
def test_data_yaml_finds_its_pictures(tmp_path, yaml):
    labelled(tmp_path, "1 0.5 0.5 0.2 0.2\n")
    (tmp_path / "list.txt").write_bytes("\ufeff./images/a.png\r\n\r\n".encode())
    (tmp_path / "data.yaml").write_text(yaml, encoding="utf-8")
    records, found = read(tmp_path / "data.yaml", split="train", names=None)
    assert [record.path for record in records] == [tmp_path / "images" / "a.png"]
    assert list(found.class_names) == ["cat", "dog"]
    assert codes(found) == []


@pytest.mark.parametrize(
    ("yaml", "split", "message"),
    [
        ("train: images\nnames: [a]\n", None, "say which `split` is meant: train"),
        ("train: images\nnames: [a]\n", "val", "no entry `val`; it has train"),
        ("train: gone\nnames: [a]\n", "train", "`gone` is neither a folder nor a list file"),
        ("train: images\n", "train", "no `names`"),
        ("train: images\nnames: {0: a, 2: b}\n", "train", "without a gap"),
        ("train: images\nnames: [a, a]\n", "train", "'a' comes twice"),
        ("train: images\n  names: [a]\n", "train", r"data\.yaml:2: not YAML"),
        ("- images\n", "train", r"not a data\.yaml"),
        ("train: .\nnames: [a, null]", "train", "a class in `names` has no name"),
        ("a: " + "[" * 5000, "train", "nested too deeply"),
    ],
)
def test_wrong_data_yaml_is_told(tmp_path, yaml, split, message):
    labelled(tmp_path, "")
    (tmp_path / "data.yaml").write_text(yaml, encoding="utf-8")
    with pytest.raises(DatasetError, match=message):
        read_yolo(tmp_path / "data.yaml", split=split, names=None)


def test_class_count_that_contradicts_the_names_is_told(tmp_path):
    labelled(tmp_path, "1 0.5 0.5 0.2 0.2\n")
    (tmp_path / "data.yaml").write_text("train: images\nnc: 3\nnames: [cat, dog]\n")
    _, found = read(tmp_path / "data.yaml", split="train", names=None)
    assert codes(found) == ["class-count-mismatch"]


def test_list_file_and_names_file(tmp_path):
    labelled(tmp_path, "1 0.5 0.5 0.2 0.2\n")
    (tmp_path / "list.txt").write_text("images/a.png\nimages/gone.png\nimages/a.png\n")
    (tmp_path / "names.txt").write_text("cat\ndog\n\n")
    records, found = read(tmp_path / "list.txt", names="names.txt")
    assert [record.image_id for record in records] == ["images/a"]
    assert sorted(codes(found)) == [
        "duplicate-image",
        "missing-picture",
        "no-label-file",
        "too-many-lost-pictures",
    ]
    with pytest.raises(DatasetError, match="give `names`"):
        read_yolo(tmp_path / "list.txt", split=None, names=None)


def test_reading_what_was_written_gives_the_same(tmp_path):
    records = draw_records(tmp_path / "images" / "train", images=5)
    write_yolo(records, ("red", "green"), folder=tmp_path, split="train")
    again, found = read(tmp_path / "data.yaml", split="train", names=None)
    assert list(found.class_names) == ["red", "green"]
    for before, after in zip(records, again, strict=True):
        assert before.path == after.path
        np.testing.assert_allclose(before.boxes_xyxy, after.boxes_xyxy, atol=1e-9)
        assert before.labels.tolist() == after.labels.tolist()


def test_writing_a_second_split_keeps_the_first(tmp_path):
    path = write_picture(tmp_path / "images" / "a.png")
    crowd = record_of(path, [(1, 1, 9, 9), (2, 2, 8, 8)], [0, 1], size=(96, 72), is_crowd=[1, 0])
    for split in ("train", "val"):
        write_yolo([crowd], NAMES, folder=tmp_path, split=split)
    for split in ("train", "val"):
        records, _ = read(tmp_path / "data.yaml", split=split, names=None)
        assert records[0].labels.tolist() == [1]


def test_coco128_has_its_known_counts():
    path = shared_data("detection/coco128_yolo/data.yaml")
    records, found = read(path, split="train", names=None)
    assert len(records) == 80
    assert sum(len(record.labels) for record in records) == 634
    assert len({label for record in records for label in record.labels.tolist()}) == 67
    assert sorted((one.code, one.where) for one in found.findings) == [
        ("labels-without-picture", "labels/train2017/000000000656.txt"),
        ("labels-without-picture", "labels/train2017/000000000659.txt"),
        ("no-label-file", "000000000250.txt"),
    ]


# what each awkward file must come to: its finding (None: nothing is wrong) and the boxes left
AWKWARD = {
    "000000000009.txt": (None, 8),
    "000000000025.txt": (None, 2),
    "000000000030.txt": ("no-annotation", 0),
    "000000000034.txt": ("duplicate-box", 1),
    "000000000036.txt": ("box-out-of-frame", 3),
    "000000000042.txt": ("unknown-class", 1),
    "000000000049.txt": ("zero-area-box", 9),
    "000000000061.txt": ("sixth-column", 5),
    "000000000064.txt": (None, 4),
    "000000000071.txt": ("non-finite-box", 16),
    "000000000072.txt": ("polygon-row", 2),
}


@pytest.fixture
def awkward(tmp_path):
    labels = shared_data("detection/awkward_labels/yolo/labels")
    pictures = shared_data("detection/coco128_yolo/images/train2017")
    (tmp_path / "images").mkdir()
    (tmp_path / "labels").mkdir()
    for path in labels.iterdir():
        shutil.copyfile(path, tmp_path / "labels" / path.name)
        picture = pictures / f"{path.stem}.jpg"
        shutil.copyfile(picture, tmp_path / "images" / picture.name)
    return tmp_path / "images"


def test_every_awkward_label_file_is_handled(awkward):
    expected = json.loads(shared_data("detection/awkward_labels/yolo/expected.json").read_text())
    assert set(expected) == set(AWKWARD)
    records, found = read(awkward, names=tuple(map(str, range(80))))
    told = {one.where.split(":")[0].split(".")[0]: one.code for one in found.findings}
    result = {
        f"{record.image_id}.txt": (told.get(record.image_id), len(record.labels))
        for record in records
    }
    assert result == AWKWARD
