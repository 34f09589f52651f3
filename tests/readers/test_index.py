from __future__ import annotations

import pickle
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from readers.coco import read_coco
from readers.index import ImageBoxesIndex, build_index, concat, write_index
from readers.records import DatasetError, ImageBoxesSet
from tests.builders import build_coco, record_of

FIELDS = ("boxes_xyxy", "labels", "is_crowd", "areas")


def a_set(*records, names=("cat", "dog"), ids=(3, 7)):
    return ImageBoxesSet(records, names, ids, [], source=None)


def rec(image_id, boxes=(), labels=(), **keys):
    record = record_of(
        f"/d/{image_id}.jpg", boxes, labels, size=(96, 72), image_id=image_id, **keys
    )
    return replace(record, content=f"content of {image_id}")


RECORDS = (
    rec("a", [(1, 2, 30, 40), (5, 5, 9, 9.5)], [0, 1], is_crowd=[0, 1]),
    rec("b"),
    rec("c", [(0, 0, 96, 72)], [1]),
)


def assert_same(first, second):
    for name in FIELDS:
        assert np.array_equal(getattr(first, name), getattr(second, name)), name
        assert getattr(first, name).dtype == getattr(second, name).dtype, name
    for name in ("image_id", "path", "width", "height", "turn", "annotation_ids", "content"):
        assert getattr(first, name) == getattr(second, name), name


def test_opened_file_gives_the_records_back(tmp_path):
    index = write_index(a_set(*RECORDS), tmp_path / "da ta" / "\u00fc.arrow")
    opened = ImageBoxesIndex.open(tmp_path / "da ta" / "\u00fc.arrow")
    assert len(opened) == 3
    for record, first, second in zip(RECORDS, index, opened, strict=True):
        assert_same(record, first)
        assert_same(record, second)
    assert (opened.class_names, opened.class_ids) == (("cat", "dog"), (3, 7))
    assert opened[-1].image_id == "c"


def test_arrays_are_views_that_cannot_be_changed(tmp_path):
    index = write_index(a_set(*RECORDS), tmp_path / "x.arrow")
    assert np.shares_memory(index[0].boxes_xyxy, index[0].boxes_xyxy)
    with pytest.raises(ValueError, match="read-only"):
        index[0].boxes_xyxy[0, 0] = 5


def test_empty_set_makes_an_empty_index(tmp_path):
    index = write_index(a_set(), tmp_path / "x.arrow")
    assert len(index) == 0
    assert index.counts()["per_class"] == {"cat": 0, "dog": 0}


def test_counts_tell_crowd_apart():
    assert build_index(a_set(*RECORDS)).counts() == {
        "pictures": 3,
        "boxes": 3,
        "crowd": 1,
        "without_boxes": 1,
        "per_class": {"cat": 1, "dog": 1},
    }
    assert build_index(a_set(*RECORDS)).num_trainable_boxes().tolist() == [1, 0, 1]


def test_subset_and_slice_choose_rows_in_order():
    index = build_index(a_set(*RECORDS))
    chosen = index.subset([2, 0])
    assert [record.image_id for record in chosen] == ["c", "a"]
    assert chosen.subset([1]).image_ids == ["a"]
    assert index[1:].image_ids == ["b", "c"]
    assert chosen.counts()["boxes"] == 3
    assert chosen.num_trainable_boxes().tolist() == [1, 1]
    with pytest.raises(IndexError):
        chosen[2]


def test_saved_subset_equals_the_subset(tmp_path):
    chosen = build_index(a_set(*RECORDS)).subset([2, 0])
    saved = chosen.save(tmp_path / "x.arrow")
    assert saved.digest == chosen.digest
    for first, second in zip(chosen, saved, strict=True):
        assert_same(first, second)


def test_digest_follows_content_and_not_places(tmp_path):
    index = build_index(a_set(*RECORDS))
    moved = [replace(record, path=tmp_path / record.path.name) for record in RECORDS]
    assert build_index(a_set(*moved)).digest == index.digest
    changes = [
        replace(RECORDS[2], content="other"),
        replace(RECORDS[2], boxes_xyxy=RECORDS[2].boxes_xyxy + 0.5),
        replace(RECORDS[2], labels=np.array([0])),
        replace(RECORDS[2], is_crowd=np.array([True])),
        replace(RECORDS[2], turn=6),
    ]
    digests = {build_index(a_set(*RECORDS[:2], change)).digest for change in changes}
    digests.add(build_index(a_set(*RECORDS, names=("cat", "cow"))).digest)
    digests.add(build_index(a_set(*RECORDS[::-1])).digest)
    assert len(digests) == 7
    assert index.digest not in digests


def test_copied_data_set_has_the_same_digest(tmp_path):
    source = build_coco(tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    digests = [
        build_index(read_coco(folder / "images", folder / "instances.json")).digest
        for folder in (tmp_path / "one", tmp_path / "two")
    ]
    assert source["format"] == "coco"
    assert digests[0] == digests[1]


@pytest.mark.parametrize("is_saved", [True, False])
def test_index_travels_to_other_processes(tmp_path, is_saved):
    index = build_index(a_set(*RECORDS))
    index = (index.save(tmp_path / "x.arrow") if is_saved else index).subset([2, 0])
    sent = pickle.loads(pickle.dumps(index))
    assert sent.image_ids == ["c", "a"]
    assert sent.digest == index.digest


def test_joining_keeps_ids_apart():
    first, second = build_index(a_set(*RECORDS)), build_index(a_set(RECORDS[0], rec("d")))
    joined = concat([first, second])
    assert joined.image_ids == ["a", "b", "c", "1/a", "d"]
    assert_same(joined[3], replace(RECORDS[0], image_id="1/a"))
    other = build_index(a_set(*RECORDS, names=("dog", "cat")))
    with pytest.raises(DatasetError, match="different class tables"):
        concat([first, other])


def test_other_class_table_is_matched_by_name():
    index = build_index(a_set(*RECORDS)).subset([2, 0])
    moved = index.with_classes(("dog", "cow", "cat"), (1, 2, 3))
    assert [record.labels.tolist() for record in moved] == [[0], [2, 0]]
    assert moved.class_ids == (1, 2, 3)
    with pytest.raises(ValueError, match="not in the new class table"):
        index.with_classes(("cat",), (1,))


def test_two_pictures_of_one_id_are_refused():
    with pytest.raises(DatasetError, match="two pictures have the id 'b'"):
        build_index(a_set(RECORDS[1], RECORDS[1]))


def test_what_is_no_index_is_told(tmp_path):
    path = tmp_path / "x.arrow"
    with pytest.raises(DatasetError, match="no data index"):
        ImageBoxesIndex.open(path)
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(DatasetError, match="no data index"):
        ImageBoxesIndex.open(path)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, pa.schema([])):
        pass
    with pytest.raises(DatasetError, match="no data index of this version"):
        ImageBoxesIndex.open(path)
