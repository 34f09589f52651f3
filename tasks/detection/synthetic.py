"""Labelled scenes drawn from a seed: the detection set that comes with the project.

Textured ellipses, squares, triangles and stars lie over a noisy ground with line clutter, partly
hidden by each other. The scenes are written as COCO JSON + JPEG and read back by the COCO reader,
so that the embedded example takes the same way as real data.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from tasks.drawn_sets import num_written, write_jpeg, write_once

CLASS_NAMES = ("ellipse", "square", "triangle", "star")
ANNOTATIONS = "annotations.json"
IMAGES = "images"
DRAWING = 2  # raise it when the drawing changes, so that folders drawn before are not taken for new

_TEXTURES = ("plain", "striped", "checked", "noisy")
_SIDE_SHARE = (0.12, 0.38)
_MAX_SHAPES = 5
_MAX_HIDDEN = 0.35  # no shape is covered more than this by later ones
_TRIES = 10  # placements of a shape before it is left out
_LEAST_CONTRAST = 90.0


def write_synthetic(folder: Path, *, images: int, size: int, seed: int) -> None:
    """Draw a set of scenes into `folder`, unless it already holds that very set.

    The folder gets `annotations.json` (COCO, category ids from 1) and `images/000000.jpg` onwards.
    It appears whole or not at all. Scene i depends on `seed`, `size` and i only.

    Args:
        folder: where the set goes; its parents are made.
        images: how many scenes, > 0.
        size: side of a scene, px.
        seed: >= 0.

    Raises:
        DatasetError: if the folder holds something else than a set of this kind.
    """
    wanted = {"drawing": DRAWING, "images": images, "size": size, "seed": seed}
    write_once(
        folder,
        parts=(ANNOTATIONS, IMAGES),
        is_whole=partial(_is_whole, wanted=wanted),
        write=partial(_write_set, wanted=wanted),
    )


def draw_scene(rng: np.random.RandomState, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw one scene.

    Args:
        rng: every draw comes from it.
        size: side of the scene, px, >= 64.

    Returns:
        The picture, (size, size, 3) uint8 RGB; boxes_xyxy, (N, 4) float64, px, end exclusive,
        tight around the whole shape, also where another one covers it; labels, (N,) int64, index
        into `CLASS_NAMES`. N is 1 to 5; at most 35 % of a shape are covered.
    """
    picture, ground_colour = _ground(rng, size)
    _line_clutter(rng, picture)
    owner = np.zeros((size, size), np.int8)
    boxes: list[tuple[int, int, int, int]] = []
    labels: list[int] = []
    areas: list[int] = []
    for _ in range(rng.randint(1, _MAX_SHAPES + 1)):
        label = rng.randint(len(CLASS_NAMES))
        placed = _place(rng, CLASS_NAMES[label], owner, areas)
        if placed is None:
            continue
        box, inside = placed
        left, top, right, bottom = box
        texture = _texture(rng, (bottom - top, right - left), ground_colour)
        picture[top:bottom, left:right][inside] = texture[inside]
        boxes.append(box)
        labels.append(label)
        areas.append(int(inside.sum()))
    return (
        picture,
        np.asarray(boxes, np.float64).reshape(-1, 4),
        np.asarray(labels, np.int64),
    )


def _place(
    rng: np.random.RandomState, name: str, owner: np.ndarray, areas: Sequence[int]
) -> tuple[tuple[int, int, int, int], np.ndarray] | None:
    """Find a place where a shape leaves enough of the earlier ones to be seen, and take it.

    Args:
        rng: draws outline and place.
        name: the shape.
        owner: (S, S) int8, the number of the shape on top, from 1; 0 is the ground; changed.
        areas: of the earlier shapes, px^2, covered parts included.

    Returns:
        Its box and the (height, width) bool mask within; None if no place was found.
    """
    size, number = owner.shape[0], len(areas) + 1
    seen = np.bincount(owner.ravel(), minlength=number)[1:number]
    least = (1 - _MAX_HIDDEN) * np.asarray(areas)
    for _ in range(_TRIES):
        polygon = _outline(rng, name, size)
        mask = np.zeros((size, size), np.uint8)
        cv2.fillPoly(mask, [polygon], 1)
        left, top, width, height = cv2.boundingRect(polygon)
        inside = mask[top : top + height, left : left + width] > 0
        below = owner[top : top + height, left : left + width]
        covered = np.bincount(below[inside], minlength=number)[1:number]
        if np.all(seen - covered >= least):
            below[inside] = number
            return (left, top, left + width, top + height), inside
    return None


