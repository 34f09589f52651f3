"""Varies training pictures: torchvision's reference presets, and `jitter`.

Each function takes a scene and the generator it draws from, and returns a new scene; the scene it
was given stays as it was. `build_augment` turns the configuration into one such function.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from tasks.detection import colour, geometry
from tasks.detection.config import JitterAugmentConfig, PresetAugmentConfig
from tasks.detection.geometry import Scene

Augment = Callable[[Scene, random.Random], Scene]

SHORT_SIDES = tuple(range(480, 801, 32))
LONG_SIDE = 1333
JITTER_SIDE = 1024
# 1 or more stands for "no crop"
IOU_THRESHOLDS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
CROP_TRIALS = 40


def build_augment(config: PresetAugmentConfig | JitterAugmentConfig) -> Augment:
    """Return the augmentation that the configuration describes."""
    if isinstance(config, JitterAugmentConfig):
        return partial(jitter, config)
    return PRESETS[config.preset]


def none(scene: Scene, draw: random.Random) -> Scene:
    """Return the scene as it is."""
    return scene


def random_hflip(scene: Scene, draw: random.Random, *, probability: float = 0.5) -> Scene:
    """Return the scene, or its mirror image."""
    return geometry.hflip(scene) if draw.random() < probability else scene


def multiscale(scene: Scene, draw: random.Random) -> Scene:
    """Resize so that the short side is one of 480, 512, ..., 800 and the long one <= 1333."""
    height, width = scene.image.shape[:2]
    short = draw.choice(SHORT_SIDES)
    factor = min(short / min(height, width), LONG_SIDE / max(height, width))
    resized = geometry.resize(scene, width=_side(width, factor), height=_side(height, factor))
    return random_hflip(resized, draw)


def lsj(scene: Scene, draw: random.Random) -> Scene:
    """Large scale jitter: 0.1 to 2 times the fit to 1024 px, cropped or filled up to 1024."""
    height, width = scene.image.shape[:2]
    factor = min(JITTER_SIDE / height, JITTER_SIDE / width) * draw.uniform(0.1, 2.0)
    scene = geometry.resize(scene, width=_side(width, factor), height=_side(height, factor))
    return random_hflip(_fixed_size(scene, draw, side=JITTER_SIDE), draw)


def ssd(scene: Scene, draw: random.Random) -> Scene:
    """Distort the colours, zoom out, crop by overlap, flip: SSD's recipe."""
    distorted = Scene(photometric_distort(scene.image, draw), scene.boxes_xyxy, scene.labels)
    return random_hflip(iou_crop(zoom_out(distorted, draw), draw), draw)


def ssdlite(scene: Scene, draw: random.Random) -> Scene:
    """Crop by overlap, flip."""
    return random_hflip(iou_crop(scene, draw), draw)


def photometric_distort(image: np.ndarray, draw: random.Random) -> np.ndarray:
    """Vary brightness, contrast, saturation, hue and the order of channels, each half the time.

    Args:
        image: (H, W, 3) uint8 RGB.
        draw: the generator.

    Source: torchvision's detection reference. Unlike there, steps that follow each other without
    the hue in between are clipped once, at their end.
    """
    contrast_first = draw.random() < 0.5
    maps = []
    if draw.random() < 0.5:
        maps.append(colour.gain(draw.uniform(0.875, 1.125)))
    if contrast_first:
        maps += _random_contrast(image, maps, draw)
    if draw.random() < 0.5:
        maps.append(colour.saturation(draw.uniform(0.5, 1.5)))
    if draw.random() < 0.5:
        image = colour.shift_hue(_apply(image, maps), draw.uniform(-0.05, 0.05))
        maps = []
    if not contrast_first:
        maps += _random_contrast(image, maps, draw)
    if draw.random() < 0.5:
        maps.append(colour.permutation(draw.sample(range(3), 3)))
    return _apply(image, maps)


def zoom_out(scene: Scene, draw: random.Random) -> Scene:
    """Put the picture somewhere on a ground 1 to 4 times as wide and high, half the time."""
    if draw.random() >= 0.5:
        return scene
    height, width = scene.image.shape[:2]
    factor = draw.uniform(1.0, 4.0)
    ground_width, ground_height = int(width * factor), int(height * factor)
    left = int((ground_width - width) * draw.random())
    top = int((ground_height - height) * draw.random())
    return geometry.pad(scene, left=left, top=top, width=ground_width, height=ground_height)


def iou_crop(scene: Scene, draw: random.Random) -> Scene:
    """Cut out a part that overlaps some box by at least a drawn IoU.

    Only boxes whose centre lies in the part are kept. Some draws mean no crop, and so does a
    scene without boxes (torchvision's reference tries until it draws that).
    """
    while len(scene.boxes_xyxy):
        threshold = draw.choice(IOU_THRESHOLDS)
        if threshold >= 1.0:
            return scene
        for _ in range(CROP_TRIALS):
            cropped = _try_crop(scene, draw, threshold=threshold)
            if cropped is not None:
                return cropped
    return scene


