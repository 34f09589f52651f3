from __future__ import annotations

import pytest

from readers.cvat import read_cvat
from readers.records import DatasetError
from tests.builders import write_picture

POINTS = "10.00,70.00;20.00,40.50;30.00,20.00"
LANE = f'    <polyline label="lane" source="manual" occluded="0" points="{POINTS}" z_order="0">\n'
LANE += '      <attribute name="kind">dashed</attribute>\n    </polyline>\n'


def image(*shapes, name="a.png", size=(96, 72)):
    sides = f' width="{size[0]}" height="{size[1]}"' if size else ""
    return f'  <image id="0" name="{name}"{sides}>\n{"".join(shapes)}  </image>\n'


def labelled(root, *images, picture="a.png", before=""):
    """A picture of 96x72 and the XML; its first image is in line 4."""
    write_picture(root / "images" / picture)
    text = '<?xml version="1.0" encoding="utf-8"?>\n' + before
    text += f"<annotations>\n  <version>1.1</version>\n{''.join(images)}</annotations>\n"
    (root / "labels.xml").write_text(text, "utf-8")
    return root


def read(root, **keys):
    found = read_cvat(root / "labels.xml", root / "images", **keys)
    return list(found.records), found.findings


def codes(findings):
    return [item.code for item in findings]


def test_polylines_are_lanes(tmp_path):
    records, findings = read(labelled(tmp_path, image(LANE, LANE.replace('"lane"', '"kerb"'))))
    assert findings == []
    assert [lane.tolist() for lane in records[0].lanes] == [[[10, 70], [20, 40.5], [30, 20]]] * 2
    assert (records[0].image_id, records[0].path) == ("a.png", tmp_path / "images" / "a.png")


def test_other_labels_are_left_out(tmp_path):
    box = '<box label="car" xtl="1" ytl="1" xbr="5" ybr="5"></box>\n'
    labelled(tmp_path, image(LANE, LANE.replace('"lane"', '"kerb"'), box))
    records, findings = read(tmp_path, labels=["lane"])
    assert len(records[0].lanes) == 1
    assert findings == []
    _, findings = read(tmp_path, labels=["lane", "lain"])
    assert codes(findings) == ["unknown-label"]
    assert findings[0].message.endswith("'lain'; the labels of polylines are kerb, lane")


def test_lanes_drawn_as_polygons_are_told(tmp_path):
    polygon = f'<polygon label="lane" points="{POINTS}"></polygon>\n'
    _, findings = read(labelled(tmp_path, image(LANE, polygon)))
    assert codes(findings) == ["other-shape"]
    assert findings[0].where == "labels.xml:8"


@pytest.mark.parametrize("picture", ["drive \u00fc/a b.png", "a b.png"])
def test_names_with_folders_and_blanks_are_found(tmp_path, picture):
    labelled(tmp_path, image(LANE, name="drive \u00fc\\a b.png"), picture=picture)
    records, findings = read(tmp_path, jobs=2)
    assert findings == []
    assert records[0].path == tmp_path / "images" / picture
    assert records[0].image_id == "drive \u00fc/a b.png"


@pytest.mark.parametrize(
    ("points", "words"),
    [
        ("1,2;3", "'3' is no `x,y`"),
        ("1,2,3;4,5", "'1,2,3' is no `x,y`"),
        ("1,2;3,x", "could not convert string to float: 'x'"),
    ],
)
def test_broken_points_are_told_with_their_line(tmp_path, points, words):
    bad = LANE.replace(POINTS, points)
    _, findings = read(labelled(tmp_path, image(LANE, bad)))
    assert codes(findings) == ["bad-lane"]
    assert (findings[0].where, findings[0].severity) == ("labels.xml:8", "error")
    assert words in findings[0].message


def test_useless_lanes_are_dropped(tmp_path):
    bad = [LANE.replace(POINTS, points) for points in ("", "5,5", "100,5;120,70", "nan,5;6,7;8,60")]
    records, findings = read(labelled(tmp_path, image(*bad)))
    assert [lane.tolist() for lane in records[0].lanes] == [[[6, 7], [8, 60]]]
    assert codes(findings) == ["short-lane", "short-lane", "lane-outside", "non-finite-point"]


def test_images_are_checked(tmp_path):
    images = [image(LANE), image(LANE, name=""), image(LANE, name="gone.png"), image(LANE)]
    records, findings = read(labelled(tmp_path, *images))
    assert len(records) == 1
    seen = ["bad-image", "duplicate-image", "missing-picture", "too-many-lost-pictures"]
    assert codes(findings) == seen
    _, findings = read(labelled(tmp_path, image(LANE, size=(960, 720))))
    assert findings[0].code == "size-mismatch"
    assert len(read(labelled(tmp_path, image(LANE, size=None)))[0]) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<annotations>\n<image>", r"labels\.xml:2: broken XML"),
        ("<annotation></annotation>", "<annotations> is expected, not <annotation>"),
        ("<annotations></annotations>", "holds no <image>"),
        (
            "<annotations>\n<track id='0'></track></annotations>",
            r"xml:2: a <track>, of `CVAT for v",
        ),
    ],
)
def test_files_of_another_kind_stop_at_once(tmp_path, text, words):
    (tmp_path / "images").mkdir()
    (tmp_path / "labels.xml").write_text(text, "utf-8")
    with pytest.raises(DatasetError, match=words):
        read(tmp_path)


def test_entities_are_refused(tmp_path):
    before = '<!DOCTYPE x [\n<!ENTITY a "aaaa">\n<!ENTITY b "&a;&a;">]>\n'
    labelled(tmp_path, image(LANE, name="&b;"), before=before)
    with pytest.raises(DatasetError, match=r"labels\.xml:3: declares an entity"):
        read(tmp_path)


def test_missing_file_and_folder_are_named(tmp_path):
    with pytest.raises(DatasetError, match=r"images: no such folder \(pictures of labels\.xml\)"):
        read(tmp_path)
    (tmp_path / "images").mkdir()
    with pytest.raises(DatasetError, match=r"labels\.xml: no such file"):
        read(tmp_path)
