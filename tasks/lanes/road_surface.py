"""The ground of a drawn road: asphalt, verge, painted lines, arrows, crossings, cast shadows.

Letters: M rows below the horizon, W columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from tasks.lanes.roads import Line, Road

_WHITE, _YELLOW = (232, 232, 226), (222, 176, 62)
# grass, dry grass, gravel, pavement
_VERGES = ((72, 92, 48), (150, 136, 92), (128, 118, 104), (150, 150, 148))
_TILE = 256
# an arrow on the ground, (across, ahead) as shares of its width and length
_ARROW_SHAFT = ((-0.12, 0.0), (0.12, 0.0), (0.12, 0.6), (-0.12, 0.6))
_ARROW_HEAD = ((-0.5, 0.6), (0.5, 0.6), (0.0, 1.0))


@dataclass(frozen=True)
class Ground:
    """The rows below the horizon and what is seen there.

    Args:
        top: first row.
        depth: (M, 1) float32, px below the horizon.
        ahead: (M, 1) float32, m.
        across: (M, W) float32, m to the right, along the road's course.
        fine: (M, W) float32, noise of the ground's grain, 0 to 1.
        coarse: (M, W) float32, noise of its stains, 0 to 1.
    """

    top: int
    depth: np.ndarray
    ahead: np.ndarray
    across: np.ndarray
    fine: np.ndarray
    coarse: np.ndarray


def see_ground(rng: np.random.RandomState, road: Road) -> Ground:
    """Return what each pixel below the horizon sees."""
    top = int(np.ceil(road.horizon))
    depth = np.arange(top, road.height, dtype=np.float32)[:, None] + np.float32(0.5 - road.horizon)
    depth = np.maximum(depth, np.float32(road.least_depth))
    middle = road.columns(0.0, depth).astype(np.float32)
    columns = np.arange(road.width, dtype=np.float32)[None] + np.float32(0.5)
    across = (columns - middle) * (np.float32(road.camera) / depth)
    ahead = np.float32(road.focal * road.camera) / depth
    noise = np.frombuffer(rng.bytes(_TILE * _TILE), np.uint8).reshape(_TILE, _TILE)
    along = np.repeat(ahead, road.width, axis=1)
    fine = cv2.blur(noise, (2, 2), borderType=cv2.BORDER_REFLECT)
    # blurred small: as good, and many times faster
    coarse = cv2.GaussianBlur(np.ascontiguousarray(noise[:64, :64]), (0, 0), 1.3)
    coarse = cv2.resize(cv2.normalize(coarse, None, 0, 255, cv2.NORM_MINMAX), (_TILE, _TILE))
    return Ground(
        top=top,
        depth=depth,
        ahead=ahead,
        across=across,
        fine=_tiled(fine, across * 22, along * 9),
        # smooth, so that every other pixel is enough
        coarse=cv2.resize(
            _tiled(coarse, across[::2, ::2] * 9, along[::2, ::2] * 3), across.shape[::-1]
        ),
    )


def paint_ground(rng: np.random.RandomState, road: Road, ground: Ground) -> np.ndarray:
    """Return the ground in even daylight, (M, W, 3) uint8 RGB."""
    asphalt, verge = _asphalt(rng, road, ground), _verge(ground)
    share = _asphalt_share(rng, road, ground)
    light = _shade(rng, road, ground)
    asphalt *= share * light
    verge *= (1 - share) * light
    # by channel: NumPy is slow where the last axis is short
    colours = zip(_asphalt_tint(rng), _verge_colour(rng), strict=True)
    picture = cv2.merge([asphalt * grey + verge * colour for grey, colour in colours])
    _lay_paint(rng, road, ground, picture, light=light)
    return cv2.convertScaleAbs(np.maximum(picture, 0, out=picture))


def _tiled(tile: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    seen = cv2.remap(tile, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_WRAP)
    return seen.astype(np.float32) * np.float32(1 / 255)


def _asphalt(rng: np.random.RandomState, road: Road, ground: Ground) -> np.ndarray:
    """Grey with grain, stains, the dark trace of oil in each lane's middle and wheel tracks."""
    grey = rng.uniform(78, 150)
    # phase in the lane: 0 on a line, 0.5 in the middle
    phase = (ground.across - np.float32(road.lateral(0.0))) * np.float32(1 / road.lane_width)
    wave = np.cos(phase * np.float32(2 * np.pi))
    # where there is no paint, these traces tell the lanes
    worn = rng.uniform(6, 12) if road.scene == "noline" else rng.uniform(1, 7)
    brightness = np.float32(grey) + wave * np.float32(worn)
    brightness += (wave * wave - np.float32(0.5)) * np.float32(rng.uniform(0, 5))
    brightness += (ground.coarse - np.float32(0.5)) * np.float32(rng.uniform(8, 30))
    grain = np.minimum(ground.depth / road.height * 2, 1) * rng.uniform(14, 36)
    brightness += (ground.fine - np.float32(0.5)) * grain.astype(np.float32)
    for _ in range(rng.randint(0, 3)):
        _patch(rng, road, ground, brightness)
    return brightness


