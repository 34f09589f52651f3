"""What stands around a drawn road: sky, skyline, trees, posts, barriers."""

from __future__ import annotations

import cv2
import numpy as np

from tasks.lanes.roads import Road

# zenith and horizon of skies: clear, pale, overcast, grey
_SKIES = (
    ((70, 120, 190), (175, 205, 230)),
    ((140, 175, 210), (220, 228, 232)),
    ((165, 172, 180), (215, 217, 218)),
    ((118, 124, 132), (176, 180, 184)),
)
_HILLS, _WOODS = (98, 112, 118), (52, 64, 46)
_WALLS = ((150, 142, 132), (120, 122, 128), (176, 168, 158), (98, 88, 84))
_LEAVES = ((44, 66, 34), (62, 84, 44), (78, 88, 52), (50, 58, 42))
_TRUNK, _POST, _RAIL, _CONCRETE = (62, 52, 44), (112, 114, 116), (150, 152, 154), (168, 164, 156)
_SHIFT = 4


def draw_sky(rng: np.random.RandomState, road: Road, *, rows: int) -> np.ndarray:
    """Return the rows above the ground with clouds and a skyline, (rows, W, 3) uint8 RGB."""
    zenith, low = (np.array(colour, np.float32) for colour in _SKIES[rng.randint(len(_SKIES))])
    down = np.linspace(0, 1, rows, dtype=np.float32)[:, None]
    clouds = _smooth_noise(rng, (rows, road.width), cells=(4, 10)) * np.float32(rng.uniform(0, 50))
    sky = cv2.merge(
        [top + (end - top) * down + clouds for top, end in zip(zenith, low, strict=True)]
    )
    picture = cv2.convertScaleAbs(np.maximum(sky, 0))
    grain = _smooth_noise(rng, (rows, road.width), cells=(rows // 2 + 2, road.width // 2))
    _skyline(rng, picture, grain, height=rng.uniform(0, 0.14) * road.height, colour=_HILLS)
    for _ in range(rng.randint(0, 7) if rng.uniform() < 0.5 else 0):
        _building(rng, road, picture)
    if rng.uniform() < 0.7:
        _skyline(rng, picture, grain, height=rng.uniform(0.02, 0.1) * road.height, colour=_WOODS)
    return picture


def draw_roadside(rng: np.random.RandomState, road: Road, picture: np.ndarray) -> None:
    """Draw trees, posts and barriers beside the road on the picture, (H, W, 3) uint8 RGB."""
    is_wooded, has_posts = rng.uniform(size=2) < (0.5, 0.4)
    trees = rng.randint(3, 14) if is_wooded else rng.randint(0, 3)
    # the farthest first
    for ahead in sorted(rng.uniform(14, 90, trees).tolist(), reverse=True):
        _tree(rng, road, picture, ahead=ahead)
    if has_posts and road.scene != "cross":
        side, spacing = rng.randint(2), rng.uniform(18, 30)
        for ahead in (spacing * np.arange(4, 0, -1) - rng.uniform(0, 8)).tolist():
            _post(road, picture, side=side, ahead=ahead)
    for side in (0, 1):
        if rng.uniform() < 0.3 and road.scene != "cross":
            _barrier(rng, road, picture, side=side)


def street_lamps(road: Road, *, spacing: float) -> np.ndarray:
    """Return where lamps hang over the road's right edge, (N, 2) px."""
    ahead = spacing * np.arange(1, 6)
    places = np.stack([np.full(5, road.edges[1]), ahead, np.full(5, 7.5)], axis=1)
    return road.project(places)


def fill(picture: np.ndarray, points: np.ndarray, colour: np.ndarray | tuple[float, ...]) -> None:
    """Fill a polygon, (P, 2) px, with soft edges."""
    fixed = np.round((np.clip(points, -3e4, 3e4) - 0.5) * 2**_SHIFT).astype(np.int32)
    cv2.fillPoly(picture, [fixed], tuple(map(float, colour)), cv2.LINE_AA, _SHIFT)


def _smooth_noise(
    rng: np.random.RandomState, shape: tuple[int, int], *, cells: tuple[int, int]
) -> np.ndarray:
    """Return noise of so many cells down and across, float32, -0.5 to 0.5."""
    noise = np.frombuffer(rng.bytes(cells[0] * cells[1]), np.uint8).reshape(cells)
    large = cv2.resize(noise, (shape[1], shape[0]), interpolation=cv2.INTER_CUBIC)
    return large.astype(np.float32) * np.float32(1 / 255) - np.float32(0.5)


def _skyline(
    rng: np.random.RandomState,
    picture: np.ndarray,
    grain: np.ndarray,
    *,
    height: float,
    colour: tuple[int, int, int],
) -> None:
    """Fill what lies below a wavy line with grainy colour, down to the horizon."""
    rows, width = grain.shape
    nodes = rng.uniform(0.25, 1.0, 9) * height
    columns = np.arange(width)
    line = np.interp(columns, np.linspace(0, width, 9), nodes)
    # crowns of trees: finer and lower
    crowns = np.arange(0, width + 6, 6)
    line += np.interp(columns, crowns, rng.uniform(0, 0.2, len(crowns)) * height)
    first = max(0, int(rows - line.max()) - 1)
    is_below = np.arange(first, rows)[:, None] > rows - line
    shade = np.array(colour, np.float32) * rng.uniform(0.7, 1.3)
    texture = (1 + grain[first:, :, None] * np.float32(0.3))[is_below] * shade.astype(np.float32)
    picture[first:][is_below] = np.clip(texture, 0, 255).astype(np.uint8)


def _building(rng: np.random.RandomState, road: Road, picture: np.ndarray) -> None:
    rows, width = picture.shape[:2]
    high, wide = (rng.uniform(0.05, 0.24) * road.height, rng.uniform(0.04, 0.16) * width)
    left, top = int(rng.uniform(-0.05, 1.0) * width), max(0, int(rows - high))
    wall = np.array(_WALLS[rng.randint(len(_WALLS))]) * rng.uniform(0.7, 1.2)
    part = picture[top:, max(0, left) : max(0, left + int(wide))]
    part[:] = np.clip(wall, 0, 255).astype(np.uint8)
    across, down = (max(3, int(road.height * share)) for share in (0.02, 0.028))
    windows = np.clip(wall * 0.62, 0, 255).astype(np.uint8)
    for row in range(down // 2):
        for column in range(across // 2):
            part[row + 2 :: down, column + 2 :: across] = windows


def _tree(rng: np.random.RandomState, road: Road, picture: np.ndarray, *, ahead: float) -> None:
    side = rng.randint(2)
    # farther out at a crossing, whose asphalt is wide
    away = rng.uniform(2.5, 14) + (6 if road.scene == "cross" else 0)
    across = road.edges[side] + away * (2 * side - 1)
    tall = rng.uniform(4, 9)
    foot, crown = road.project([(across, ahead, 0), (across, ahead, tall * 0.65)])
    metre = road.focal / ahead
    half = np.array([0.14 * metre, 0])
    fill(picture, np.stack([foot - half, foot + half, crown + half, crown - half]), _TRUNK)
    leaves = np.array(_LEAVES[rng.randint(len(_LEAVES))], np.float64)
    for _ in range(6):
        x, y = crown + rng.uniform(-0.22, 0.22, 2) * tall * metre
        radius = max(1, round(rng.uniform(0.12, 0.24) * tall * metre))
        colour = (leaves * rng.uniform(0.75, 1.25)).tolist()
        cv2.circle(picture, (round(x), round(y)), radius, colour, -1, cv2.LINE_AA)


def _post(road: Road, picture: np.ndarray, *, side: int, ahead: float) -> None:
    out = 2 * side - 1
    across = road.edges[side] + 0.8 * out
    ends = road.project([(across, ahead, 0), (across, ahead, 8), (across - 2.0 * out, ahead, 8.2)])
    thickness = max(1, round(0.14 * road.focal / ahead))
    fixed = np.round((ends - 0.5) * 2**_SHIFT).astype(np.int32)
    cv2.polylines(picture, [fixed], False, _POST, thickness, cv2.LINE_AA, _SHIFT)


def _barrier(rng: np.random.RandomState, road: Road, picture: np.ndarray, *, side: int) -> None:
    """Draw a concrete wall or a steel rail along an edge."""
    out = 2 * side - 1
    across = road.edges[side] + 0.4 * out
    ahead = np.geomspace(2.0, 110.0, 24)
    is_wall = rng.uniform() < 0.5
    low, high = (0.0, 0.85) if is_wall else (0.45, 0.75)
    shade = rng.uniform(0.75, 1.1)
    colour = np.array(_CONCRETE if is_wall else _RAIL) * shade
    fill(picture, _strip(road, across, ahead, low, high), colour)
    # the upper edge catches the light
    fill(picture, _strip(road, across, ahead, high - 0.1, high), colour * 1.2)
    if not is_wall:
        for place in np.arange(4.0, 44.0, 4.0).tolist():
            foot, top = road.project([(across, place, 0), (across, place, low)])
            half = np.array([0.05 * road.focal / place, 0])
            fill(picture, np.stack([foot - half, foot + half, top + half, top - half]), _POST)


def _strip(road: Road, across: float, ahead: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return the upright strip along the road between two heights, (2 * N, 2) px."""
    there_and_back = np.concatenate([ahead, ahead[::-1]])
    heights = np.repeat([low, high], len(ahead))
    across_all = np.full_like(there_and_back, across)
    return road.project(np.stack([across_all, there_and_back, heights], axis=1))
