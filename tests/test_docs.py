"""README and docs point at what is there."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_leads_somewhere(page):
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    relative = [link for link in links if "://" not in link]
    missing = [link for link in relative if not (page.parent / link).exists()]
    assert not missing


def test_readme_names_every_entry_point_and_experiment():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    entry_points = yaml.safe_load((ROOT / "MLproject").read_text(encoding="utf-8"))["entry_points"]
    assert all(f"`{name}`" in readme for name in entry_points)
    configs = [path.relative_to(ROOT) for path in (ROOT / "configs").rglob("*.yaml")]
    assert all(f"`{path.as_posix()}`" in readme for path in configs)


def test_first_screen_of_the_readme_has_the_two_commands():
    first_screen = "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:25])
    targets = re.findall(r"^make (\w+)", first_screen, flags=re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert targets == ["demo", "test"]
    assert all(re.search(rf"^{target}: \$\(STAMP\)", makefile, re.MULTILINE) for target in targets)