def _asphalt_tint(rng: np.random.RandomState) -> np.ndarray:
    return np.array(1 + rng.uniform(-0.03, 0.03, 3), np.float32)


def _patch(rng: np.random.RandomState, road: Road, ground: Ground, brightness: np.ndarray) -> None:
    """Darken or brighten a mended piece of road, as wide as one to three lanes."""
    near = rng.uniform(5, 25)
    far = near + rng.uniform(1.5, 15)
    rows = np.flatnonzero((ground.ahead[:, 0] > near) & (ground.ahead[:, 0] < far))
    if not len(rows):
        return
    left = float(road.lateral(rng.randint(-2, 2))) + rng.uniform(-0.5, 0.5)
    right = left + road.lane_width * rng.randint(1, 4)
    across = ground.across[rows[0] : rows[-1] + 1]
    inside = (across > left) & (across < right)
    brightness[rows[0] : rows[-1] + 1] += inside * np.float32(rng.uniform(-16, 12))


def _verge(ground: Ground) -> np.ndarray:
    return np.float32(0.75) + ground.coarse * np.float32(0.25) + ground.fine * np.float32(0.3)


def _verge_colour(rng: np.random.RandomState) -> np.ndarray:
    colour = np.array(_VERGES[rng.randint(len(_VERGES))], np.float32)
    return colour * np.float32(rng.uniform(0.75, 1.15))


def _asphalt_share(rng: np.random.RandomState, road: Road, ground: Ground) -> np.ndarray:
    """Return how much of each pixel is asphalt, (M, W) float32 in [0, 1]."""
    left, right = road.edges
    if road.scene == "cross":
        # a road from side to side crosses this one
        near = rng.uniform(9, 14)
        is_crossing = (ground.ahead > near) & (ground.ahead < near + rng.uniform(10, 18))
        widen = is_crossing * np.float32(1e4)
    else:
        widen = np.zeros_like(ground.depth)
    middle, half = np.float32((left + right) / 2), np.float32((right - left) / 2)
    ragged = (ground.coarse - np.float32(0.5)) * np.float32(rng.uniform(0.1, 0.9))
    within = ragged - np.abs(ground.across - middle) + (half + widen)
    within *= ground.depth / np.float32(road.camera)
    within += np.float32(0.5)
    return np.clip(within, 0, 1, out=within)


def _lay_paint(
    rng: np.random.RandomState,
    road: Road,
    ground: Ground,
    picture: np.ndarray,
    *,
    light: np.ndarray,
) -> None:
    """Paint lines, arrows and crossings on the picture, (M, W, 3) float32."""
    strength, wear = _draw_wear(rng, road)
    if road.lines:
        at, share, colour = _line_paint(road, ground)
        share *= np.float32(strength) * _left_over(ground, at, wear)
        _blend(picture, at, share, colour * light.ravel()[at][:, None])
    polygons = _arrows(rng, road) if road.scene == "arrow" else []
    if road.scene == "cross":
        polygons = _crossing(rng, road)
    if polygons:
        mask = np.zeros(picture.shape[:2], np.uint8)
        fixed = [np.round((points - (0.5, ground.top + 0.5)) * 16) for points in polygons]
        cv2.fillPoly(mask, [points.astype(np.int32) for points in fixed], 255, cv2.LINE_AA, 4)
        at = np.flatnonzero(mask)
        share = mask.ravel()[at].astype(np.float32) / 255 * strength
        share *= _left_over(ground, at, wear)
        _blend(picture, at, share, np.array(_WHITE, np.float32) * light.ravel()[at][:, None])


def _draw_wear(rng: np.random.RandomState, road: Road) -> tuple[float, float]:
    """Return the opacity of paint and how much of it is gone, both from 0 to 1."""
    if road.scene == "noline":
        return rng.uniform(0.0, 0.2), 1.0
    if rng.uniform() < 0.25:
        return rng.uniform(0.5, 0.8), rng.uniform(0.4, 0.8)
    return rng.uniform(0.75, 1.0), rng.uniform(0.0, 0.4)


