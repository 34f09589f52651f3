"""The geometry of a drawn road: where its lines run in the picture, and which are labelled.

A pinhole camera looks along a flat road. Ground places are (across, ahead) in m: across from the
camera to the right along the road's own course, ahead along it. A place `ahead` m away lies
`depth = focal * camera / ahead` px below the horizon. All lines meet at one vanishing point; a bend
of constant curvature moves a place sideways by a share of 1 / depth.

Lines are numbered from the car: -1 is the next to its left, 0 the next to its right. Pixels are
continuous: the centre of pixel (row, column) is at (column + 0.5, row + 0.5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

Scene = Literal["normal", "crowd", "hlight", "shadow", "noline", "arrow", "curve", "cross", "night"]
# in the order of CULane's lists, with how many of 100 pictures show each
SCENE_SHARES: dict[Scene, int] = {
    "normal": 36, "crowd": 14, "hlight": 7, "shadow": 10, "noline": 5, "arrow": 7, "curve": 9,
    "cross": 4, "night": 8,
}  # fmt: skip

# labels end this share of the height below the horizon, and lower lanes than this have none
NEAREST_TO_HORIZON = 0.12
# nothing is drawn farther away than this, m
_FARTHEST = 120.0


@dataclass(frozen=True)
class Line:
    """A painted line.

    Args:
        is_yellow: else it is white.
        dash: length of a dash, m; 0: a solid line.
        gap: length between two dashes, m.
        phase: where the first dash begins, m.
        width: m.
        apart: distance of the two strips of a double line, m; 0: a single line.
    """

    is_yellow: bool
    dash: float
    gap: float
    phase: float
    width: float
    apart: float = 0.0


@dataclass(frozen=True)
class Road:
    """A road as one camera sees it.

    Args:
        scene: what makes the picture special.
        width: of the picture, px.
        height: of the picture, px.
        horizon: row, px.
        centre: column of the vanishing point, px.
        focal: px.
        camera: height above the ground, m.
        bend: px that the road has moved to the right where labels end.
        lane_width: m between two lines.
        offset: m from the camera to the middle of its lane.
        first: number of the leftmost line.
        lines: from left to right.
        edges: where the asphalt ends to the left and to the right, m.
    """

    scene: Scene
    width: int
    height: int
    horizon: float
    centre: float
    focal: float
    camera: float
    bend: float
    lane_width: float
    offset: float
    first: int
    lines: tuple[Line, ...]
    edges: tuple[float, float]

    @property
    def nearest(self) -> float:
        """Depth at which labels end, px below the horizon."""
        return NEAREST_TO_HORIZON * self.height

    @cached_property
    def least_depth(self) -> float:
        """Depth of what is farthest away, px."""
        return self.focal * self.camera / _FARTHEST

    def lateral(self, number: float | np.ndarray) -> float | np.ndarray:
        """Return where a line is, m; halves are the middles of lanes (-0.5: the car's own)."""
        return (number + 0.5) * self.lane_width + self.offset

    def columns(self, across: float | np.ndarray, depth: float | np.ndarray) -> np.ndarray:
        """Return the column (px) of what is `across` m to the right, `depth` px below the horizon.

        With Z = focal * camera / depth and curvature k, x = focal / Z * (across + k Z^2 / 2).
        """
        depth = np.maximum(depth, self.least_depth)
        return self.centre + across * depth / self.camera + self.bend * self.nearest / depth

    def project(self, places: Sequence[Sequence[float]] | np.ndarray) -> np.ndarray:
        """Return where points of the world are seen.

        Args:
            places: (N, 3), m across, ahead and above the ground.

        Returns:
            (N, 2) float64, x and y, px.
        """
        across, ahead, above = np.asarray(places, np.float64).T
        depth = self.focal * self.camera / ahead
        x = self.columns(across, depth)
        return np.stack([x, self.horizon + depth * (1 - above / self.camera)], axis=1)


def draw_road(
    rng: np.random.RandomState,
    size: tuple[int, int],
    *,
    num_lines: tuple[int, int],
    scenes: Sequence[Scene],
) -> Road:
    """Draw a road.

    Args:
        rng: every draw comes from it.
        size: width and height of the picture, px.
        num_lines: least and largest number of lines; a crossing has none.
        scenes: what may be drawn, each as often as `SCENE_SHARES` says.
    """
    width, height = size
    scene = _draw_scene(rng, scenes)
    horizon = rng.uniform(0.28, 0.38) * height
    focal = rng.uniform(0.85, 1.1) * width
    lane_width = rng.uniform(3.2, 3.8)
    # the lane's width in the lowest row tells how high the camera stands
    camera = lane_width * (height - horizon) / (rng.uniform(0.5, 0.7) * width)
    # vehicles crowd where there are lanes for them
    least = num_lines[0] if scene != "crowd" else max(num_lines[0], min(3, num_lines[1]))
    count = rng.randint(least, num_lines[1] + 1)
    num_left = _num_left(rng, count)
    lines = () if scene == "cross" else _draw_lines(rng, count)
    offset = rng.uniform(-0.13, 0.13) * lane_width
    shoulders = rng.uniform(0.4, 1.0 if scene == "noline" else 3.0, 2).tolist()
    outer = ((-num_left + 0.5) * lane_width, (count - num_left - 0.5) * lane_width)
    return Road(
        scene=scene,
        width=width,
        height=height,
        horizon=horizon,
        centre=(0.5 + rng.uniform(-0.06, 0.06)) * width,
        focal=focal,
        camera=camera,
        bend=_draw_bend(rng, scene) * width,
        lane_width=lane_width,
        offset=offset,
        first=-num_left,
        lines=lines,
        edges=(offset + outer[0] - shoulders[0], offset + outer[1] + shoulders[1]),
    )


def num_slots(num_lines: tuple[int, int]) -> int:
    """Return how many slots roads with so many lines have.

    CULane labels four lines at most: two on each side of the car, slots 0 to 3 from left to right,
    so that the car drives between slots 1 and 2. This holds for roads of up to five lines; the
    fifth, beyond the outer ones, is painted and not labelled. Where a set may have more lines,
    half of the largest number is labelled on each side, rounded up.
    """
    return 4 if num_lines[1] <= 5 else 2 * -(-num_lines[1] // 2)


def labelled_lanes(road: Road, *, slots: int, step: int) -> dict[int, np.ndarray]:
    """Return the true course of the labelled lines, from the left to the right.

    A line is labelled where it is in the picture, also behind vehicles and where no paint is
    left; not close to the horizon. Lines that are only seen over a short height are left out.

    Args:
        road: the road.
        slots: how many slots there are; see `num_slots`.
        step: rows between two points, px.

    Returns:
        Slot -> (P, 2) float64, x and y px, from the bottom up, y a whole number of steps.
    """
    top = -(-(road.horizon + road.nearest) // step) * step
    y = np.arange(road.height // step * step, top - 1, -step, dtype=np.float64)
    lanes = {}
    for number in range(road.first, road.first + len(road.lines)):
        slot = number + slots // 2
        x = road.columns(road.lateral(number), y - road.horizon)
        begin, end = _longest_run((x >= 0) & (x < road.width))
        if 0 <= slot < slots and end - begin >= 2 and y[begin] - y[end - 1] >= road.nearest:
            lanes[slot] = np.stack([x[begin:end], y[begin:end]], axis=1)
    return lanes


def _draw_scene(rng: np.random.RandomState, scenes: Sequence[Scene]) -> Scene:
    ends = np.cumsum([SCENE_SHARES[scene] for scene in scenes])
    return scenes[int(np.searchsorted(ends, rng.randint(ends[-1]), side="right"))]


def _num_left(rng: np.random.RandomState, count: int) -> int:
    """Return how many lines are left of the car: about half, or anything that leaves one."""
    half = (count + rng.randint(2)) // 2
    is_lopsided = count > 2 and rng.uniform() < 0.2
    return int(rng.randint(1, count)) if is_lopsided else half


def _draw_bend(rng: np.random.RandomState, scene: Scene) -> float:
    if scene == "curve":
        return float(rng.choice((-1, 1)) * rng.uniform(0.05, 0.11))
    return float(rng.uniform(-0.03, 0.03))


def _draw_lines(rng: np.random.RandomState, count: int) -> tuple[Line, ...]:
    dash, gap = rng.uniform(2.5, 6.0), rng.uniform(3.0, 7.0)
    width = rng.uniform(0.11, 0.18)
    lines = []
    for number in range(count):
        is_outer = number in (0, count - 1)
        is_solid = rng.uniform() < (0.8 if is_outer else 0.25)
        is_yellow = rng.uniform() < (0.35 if number == 0 else 0.06)
        is_double = is_yellow and is_solid and rng.uniform() < 0.4
        phase = rng.uniform(0, dash + gap)
        apart = 2 * width if is_double else 0.0
        lines.append(Line(is_yellow, 0.0 if is_solid else dash, gap, phase, width, apart))
    return tuple(lines)


def _longest_run(is_inside: np.ndarray) -> tuple[int, int]:
    """Return begin and end (exclusive) of the longest run of true."""
    steps = np.flatnonzero(np.diff(np.r_[0, is_inside.astype(np.int8), 0]))
    begins, ends = steps[::2], steps[1::2]
    if not len(begins):
        return 0, 0
    longest = (ends - begins).argmax()
    return int(begins[longest]), int(ends[longest])