def _ground(rng: np.random.RandomState, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Coarse and fine noise around a colour; also that colour."""
    colour = rng.uniform(40, 215, 3)
    coarse = rng.uniform(-28, 28, (5, 5, 3)).astype(np.float32)
    ground = cv2.resize(coarse, (size, size), interpolation=cv2.INTER_CUBIC)
    fine = rng.randint(-18, 19, (size, size, 3)).astype(np.float32)
    return np.clip(ground + fine + colour, 0, 255).astype(np.uint8), colour


def _line_clutter(rng: np.random.RandomState, picture: np.ndarray) -> None:
    """Draw short unlabelled lines, which have edges and corners but no inside."""
    size = picture.shape[0]
    for _ in range(rng.randint(3, 9)):
        start = rng.randint(0, size, 2)
        end = start + rng.randint(-size // 3, size // 3 + 1, 2)
        colour = tuple(int(value) for value in rng.randint(0, 256, 3))
        thickness = int(rng.randint(1, 3))
        cv2.line(picture, tuple(map(int, start)), tuple(map(int, end)), colour, thickness)


def _outline(rng: np.random.RandomState, name: str, size: int) -> np.ndarray:
    """Return the shape's polygon, (P, 2) int32, x then y, wholly inside the scene."""
    side = rng.uniform(*_SIDE_SHARE) * size
    points = _unit_outline(name) * (1, rng.uniform(0.65, 1.0)) * side / 2
    turn = rng.uniform(0, 2 * np.pi)
    cosine, sine = np.cos(turn), np.sin(turn)
    points = points @ np.array([[cosine, sine], [-sine, cosine]])
    low, high = points.min(axis=0), points.max(axis=0)
    centre = rng.uniform(1 - low, size - 2 - high)
    return np.round(points + centre).astype(np.int32)


def _unit_outline(name: str) -> np.ndarray:
    """Return the shape's corners in [-1, 1], (P, 2)."""
    if name == "square":
        return np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * 0.85
    corners = {"ellipse": 40, "triangle": 3, "star": 10}[name]
    angles = np.arange(corners) * 2 * np.pi / corners
    radius = np.where(np.arange(corners) % 2, 0.45, 1.0) if name == "star" else 1.0
    return np.stack([np.cos(angles) * radius, np.sin(angles) * radius], axis=1)


def _texture(
    rng: np.random.RandomState, shape: tuple[int, int], ground_colour: np.ndarray
) -> np.ndarray:
    """Return one of the four textures, (height, width, 3) uint8."""
    first = _contrasting_colour(rng, ground_colour)
    second = np.clip(first + rng.uniform(45, 90) * rng.choice((-1, 1), 3), 0, 255)
    kind = _TEXTURES[rng.randint(len(_TEXTURES))]
    if kind == "plain":
        return np.broadcast_to(first, (*shape, 3)).astype(np.uint8)
    if kind == "noisy":
        noise = rng.randint(-40, 41, (*shape, 3))
        return np.clip(noise + first, 0, 255).astype(np.uint8)
    turn, period = rng.uniform(0, np.pi), rng.uniform(4, 9)
    y, x = np.mgrid[: shape[0], : shape[1]] / period
    along = np.floor(x * np.cos(turn) + y * np.sin(turn))
    across = np.floor(y * np.cos(turn) - x * np.sin(turn)) if kind == "checked" else 0
    chosen = (along + across) % 2 == 0
    return np.where(chosen[..., None], first, second).astype(np.uint8)


def _contrasting_colour(rng: np.random.RandomState, ground_colour: np.ndarray) -> np.ndarray:
    """Draw colours until one is far enough from the ground's."""
    while True:
        colour = rng.uniform(0, 255, 3)
        if np.linalg.norm(colour - ground_colour) >= _LEAST_CONTRAST:
            return colour


def _write_set(folder: Path, wanted: dict[str, int]) -> None:
    (folder / IMAGES).mkdir()
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    size = wanted["size"]
    for index in range(wanted["images"]):
        picture, boxes_xyxy, labels = draw_scene(
            np.random.RandomState([wanted["seed"], index]), size
        )
        name = f"{index:06d}.jpg"
        write_jpeg(folder / IMAGES / name, picture)
        images.append({"id": index + 1, "file_name": name, "width": size, "height": size})
        for annotation in _annotations(index + 1, boxes_xyxy, labels):
            annotations.append({"id": len(annotations) + 1, **annotation})
    content = {
        "info": {"description": "Sightflow synthetic scenes", "sightflow": wanted},
        "images": images,
        "annotations": annotations,
        "categories": [{"id": k + 1, "name": name} for k, name in enumerate(CLASS_NAMES)],
    }
    (folder / ANNOTATIONS).write_text(json.dumps(content), encoding="utf-8")


def _annotations(
    image_id: int, boxes_xyxy: np.ndarray, labels: np.ndarray
) -> Iterator[dict[str, Any]]:
    for (left, top, right, bottom), label in zip(boxes_xyxy.tolist(), labels.tolist(), strict=True):
        width, height = right - left, bottom - top
        yield {
            "image_id": image_id,
            "category_id": label + 1,
            "bbox": [left, top, width, height],
            "area": width * height,
            "iscrowd": 0,
        }


def _is_whole(folder: Path, wanted: dict[str, int]) -> bool:
    """Return whether the folder holds the set, with a picture of some bytes for each scene."""
    try:
        content = json.loads((folder / ANNOTATIONS).read_text(encoding="utf-8"))
        if content["info"]["sightflow"] != wanted:
            return False
        return num_written(folder / IMAGES) == wanted["images"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
