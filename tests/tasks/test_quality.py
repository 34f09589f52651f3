from __future__ import annotations

import json
from html.parser import HTMLParser

import numpy as np
import pytest

from readers.records import Finding
from tasks.quality import EXAMPLES_PER_CODE, PICTURES_PER_CODE, SplitQuality, quality_report


def finding(code, *, severity="warning", number=1, **keys):
    message, action = f"{code} <b>&</b>", "box dropped"
    return Finding(severity, code, f"labels.txt:{number}", message, action, **keys)


def report(*findings, draw=lambda _: None, counts=None):
    split = SplitQuality(counts or {"pictures": 3}, findings, draw)
    return quality_report({"train": split})


@pytest.mark.parametrize(
    ("severities", "status"),
    [((), "clean"), (("warning",), "warning"), (("warning", "error"), "error")],
)
def test_status_is_the_worst_severity(severities, status):
    content, page = report(*(finding("x", severity=severity) for severity in severities))
    assert content["status"] == status
    assert f"class={status}" in page


def test_findings_are_grouped_by_code_with_errors_first():
    many = [finding("tiny-box", number=number) for number in range(EXAMPLES_PER_CODE + 50)]
    content, page = report(
        *many, finding("rest", count=900), finding("unknown-class", severity="error")
    )
    groups = content["splits"]["train"]["findings"]
    assert [(group["code"], group["count"]) for group in groups] == [
        ("unknown-class", 1),
        ("rest", 900),
        ("tiny-box", EXAMPLES_PER_CODE + 50),
    ]
    assert len(groups[2]["examples"]) == EXAMPLES_PER_CODE
    assert groups[0]["examples"][0]["where"] == "labels.txt:1"
    assert "and 140 more" in page
    assert json.loads(json.dumps(content)) == content


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.seen, self.sources = [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.sources += [value for key, value in attrs if key in ("src", "href")]
        if tag not in ("meta", "br", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_page_is_whole_and_needs_nothing_else():
    grey = np.full((40, 60, 3), 127, np.uint8)
    counts = {"pictures": 3, "per_class": {"<cat>": 4, "dog": 0}}
    _, page = report(finding("tiny-box", image_id="a"), draw=lambda _: grey, counts=counts)
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert "script" not in tags.seen
    assert "b" in tags.seen  # ours; those of the labels are text
    assert "tiny-box &lt;b&gt;&amp;&lt;/b&gt;" in page
    assert "&lt;cat&gt;" in page
    assert [source[:23] for source in tags.sources] == ["data:image/jpeg;base64,"]


def test_few_of_each_kind_are_drawn():
    drawn = []

    def draw(one):
        drawn.append(one.code)
        return np.zeros((8, 8, 3), np.uint8)

    many = [finding("tiny-box", number=number, image_id="a") for number in range(9)]
    report(*many, finding("seldom", image_id="b"), finding("no picture"), draw=draw)
    assert drawn == ["seldom"] + ["tiny-box"] * PICTURES_PER_CODE
