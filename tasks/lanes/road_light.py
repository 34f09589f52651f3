"""The light on a drawn road and the camera that takes it: night, dazzle, exposure, noise."""

from __future__ import annotations

import cv2
import numpy as np

from tasks.lanes.road_scenery import street_lamps
from tasks.lanes.road_vehicles import Vehicle, tail_lamps
from tasks.lanes.roads import Road

# light is smooth: it is drawn on a picture smaller by this
_COARSER = 4


def light_up(
    rng: np.random.RandomState, road: Road, picture: np.ndarray, traffic: list[Vehicle]
) -> np.ndarray:
    """Return the picture, (H, W, 3) uint8 RGB in even daylight, as its scene is lit."""
    if road.scene == "night":
        return _night(rng, road, picture, traffic)
    if road.scene == "hlight":
        return _dazzle(rng, road, picture)
    return picture


def expose(rng: np.random.RandomState, picture: np.ndarray) -> np.ndarray:
    """Return the picture with the camera's brightness, contrast, tint, blur and noise."""
    gain, gamma = rng.uniform(0.75, 1.15), rng.uniform(0.85, 1.15)
    tint = 1 + rng.uniform(-0.04, 0.04, 3)
    levels = (np.arange(256) / 255)[:, None] ** gamma * gain * tint * 255
    table = np.clip(levels + 0.5, 0, 255).astype(np.uint8)[None]
    picture = cv2.LUT(picture, table)
    if rng.uniform() < 0.5:
        picture = cv2.GaussianBlur(picture, (3, 3), rng.uniform(0.4, 0.8))
    noise = np.frombuffer(rng.bytes(picture.size), np.uint8).reshape(picture.shape)
    share = rng.uniform(0.01, 0.07)
    return cv2.addWeighted(picture, 1.0, noise, share, -127.5 * share)


def _night(
    rng: np.random.RandomState, road: Road, picture: np.ndarray, traffic: list[Vehicle]
) -> np.ndarray:
    """Return a dark picture with the car's headlight on the road, lamps and tail lamps."""
    x, y = _coarse_grid(road)
    pool = np.exp(
        -(((x - road.width * 0.5) / (road.width * 0.34)) ** 2)
        - ((y - road.horizon - 0.4 * road.height) / (0.3 * road.height)) ** 2
    )
    level = rng.uniform(0.14, 0.26) + pool * rng.uniform(0.45, 0.7)
    # hardly any light comes from the sky
    level *= np.where(y < road.horizon, 0.35, 1.0)
    tint = np.array((0.96, 0.98, 1.12)) if rng.uniform() < 0.5 else np.array((1.15, 1.0, 0.78))
    glow = np.zeros((*x.shape, 3), np.float32)
    if rng.uniform() < 0.7:
        lamps = street_lamps(road, spacing=rng.uniform(18, 30))
        for place, size in zip(lamps, (4, 3, 2, 1, 1), strict=True):
            _lamp(glow, place, size=size * road.height / 240, colour=(255, 214, 150))
    for vehicle in traffic:
        for place in tail_lamps(road, vehicle):
            _lamp(glow, place, size=0.12 * road.focal / vehicle.ahead, colour=(255, 40, 30))
    bloom = cv2.GaussianBlur(glow, (0, 0), max(0.8, 0.02 * road.width / _COARSER))
    return _lit(picture, level[..., None] * tint, glow + bloom)


def _dazzle(rng: np.random.RandomState, road: Road, picture: np.ndarray) -> np.ndarray:
    """Return a picture against the light: a glaring spot, its trace on the road, pale colours."""
    x, y = _coarse_grid(road)
    at = rng.uniform(0.2, 0.8) * road.width
    row = road.horizon - rng.uniform(0.0, 0.2) * road.height
    distance = np.hypot(x - at, (y - row) * 1.3)
    halo = np.exp(-distance / (rng.uniform(0.07, 0.16) * road.width))
    trace = np.exp(-(((x - at) / (0.07 * road.width)) ** 2)) * (y > road.horizon)
    veil = rng.uniform(150, 230) * halo + rng.uniform(15, 60) * trace + rng.uniform(10, 30)
    warm = np.array((1.0, 0.97, 0.88))
    level = np.full((*x.shape, 3), rng.uniform(0.55, 0.8))
    return _lit(picture, level, veil[..., None] * warm)


def _coarse_grid(road: Road) -> tuple[np.ndarray, np.ndarray]:
    """Return x and y (px of the picture) of the coarse pixels' centres."""
    rows, columns = -(-road.height // _COARSER), -(-road.width // _COARSER)
    y, x = np.mgrid[:rows, :columns] + 0.5
    return x * (road.width / columns), y * (road.height / rows)


def _lamp(
    glow: np.ndarray, place: np.ndarray, *, size: float, colour: tuple[int, int, int]
) -> None:
    x, y = np.clip(place / _COARSER, -1e4, 1e4)
    radius = max(0.6, min(size, 12.0)) / _COARSER
    fixed = (round(float(x) * 16), round(float(y) * 16))
    cv2.circle(glow, fixed, max(8, round(radius * 16)), colour, -1, cv2.LINE_AA, 4)


def _lit(picture: np.ndarray, level: np.ndarray, glow: np.ndarray) -> np.ndarray:
    """Return picture * level + glow, both of these coarse, (h, w, 3)."""
    size = (picture.shape[1], picture.shape[0])
    level, glow = (cv2.resize(light.astype(np.float32), size) for light in (level, glow))
    return cv2.convertScaleAbs(cv2.multiply(picture.astype(np.float32), level) + glow)
