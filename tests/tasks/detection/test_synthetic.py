import json

import numpy as np
import pytest

from readers.coco import read_coco
from readers.images import read_image
from readers.records import DatasetError
from tasks.detection.synthetic import CLASS_NAMES, draw_scene, write_synthetic


def test_a_scene_depends_on_the_seed_only():
    first = draw_scene(np.random.RandomState([3, 0]), 160)
    again = draw_scene(np.random.RandomState([3, 0]), 160)
    other = draw_scene(np.random.RandomState([4, 0]), 160)

    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])


@pytest.mark.parametrize("size", [64, 160, 301])
def test_boxes_lie_in_the_picture_and_have_the_promised_sizes(size):
    for seed in range(30):
        picture, boxes, labels = draw_scene(np.random.RandomState(seed), size)

        assert picture.shape == (size, size, 3)
        assert picture.dtype == np.uint8
        assert len(boxes) == len(labels) <= 5
        assert boxes.min(initial=0) >= 0
        assert boxes.max(initial=0) <= size
        sides = boxes[:, 2:] - boxes[:, :2]
        assert (sides >= 3).all()
        # a corner may stick out by the diagonal's excess over the side
        assert (sides <= 0.38 * size * 1.3 + 2).all()


def test_every_class_is_drawn_about_as_often():
    labels = [draw_scene(np.random.RandomState(seed), 96)[2] for seed in range(200)]

    counts = np.bincount(np.concatenate(labels), minlength=len(CLASS_NAMES))
    assert counts.min() > 0.7 * counts.mean()


def test_a_written_set_is_read_back_as_drawn(tmp_path):
    folder = tmp_path / "a set"
    write_synthetic(folder, images=5, size=96, seed=2)

    found = read_coco(folder / "images", folder / "annotations.json")
    records = list(found.records)

    assert not found.findings
    assert tuple(found.class_names) == CLASS_NAMES
    assert len(records) == 5
    for index, record in enumerate(records):
        picture, boxes, labels = draw_scene(np.random.RandomState([2, index]), 96)
        assert np.array_equal(record.boxes_xyxy, boxes)
        assert np.array_equal(record.labels, labels)
        assert np.abs(read_image(record.path).astype(int) - picture).mean() < 12


def test_scenes_do_not_depend_on_how_many_there_are(tmp_path):
    write_synthetic(tmp_path / "few", images=2, size=64, seed=0)
    write_synthetic(tmp_path / "more", images=3, size=64, seed=0)

    few, more = tmp_path / "few/images/000001.jpg", tmp_path / "more/images/000001.jpg"
    assert few.read_bytes() == more.read_bytes()


def test_a_whole_set_is_not_drawn_again(tmp_path):
    write_synthetic(tmp_path / "s", images=2, size=64, seed=0)
    before = (tmp_path / "s/annotations.json").stat()

    write_synthetic(tmp_path / "s", images=2, size=64, seed=0)

    after = (tmp_path / "s/annotations.json").stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)


@pytest.mark.parametrize("damage", ["picture", "annotations", "other-seed"])
def test_a_damaged_or_other_set_is_drawn_anew(damage, tmp_path):
    folder = tmp_path / "s"
    write_synthetic(folder, images=2, size=64, seed=1 if damage == "other-seed" else 0)
    if damage == "picture":
        (folder / "images/000000.jpg").unlink()
    if damage == "annotations":
        (folder / "annotations.json").write_text('{"info"', encoding="utf-8")

    write_synthetic(folder, images=2, size=64, seed=0)

    content = json.loads((folder / "annotations.json").read_text(encoding="utf-8"))
    assert content["info"]["sightflow"]["seed"] == 0
    assert len(list((folder / "images").iterdir())) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "holiday.jpg").write_bytes(b"x")

    with pytest.raises(DatasetError, match=r"holds 'holiday\.jpg', which is no part"):
        write_synthetic(tmp_path, images=2, size=64, seed=0)
    assert [path.name for path in tmp_path.iterdir()] == ["holiday.jpg"]
