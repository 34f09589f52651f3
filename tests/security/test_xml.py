"""XML labels: entities are refused, nothing is fetched."""

import pytest

from readers.cvat import read_cvat
from readers.records import DatasetError
from readers.voc_xml import parse_annotation
from readers.xml_files import walk_xml

LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
DOCTYPES = {
    "billion laughs": f'<!DOCTYPE a [<!ENTITY l0 "ha">{LAUGHS}]>',
    "file": '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/hostname">]>',
    "address": '<!DOCTYPE a [<!ENTITY x SYSTEM "http://127.0.0.1:9/x">]>',
    "parameter": '<!DOCTYPE a [<!ENTITY % x SYSTEM "file:///etc/hostname"> %x;]>',
    "quadratic": f'<!DOCTYPE a [<!ENTITY x "{"a" * 100_000}">]>',
}


@pytest.fixture(params=DOCTYPES)
def hostile_xml(request, tmp_path):
    path = tmp_path / "a.xml"
    path.write_text(f"<?xml version='1.0'?>\n{DOCTYPES[request.param]}<annotation>&x;</annotation>")
    return path


def test_an_annotation_of_voc_with_entities_is_refused(hostile_xml):
    with pytest.raises(DatasetError, match=r"a\.xml:2: declares an entity"):
        parse_annotation(hostile_xml)


def test_an_xml_file_of_cvat_with_entities_is_refused(hostile_xml, tmp_path):
    with pytest.raises(DatasetError, match=r"a\.xml:2: declares an entity"):
        read_cvat(hostile_xml, tmp_path)


def test_a_definition_elsewhere_is_not_fetched(tmp_path):
    """Port 9 answers nobody: fetching would fail, and nothing does."""
    path = tmp_path / "a.xml"
    path.write_text('<!DOCTYPE annotation SYSTEM "http://127.0.0.1:9/a.dtd"><annotation/>')
    assert parse_annotation(path).objects == ()


def test_elements_nested_without_end_are_walked(tmp_path):
    path = tmp_path / "deep.xml"
    path.write_text("<a>" * 100_000 + "</a>" * 100_000)
    depths = [0]
    walk_xml(
        path,
        start=lambda *_: depths.append(depths[-1] + 1),
        end=lambda _: None,
    )
    assert max(depths) == 100_000
