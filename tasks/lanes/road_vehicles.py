"""Vehicles on a drawn road, seen from behind; they hide lines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tasks.lanes.road_scenery import fill
from tasks.lanes.roads import Road, Scene

_PAINTS = (
    (222, 222, 220), (32, 33, 36), (150, 152, 156), (88, 92, 98), (148, 34, 32), (38, 62, 112),
    (196, 190, 176), (66, 78, 68),
)  # fmt: skip
_GLASS, _TYRE, _SHADOW, _LAMP, _PLATE = (
    (34, 40, 46), (22, 22, 23), (36, 36, 38), (168, 26, 22), (206, 206, 198)
)  # fmt: skip
# least and largest number of vehicles
_COUNTS: dict[Scene, tuple[int, int]] = {
    "normal": (0, 2), "crowd": (3, 7), "hlight": (0, 2), "shadow": (0, 2), "noline": (0, 2),
    "arrow": (0, 1), "curve": (0, 2), "cross": (0, 2), "night": (0, 3),
}  # fmt: skip
_GAP = 7.0  # between two vehicles of a lane, m


@dataclass(frozen=True)
class Vehicle:
    """A vehicle.

    Args:
        across: its middle, m.
        ahead: its rear, m.
        wide: m.
        tall: m.
        long: m.
        is_box: a lorry's or van's straight rear; else a car's.
        colour: RGB.
    """

    across: float
    ahead: float
    wide: float
    tall: float
    long: float
    is_box: bool
    colour: tuple[int, int, int]


def draw_traffic(rng: np.random.RandomState, road: Road) -> list[Vehicle]:
    """Draw the vehicles of a scene, the farthest first; those of a lane keep a distance."""
    least, most = _COUNTS[road.scene]
    is_crowd = road.scene == "crowd"
    lanes = [road.first + 0.5 + lane for lane in range(max(1, len(road.lines) - 1))]
    taken: list[tuple[float, float, float]] = []
    vehicles = []
    for _ in range(rng.randint(least, most + 1)):
        lane = -0.5 if road.scene == "cross" else lanes[rng.randint(len(lanes))]
        nearest = (9.0 if is_crowd else 15.0) if lane == -0.5 else 6.0
        ahead = rng.uniform(nearest, 34.0 if is_crowd else 70.0)
        vehicle = _draw_vehicle(rng, float(road.lateral(lane)) + rng.uniform(-0.25, 0.25), ahead)
        end = ahead + vehicle.long + _GAP
        if all(lane != other or end < near or ahead > far for other, near, far in taken):
            taken.append((lane, ahead, end))
            vehicles.append(vehicle)
    return sorted(vehicles, key=lambda vehicle: -vehicle.ahead)


def draw_vehicle(road: Road, vehicle: Vehicle, picture: np.ndarray) -> None:
    """Draw a vehicle on the picture, (H, W, 3) uint8 RGB."""
    half, colour = vehicle.wide / 2, np.array(vehicle.colour, np.float64)
    low, waist = 0.28, vehicle.tall * (0.97 if vehicle.is_box else 0.62)
    _shadow(road, vehicle, picture)
    for side in (-half, half):
        fill(picture, _rear(road, vehicle, (side * 0.98, side * 0.68), (0.0, 0.45)), _TYRE)
    _draw_side(road, vehicle, picture, low=low, waist=waist)
    if not vehicle.is_box:
        _draw_cabin(road, vehicle, picture, waist=waist)
    fill(picture, _rear(road, vehicle, (-half, half), (low, waist)), colour)
    if vehicle.is_box:
        window = _rear(road, vehicle, (-half * 0.9, half * 0.9), (waist * 0.3, waist * 0.96))
        fill(picture, window, colour * 0.92)
    fill(picture, _rear(road, vehicle, (-half, half), (low, low + 0.2)), colour * 0.5)
    fill(picture, _rear(road, vehicle, (-0.26, 0.26), (low + 0.25, low + 0.37)), _PLATE)
    for lamp in _lamp_boxes(road, vehicle):
        fill(picture, lamp, _LAMP)


def tail_lamps(road: Road, vehicle: Vehicle) -> np.ndarray:
    """Return the middles of a vehicle's two tail lamps, (2, 2) px."""
    return np.stack([lamp.mean(axis=0) for lamp in _lamp_boxes(road, vehicle)])


