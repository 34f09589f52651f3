from __future__ import annotations

import ast
import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
CODE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")
NO_FINDINGS = re.compile(r"utf-8.*|sightflow-.*")


def texts(folder: str) -> set[str]:
    """Every text constant in the modules of a folder that looks like a finding's code."""
    found = set()
    for path in (REPOSITORY / folder).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return {text for text in found if CODE.fullmatch(text) and not NO_FINDINGS.fullmatch(text)}


def test_page_on_data_sets_lists_every_finding():
    page = (REPOSITORY / "docs" / "data-sets.md").read_text("utf-8")
    cells = re.findall(r"^\| (`[a-z0-9-]+`(?:, `[a-z0-9-]+`)*) \|", page, re.MULTILINE)
    listed = {code.strip("`") for cell in cells for code in cell.split(", ")}
    in_code = texts("readers") | {"class-not-in-train", "class-without-boxes"}
    in_code |= {"picture-in-two-splits", "same-picture-twice"} | texts("tasks/lanes")
    assert listed == in_code