def _line_paint(road: Road, ground: Ground) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return where lines are: flat indices (P,), how much of each pixel, and its colour (P, 3)."""
    lines = road.lines
    place = (ground.across - np.float32(road.lateral(float(road.first)))) * np.float32(
        1 / road.lane_width
    )
    nearest = np.clip(np.rint(place), 0, len(lines) - 1)
    distance = np.abs(place - nearest) * np.float32(road.lane_width)
    reach = max(each.width / 2 + each.apart / 2 for each in lines)
    # a soft edge of half a pixel on both sides
    at = np.flatnonzero(distance < reach + np.float32(road.camera / 2) / ground.depth)
    row, line = at // road.width, nearest.ravel()[at].astype(np.int64)
    scale = (ground.depth[:, 0] / np.float32(road.camera))[row]
    half = np.array([each.width / 2 for each in lines], np.float32)[line]
    apart = np.array([each.apart / 2 for each in lines], np.float32)[line]
    from_strip = np.abs(distance.ravel()[at] - apart)
    share = np.clip((half - from_strip) * scale + np.float32(0.5), 0, 1)
    # far away, a line is thinner than a pixel
    share = np.minimum(share, np.minimum(2 * half * scale, 1))
    share *= np.stack([_dash_share(each, ground) for each in lines], axis=1)[row, line]
    colours = np.array([_YELLOW if each.is_yellow else _WHITE for each in lines], np.float32)
    return at, share, colours[line]


def _dash_share(line: Line, ground: Ground) -> np.ndarray:
    """Return how much of each row's stretch of road a line's dashes cover, (M,) float32."""
    ahead = ground.ahead[:, 0].astype(np.float64)
    if not line.dash:
        return np.ones(len(ahead), np.float32)
    depth = ground.depth[:, 0].astype(np.float64)
    reach = ahead * depth
    ends = np.stack([reach / (depth + 0.5), reach / np.maximum(depth - 0.5, 0.1)]) - line.phase
    period = line.dash + line.gap
    painted = np.floor(ends / period) * line.dash + np.minimum(ends % period, line.dash)
    return ((painted[1] - painted[0]) / (ends[1] - ends[0])).astype(np.float32)


def _left_over(ground: Ground, at: np.ndarray, wear: float) -> np.ndarray:
    """Return how much of the paint is left at pixels `at` (flat indices), float32 in [0, 1]."""
    noise = ground.fine.ravel()[at] * np.float32(0.6) + ground.coarse.ravel()[at] * np.float32(0.4)
    return np.clip((noise - np.float32(wear * 0.55)) * np.float32(5) + np.float32(0.6), 0, 1)


def _blend(picture: np.ndarray, at: np.ndarray, share: np.ndarray, colour: np.ndarray) -> None:
    pixels = picture.reshape(-1, 3)
    pixels[at] += (colour - pixels[at]) * share[:, None]


def _arrows(rng: np.random.RandomState, road: Road) -> list[np.ndarray]:
    """Return polygons of arrows in the car's lane and its neighbours, each (P, 2) px."""
    width, length = rng.uniform(0.9, 1.3), rng.uniform(4.0, 6.0)
    ahead = rng.uniform(6.5, 11.0)
    lanes = [-0.5] + [number for number in (-1.5, 0.5) if rng.uniform() < 0.6]
    polygons = []
    for number in lanes:
        middle = float(road.lateral(number))
        for share in (_ARROW_SHAFT, _ARROW_HEAD):
            places = [(middle + x * width, ahead + z * length, 0.0) for x, z in share]
            polygons.append(road.project(places))
    return polygons


def _crossing(rng: np.random.RandomState, road: Road) -> list[np.ndarray]:
    """Return polygons of a zebra crossing and, mostly, a stop line before it."""
    left, right = road.edges
    near, length = rng.uniform(5.5, 8.0), rng.uniform(2.5, 4.0)
    begins = np.arange(left + 0.3, right - 0.5, rng.uniform(0.9, 1.2))
    spans = [(begin, begin + 0.5, near, near + length) for begin in begins.tolist()]
    if rng.uniform() < 0.7:
        spans.append((left, right, near - 1.6, near - 1.2))
    return [
        road.project([(x1, z1, 0), (x2, z1, 0), (x2, z2, 0), (x1, z2, 0)])
        for x1, x2, z1, z2 in spans
    ]


def _shade(rng: np.random.RandomState, road: Road, ground: Ground) -> np.ndarray:
    """Return the light that reaches the ground, (M, W) float32 in (0, 1]."""
    light = np.ones_like(ground.across)
    if road.scene != "shadow":
        return light
    depth = rng.uniform(0.35, 0.6)
    for _ in range(rng.randint(1, 4)):
        # what stands beside the road throws a slanted bar over it
        near, length = rng.uniform(4, 26), rng.uniform(1.5, 9)
        slanted = ground.ahead + ground.across * np.float32(rng.uniform(-0.6, 0.6))
        inside = np.float32(length / 2) - np.abs(slanted - np.float32(near + length / 2))
        inside += (ground.coarse - np.float32(0.5)) * np.float32(rng.uniform(0, 2.5))
        light = light * (1 - np.float32(depth) * np.clip(inside * 2, 0, 1))
    if rng.uniform() < 0.6:
        leaves = np.clip((ground.coarse - np.float32(rng.uniform(0.4, 0.6))) * 12, 0, 1)
        light = light * (1 - np.float32(depth) * leaves)
    return np.maximum(light, np.float32(1 - depth - 0.08))