def jitter(config: JitterAugmentConfig, scene: Scene, draw: random.Random) -> Scene:
    """Vary shape and colour as the configuration says; the picture's size stays.

    Flips alone move pixels exactly; with zoom, stretch or shift everything is one warp. A
    transpose turns a picture that is not square on its side.
    """
    scene = _random_flips(config, scene, draw)
    if config.scale != (1.0, 1.0) or config.aspect or config.shift:
        matrix = _random_matrix(config, scene, draw)
        scene = geometry.warp(scene, matrix, min_visible=config.min_visible)
    maps = _random_colours(config, scene.image, draw)
    return Scene(_apply(scene.image, maps), scene.boxes_xyxy, scene.labels)


PRESETS: Mapping[str, Augment] = {
    "none": none,
    "hflip": random_hflip,
    "multiscale": multiscale,
    "lsj": lsj,
    "ssd": ssd,
    "ssdlite": ssdlite,
}


def _side(length: int, factor: float) -> int:
    return max(1, int(length * factor))


def _fixed_size(scene: Scene, draw: random.Random, *, side: int) -> Scene:
    height, width = scene.image.shape[:2]
    # one draw for both directions, as torchvision has it
    share = draw.random()
    left, top = int(max(width - side, 0) * share), int(max(height - side, 0) * share)
    if width > side or height > side:
        scene = geometry.crop(
            scene, left=left, top=top, width=min(width, side), height=min(height, side)
        )
    if width < side or height < side:
        scene = geometry.pad(scene, left=0, top=0, width=side, height=side)
    return scene


def _try_crop(scene: Scene, draw: random.Random, *, threshold: float) -> Scene | None:
    height, width = scene.image.shape[:2]
    new_width = int(width * draw.uniform(0.3, 1.0))
    new_height = int(height * draw.uniform(0.3, 1.0))
    if not (new_width and new_height and 0.5 <= new_width / new_height <= 2.0):
        return None
    left = int((width - new_width) * draw.random())
    top = int((height - new_height) * draw.random())
    frame = np.array([left, top, left + new_width, top + new_height], np.float64)
    centres = (scene.boxes_xyxy[:, :2] + scene.boxes_xyxy[:, 2:]) / 2
    inside = ((centres > frame[:2]) & (centres < frame[2:])).all(1)
    if not inside.any() or geometry.iou_with(scene.boxes_xyxy[inside], frame).max() < threshold:
        return None
    return geometry.crop(
        geometry.keep(scene, inside), left=left, top=top, width=new_width, height=new_height
    )


def _random_contrast(
    image: np.ndarray, maps: list[np.ndarray], draw: random.Random
) -> list[np.ndarray]:
    if draw.random() >= 0.5:
        return []
    mean = colour.mean_grey(image, colour.chain(*maps))
    return [colour.contrast(draw.uniform(0.5, 1.5), mean=mean)]


def _random_flips(config: JitterAugmentConfig, scene: Scene, draw: random.Random) -> Scene:
    moves = (
        (config.hflip, geometry.hflip),
        (config.vflip, geometry.vflip),
        (config.transpose, geometry.transpose),
    )
    for probability, move in moves:
        if draw.random() < probability:
            scene = move(scene)
    return scene


def _random_matrix(config: JitterAugmentConfig, scene: Scene, draw: random.Random) -> np.ndarray:
    height, width = scene.image.shape[:2]
    zoom = draw.uniform(*config.scale)
    zoom_x = zoom * (1 + draw.uniform(-config.aspect, config.aspect))
    shift_x = draw.uniform(-config.shift, config.shift) * width
    shift_y = draw.uniform(-config.shift, config.shift) * height
    # zoomed about the middle of the picture
    return np.array(
        [
            [zoom_x, 0.0, (1 - zoom_x) * width / 2 + shift_x],
            [0.0, zoom, (1 - zoom) * height / 2 + shift_y],
        ]
    )


def _random_colours(
    config: JitterAugmentConfig, image: np.ndarray, draw: random.Random
) -> list[np.ndarray]:
    maps = []
    if draw.random() < config.channel_permutation:
        maps.append(colour.permutation(draw.sample(range(3), 3)))
    if config.saturation:
        maps.append(colour.saturation(1 + draw.uniform(-config.saturation, config.saturation)))
    if config.contrast:
        factor = 1 + draw.uniform(-config.contrast, config.contrast)
        mean = colour.mean_grey(image, colour.chain(*maps))
        maps.append(colour.contrast(factor, mean=mean))
    if config.gain:
        maps.append(colour.gain(1 + draw.uniform(-config.gain, config.gain)))
    if config.channel_gain:
        spread = config.channel_gain
        maps.append(colour.gain([1 + draw.uniform(-spread, spread) for _ in range(3)]))
    if config.offset:
        maps.append(colour.offset(255 * draw.uniform(-config.offset, config.offset)))
    return maps


def _apply(image: np.ndarray, maps: list[np.ndarray]) -> np.ndarray:
    return colour.apply(image, colour.chain(*maps)) if maps else image