def _draw_vehicle(rng: np.random.RandomState, across: float, ahead: float) -> Vehicle:
    colour = _PAINTS[rng.randint(len(_PAINTS))]
    kind = rng.uniform()
    if kind < 0.72:
        return Vehicle(
            across, ahead, rng.uniform(1.7, 1.9), rng.uniform(1.4, 1.75), 4.3, False, colour
        )
    if kind < 0.87:
        return Vehicle(across, ahead, 2.0, rng.uniform(2.0, 2.5), 5.2, True, colour)
    return Vehicle(across, ahead, 2.45, rng.uniform(3.0, 3.8), 9.0, True, colour)


def _rear(
    road: Road, vehicle: Vehicle, sides: tuple[float, float], heights: tuple[float, float]
) -> np.ndarray:
    """Return an upright rectangle of the rear, (4, 2) px."""
    (left, right), (low, high) = sides, heights
    corners = ((left, low), (right, low), (right, high), (left, high))
    return road.project([(vehicle.across + x, vehicle.ahead, z) for x, z in corners])


def _shadow(road: Road, vehicle: Vehicle, picture: np.ndarray) -> None:
    left, right = vehicle.across - vehicle.wide * 0.54, vehicle.across + vehicle.wide * 0.54
    near, far = vehicle.ahead - 0.35, vehicle.ahead + vehicle.long
    ground = road.project([(left, near, 0), (right, near, 0), (right, far, 0), (left, far, 0)])
    fill(picture, ground, _SHADOW)


def _draw_side(
    road: Road, vehicle: Vehicle, picture: np.ndarray, *, low: float, waist: float
) -> None:
    """Draw the side that faces the camera."""
    near, far = vehicle.ahead, vehicle.ahead + vehicle.long
    x = vehicle.across - np.sign(vehicle.across) * vehicle.wide / 2
    corners = ((near, low), (far, low), (far, waist), (near, waist))
    side = road.project([(x, y, z) for y, z in corners])
    fill(picture, side, np.array(vehicle.colour) * 0.72)
    for share in (0.12, 0.76):
        begin = near + share * vehicle.long
        end = begin + 0.15 * vehicle.long
        wheel = road.project([(x, begin, 0), (x, end, 0), (x, end, 0.6), (x, begin, 0.6)])
        fill(picture, wheel, _TYRE)


def _draw_cabin(road: Road, vehicle: Vehicle, picture: np.ndarray, *, waist: float) -> None:
    """Draw a car's glass house: side windows, rear window, roof edge."""
    half, top = vehicle.wide / 2, vehicle.tall
    near, far = vehicle.ahead + 0.5, vehicle.ahead + vehicle.long * 0.62
    sign = -np.sign(vehicle.across)
    outer, inner = vehicle.across + sign * half * 0.96, vehicle.across + sign * half * 0.76
    base = vehicle.ahead
    places = [
        (outer, base, waist),
        (outer, far + 0.6, waist),
        (inner, far, top),
        (inner, near, top),
    ]
    fill(picture, road.project(places), np.array(_GLASS) * 0.8)
    places = [
        (vehicle.across - half * 0.96, base, waist),
        (vehicle.across + half * 0.96, base, waist),
        (vehicle.across + half * 0.76, near, top),
        (vehicle.across - half * 0.76, near, top),
    ]
    house = road.project(places)
    fill(picture, house, np.array(vehicle.colour) * 0.9)
    middle = house.mean(axis=0)
    fill(picture, middle + (house - middle) * (0.84, 0.74), _GLASS)


def _lamp_boxes(road: Road, vehicle: Vehicle) -> list[np.ndarray]:
    half = vehicle.wide / 2
    low = 0.62 if vehicle.is_box else vehicle.tall * 0.46
    return [
        _rear(road, vehicle, (side * half, side * (half - 0.3)), (low, low + 0.16))
        for side in (-1, 1)
    ]
