"""CULane's lists of pictures: which are in a split, and which show which scene."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from readers.images import IMAGE_ENDINGS
from readers.records import DatasetError
from readers.text_files import read_lines

# In the order in which the benchmark's scores are printed.
BENCHMARK_SCENES = (
    "normal", "crowd", "night", "noline", "shadow", "arrow", "hlight", "curve", "cross"
)  # fmt: skip
# The benchmark's files are test0_normal.txt, test1_crowd.txt, ..., test8_night.txt.
NUMBERED = re.compile(r"(test\d*|\d+)_")
_ENDING = "|".join(sorted(re.escape(ending) for ending in IMAGE_ENDINGS))
# Names may hold blanks: the picture ends at the first picture ending before a blank.
LINE = re.compile(
    rf"(?P<image>.+?(?:{_ENDING}))(?:\s+(?P<mask>.+?(?:{_ENDING})))?(?P<presence>(?:\s+\d+)*)",
    re.IGNORECASE,
)

# scene -> what messages call its list, and the pictures in it
Scenes = Mapping[str, tuple[str, Sequence[str]]]


@dataclass(frozen=True, slots=True)
class Listed:
    """A line of a list.

    Args:
        image: the picture, relative to the data set's folder, without a leading slash.
        mask: its mask, likewise; empty where the line names none.
        presence: whether each slot has a lane; empty where the line does not say.
        where: file and line.
    """

    image: str
    mask: str
    presence: tuple[int, ...]
    where: str


def read_list(path: Path, *, name: str) -> list[Listed]:
    """Return the pictures of a list, in order.

    Args:
        path: the list.
        name: what messages call it.

    Raises:
        DatasetError: if there is no such list, it is empty, or a line names no picture.
    """
    if not path.is_file():
        known = sorted(entry.name for entry in path.parent.glob("*.txt"))
        near = difflib.get_close_matches(path.name, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise DatasetError(f"{path}: no such list; there are {', '.join(known) or 'none'}{hint}")
    listed = []
    for number, line in enumerate(read_lines(path), start=1):
        if not line:
            continue
        match = LINE.fullmatch(line)
        if match is None:
            raise DatasetError(
                f"{path}:{number}: {line[:80]!r} names no picture; `/picture.jpg` or "
                "`/picture.jpg /mask.png 1 1 0 0` is expected"
            )
        listed.append(
            Listed(
                image=_relative(match["image"]),
                mask=_relative(match["mask"] or ""),
                presence=tuple(int(word != "0") for word in match["presence"].split()),
                where=f"{name}:{number}",
            )
        )
    if not listed:
        raise DatasetError(f"{path}:1: the list is empty; one picture a line is expected")
    return listed


def read_scenes(folder: Path) -> Scenes:
    """Return the scene lists of a folder, those of the benchmark first and in its order.

    The scene of `test0_normal.txt` is `normal`; a file without a number is called as its scene.

    Raises:
        DatasetError: if there is no list, two are of one scene, or of the benchmark's numbered
            ones some are missing.
    """
    files = sorted(path for path in folder.glob("*.txt") if not path.name.startswith("."))
    if not files:
        what = "no scene list (*.txt) in this folder" if folder.is_dir() else "no such folder"
        raise DatasetError(f"{folder}: {what}; {', '.join(BENCHMARK_SCENES)} are CULane's scenes")
    by_scene: dict[str, Path] = {}
    for path in files:
        scene = scene_of(path)
        if scene in by_scene:
            names = f"{by_scene[scene].name} and {path.name}"
            raise DatasetError(f"{folder}: {names} are both of the scene {scene}")
        by_scene[scene] = path
    missing = [name for name in BENCHMARK_SCENES if name not in by_scene]
    numbered = [
        name
        for name in BENCHMARK_SCENES
        if name in by_scene and NUMBERED.match(by_scene[name].stem)
    ]
    if missing and numbered:
        raise DatasetError(
            f"{folder}: no list of CULane's scene {' and '.join(missing)}, but of "
            f"{', '.join(numbered)}; all nine are needed (lists of your own need no number)"
        )
    own = [name for name in by_scene if name not in BENCHMARK_SCENES]
    order = [name for name in BENCHMARK_SCENES if name in by_scene] + own
    return {
        name: (f"{folder.name}/{by_scene[name].name}", _images(by_scene[name])) for name in order
    }


def scene_of(path: Path) -> str:
    """Return the scene of a list: its name without `test0_` or `0_` before it."""
    start = NUMBERED.match(path.stem)
    return path.stem[start.end() :] if start else path.stem


def _images(path: Path) -> list[str]:
    # some copies of the lists name masks as well
    lines = (LINE.fullmatch(line) for line in read_lines(path) if line)
    return [_relative(match["image"]) for match in lines if match is not None]


def _relative(name: str) -> str:
    return name.replace("\\", "/").removeprefix("./").lstrip("/")
