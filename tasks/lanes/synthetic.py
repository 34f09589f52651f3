"""Roads drawn from a seed: the lane set that comes with the project.

Perspective roads of two to five lines, with bends, worn and dashed paint, vehicles that hide lines,
shadows, glare and night, are written as a CULane or a TuSimple data set and read back by its
reader, so that the embedded example takes the same way as real data.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from readers.culane import LABEL_ENDING, label_path, write_lines_txt
from readers.tusimple import tusimple_line
from tasks.drawn_sets import write_jpeg, write_once
from tasks.lanes.config import RoadsSource
from tasks.lanes.road_light import expose, light_up
from tasks.lanes.road_scenery import draw_roadside, draw_sky
from tasks.lanes.road_surface import paint_ground, see_ground
from tasks.lanes.road_vehicles import draw_traffic, draw_vehicle
from tasks.lanes.roads import SCENE_SHARES, Road, Scene, draw_road, labelled_lanes, num_slots

DRAWING = 1  # raise it when the drawing changes, so that folders drawn before are not taken for new

# CULane: every picture is in the first two lists and in one of the scenes'
TRAIN_LIST = "list/train_gt.txt"
TEST_LIST = "list/test.txt"
SCENES_FOLDER = "list/test_split"
# TuSimple
LABELS = "label_data.json"

_STAMP = "sightflow.json"
_PICTURES = {"culane": "driver_00_00frame/00000000.MP4", "tusimple": "clips/roads"}
_PARTS = {
    "culane": (_STAMP, "driver_00_00frame", "laneseg_label_w16", "list"),
    "tusimple": (_STAMP, "clips", LABELS),
}
_MASKS = "laneseg_label_w16"
# the benchmarks' own rows: 59 of 10 px in CULane, 72 in TuSimple, labelled from the 16th on
_CULANE_ROWS, _TUSIMPLE_ROWS, _TUSIMPLE_FIRST = 59, 72, 16
# width of a lane in a mask of 590 rows, px
_MASK_WIDTH = 16


@dataclass(frozen=True)
class RoadPicture:
    """A drawn road with its labels.

    Args:
        picture: (H, W, 3) uint8 RGB.
        lanes: slot -> (P, 2) float64, x and y px, from the bottom up.
        scene: what it shows.
    """

    picture: np.ndarray
    lanes: Mapping[int, np.ndarray]
    scene: Scene


def write_roads(folder: Path, source: RoadsSource) -> None:
    """Draw a set of roads into `folder`, unless it already holds that very set.

    It appears whole or not at all. Road i depends on i and on the source's seed, size, lanes and
    layout only. Read it with `read_culane(folder, TRAIN_LIST, scenes=SCENES_FOLDER)` or
    `read_tusimple(folder, [LABELS])`.

    CULane labels four lines at most, two on each side of the car: a fifth line is painted and
    gets neither a label nor a place in the mask. Both layouts keep to it; see `roads.num_slots`.
    A crossing, one of CULane's scenes, has no line at all; TuSimple's layout has no crossings.

    Args:
        folder: where the set goes; its parents are made.
        source: which roads.

    Raises:
        DatasetError: if the folder holds something else than a set of this kind.
    """
    wanted = {"drawing": DRAWING, **source.model_dump(mode="json")}
    write = _write_culane if source.layout == "culane" else _write_tusimple
    write_once(
        folder,
        parts=sorted({*_PARTS["culane"], *_PARTS["tusimple"]}),
        is_whole=partial(_is_whole, wanted=wanted),
        write=partial(write, source=source, wanted=wanted),
    )


def draw_picture(rng: np.random.RandomState, road: Road) -> np.ndarray:
    """Return a picture of a road, (H, W, 3) uint8 RGB.

    Args:
        rng: every draw comes from it.
        road: what the camera sees.
    """
    ground = see_ground(rng, road)
    sky = draw_sky(rng, road, rows=ground.top)
    picture = np.concatenate([sky, paint_ground(rng, road, ground)])
    draw_roadside(rng, road, picture)
    traffic = draw_traffic(rng, road)
    for vehicle in traffic:
        draw_vehicle(road, vehicle, picture)
    return expose(rng, light_up(rng, road, picture, traffic))


def draw_roads(source: RoadsSource) -> Iterator[RoadPicture]:
    """Yield the roads of a source in order."""
    is_culane = source.layout == "culane"
    scenes = [scene for scene in SCENE_SHARES if is_culane or scene != "cross"]
    step = _step(source.size[1], _CULANE_ROWS if is_culane else _TUSIMPLE_ROWS)
    for index in range(source.roads):
        rng = np.random.RandomState([source.seed, index])
        road = draw_road(rng, source.size, num_lines=source.lanes, scenes=scenes)
        lanes = labelled_lanes(road, slots=num_slots(source.lanes), step=step)
        yield RoadPicture(draw_picture(rng, road), lanes, road.scene)


def _write_culane(folder: Path, source: RoadsSource, wanted: Mapping[str, Any]) -> None:
    pictures = _PICTURES["culane"]
    for part in (pictures, f"{_MASKS}/{pictures}", SCENES_FOLDER):
        (folder / part).mkdir(parents=True)
    slots = num_slots(source.lanes)
    by_scene: dict[Scene, list[str]] = {scene: [] for scene in SCENE_SHARES}
    train: list[str] = []
    for index, road in enumerate(draw_roads(source)):
        name = f"{pictures}/{index:05d}.jpg"
        mask = f"{_MASKS}/{pictures}/{index:05d}.png"
        write_jpeg(folder / name, road.picture)
        write_lines_txt(label_path(folder / name), [lane.round(3) for lane in road.lanes.values()])
        _write_mask(folder / mask, road.lanes, size=source.size)
        presence = " ".join(str(int(slot in road.lanes)) for slot in range(slots))
        train.append(f"/{name} /{mask} {presence}")
        by_scene[road.scene].append(f"/{name}")
    _write_list(folder / TRAIN_LIST, train)
    _write_list(folder / TEST_LIST, [line.split()[0] for line in train])
    for number, (scene, names) in enumerate(by_scene.items()):
        _write_list(folder / SCENES_FOLDER / f"test{number}_{scene}.txt", names)
    (folder / _STAMP).write_text(json.dumps(wanted), encoding="utf-8")


def _write_tusimple(folder: Path, source: RoadsSource, wanted: Mapping[str, Any]) -> None:
    height = source.size[1]
    step = _step(height, _TUSIMPLE_ROWS)
    rows = np.arange(_TUSIMPLE_FIRST * height // _TUSIMPLE_ROWS // step * step, height, step)
    lines = []
    for index, road in enumerate(draw_roads(source)):
        # the other frames of a clip are not labelled, and not drawn
        name = f"{_PICTURES['tusimple']}/{index:05d}/20.jpg"
        (folder / name).parent.mkdir(parents=True)
        write_jpeg(folder / name, road.picture)
        lines.append(tusimple_line(name, list(road.lanes.values()), rows))
    _write_list(folder / LABELS, lines)
    (folder / _STAMP).write_text(json.dumps(wanted), encoding="utf-8")


def _write_mask(path: Path, lanes: Mapping[int, np.ndarray], *, size: tuple[int, int]) -> None:
    """Write the slot numbers, from 1, as a grey PNG."""
    mask = np.zeros(size[::-1], np.uint8)
    width = max(3, round(_MASK_WIDTH * size[1] / 590))
    for slot, lane in lanes.items():
        points = np.floor(lane).astype(np.int32)
        cv2.polylines(mask, [points], False, slot + 1, width)
    path.write_bytes(cv2.imencode(".png", mask)[1].tobytes())


def _write_list(path: Path, lines: Sequence[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _step(height: int, rows: int) -> int:
    """Return the px between two labelled rows, about `rows` of them over the whole height."""
    return max(1, round(height / rows))


def _is_whole(folder: Path, wanted: Mapping[str, Any]) -> bool:
    """Return whether the folder holds the set, with all files of each road and all lists."""
    try:
        stamp = json.loads((folder / _STAMP).read_text(encoding="utf-8"))
        return bool(stamp == wanted) and _counts_fit(folder, wanted)
    except (OSError, ValueError):
        return False


def _counts_fit(folder: Path, wanted: Mapping[str, Any]) -> bool:
    num_roads, pictures = wanted["roads"], folder / _PICTURES[wanted["layout"]]
    if wanted["layout"] == "tusimple":
        frames = [clip / "20.jpg" for clip in pictures.iterdir()]
        return (folder / LABELS).exists() and _num_filled(frames) == num_roads
    beside = list(pictures.iterdir())
    labels = [path for path in beside if path.name.endswith(LABEL_ENDING)]
    masks = (folder / _MASKS / _PICTURES["culane"]).iterdir()
    lists = (folder / TRAIN_LIST, folder / TEST_LIST, *(folder / SCENES_FOLDER).iterdir())
    return (
        # the label of a road without lanes is empty, and so may be the list of a scene
        len(labels) == num_roads
        and _num_filled(path for path in beside if path.suffix == ".jpg") == num_roads
        and _num_filled(masks) == num_roads
        and sum(path.exists() for path in lists) == 2 + len(SCENE_SHARES)
    )


def _num_filled(paths: Iterable[Path]) -> int:
    return sum(path.stat().st_size > 0 for path in paths)
