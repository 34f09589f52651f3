"""Varied training pictures: hand values, inverse pairs, and that nothing given is changed."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tasks.detection import augment, colour, geometry
from tasks.detection.config import JitterAugmentConfig, PresetAugmentConfig
from tasks.detection.geometry import Scene

# a 4 wide, 3 high picture whose pixels are all different
PIXELS = np.arange(36, dtype=np.uint8).reshape(3, 4, 3)


def small_scene(boxes=((0, 1, 3, 2),)) -> Scene:
    boxes = np.array(boxes, np.float64).reshape(-1, 4)
    return Scene(PIXELS.copy(), boxes, np.arange(len(boxes)))


def large_scene(width=320, height=240, num_boxes=3) -> Scene:
    state = np.random.RandomState(0)
    left_top = state.uniform(0, [width / 2, height / 2], (num_boxes, 2))
    boxes = np.concatenate([left_top, left_top + state.uniform(20, 100, (num_boxes, 2))], 1)
    image = state.randint(0, 256, (height, width, 3)).astype(np.uint8)
    return Scene(image, boxes, np.arange(num_boxes))


def same(one: Scene, other: Scene) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_hflip_by_hand():
    flipped = geometry.hflip(small_scene())
    assert flipped.boxes_xyxy.tolist() == [[1, 1, 4, 2]]
    assert flipped.image[0, 0].tolist() == PIXELS[0, 3].tolist()


def test_vflip_by_hand():
    flipped = geometry.vflip(small_scene([[0, 0, 3, 1]]))
    assert flipped.boxes_xyxy.tolist() == [[0, 2, 3, 3]]
    assert flipped.image[0, 0].tolist() == PIXELS[2, 0].tolist()


def test_transpose_by_hand():
    turned = geometry.transpose(small_scene())
    assert turned.boxes_xyxy.tolist() == [[1, 0, 2, 3]]
    assert turned.image.shape == (4, 3, 3)
    assert turned.image[3, 1].tolist() == PIXELS[1, 3].tolist()


@pytest.mark.parametrize("move", [geometry.hflip, geometry.vflip, geometry.transpose])
@pytest.mark.parametrize("boxes", [[], [[0, 1, 3, 2], [1, 0, 2, 3]]])
def test_moving_twice_gives_the_scene_back(move, boxes):
    assert same(move(move(small_scene(boxes))), small_scene(boxes))


def test_resize_scales_boxes():
    resized = geometry.resize(small_scene(), width=8, height=9)
    assert resized.image.shape == (9, 8, 3)
    assert resized.boxes_xyxy.tolist() == [[0, 3, 6, 6]]


def test_crop_cuts_boxes_and_drops_those_outside():
    scene = small_scene([[0, 1, 3, 2], [0, 0, 1, 1]])
    cropped = geometry.crop(scene, left=1, top=1, width=3, height=2)
    assert cropped.boxes_xyxy.tolist() == [[0, 0, 2, 1]]
    assert cropped.labels.tolist() == [0]
    assert np.array_equal(cropped.image, PIXELS[1:, 1:])


def test_pad_then_crop_gives_the_scene_back():
    padded = geometry.pad(small_scene(), left=2, top=3, width=9, height=8)
    assert padded.boxes_xyxy.tolist() == [[2, 4, 5, 5]]
    assert padded.image[0, 0].tolist() == list(geometry.FILL)
    assert same(geometry.crop(padded, left=2, top=3, width=4, height=3), small_scene())


def test_warp_by_one_changes_nothing():
    identity = np.array([[1.0, 0, 0], [0, 1, 0]])
    assert same(geometry.warp(small_scene(), identity, min_visible=0), small_scene())


def test_warp_that_mirrors_is_the_flip():
    mirror = np.array([[-1.0, 0, 4], [0, 1, 0]])
    assert same(geometry.warp(small_scene(), mirror, min_visible=0), geometry.hflip(small_scene()))


def test_warp_drops_boxes_that_are_mostly_outside():
    # moved right by 2: box 0..3 becomes 2..5, of which 2..4 stays: two thirds
    right = np.array([[1.0, 0, 2], [0, 1, 0]])
    assert geometry.warp(small_scene(), right, min_visible=0.6).boxes_xyxy.tolist() == [
        [2, 1, 4, 2]
    ]
    assert geometry.warp(small_scene(), right, min_visible=0.7).boxes_xyxy.shape == (0, 4)


def test_iou_by_hand():
    boxes = np.array([[0, 0, 2, 2], [5, 5, 6, 6]], np.float64)
    # 1 shared of 4 + 4 - 1
    assert geometry.iou_with(boxes, np.array([1.0, 1, 3, 3])).tolist() == [1 / 7, 0]


def test_colour_maps_by_hand():
    image = np.array([[[100, 50, 200]]], np.uint8)
    apply = colour.apply
    assert apply(image, colour.gain(1.5)).ravel().tolist() == [150, 75, 255]
    assert apply(image, colour.offset(-60)).ravel().tolist() == [40, 0, 140]
    assert apply(image, colour.contrast(0.5, mean=100)).ravel().tolist() == [100, 75, 150]
    assert apply(image, colour.permutation([2, 0, 1])).ravel().tolist() == [200, 100, 50]
    # grey: .299 * 100 + .587 * 50 + .114 * 200 = 82.05
    assert apply(image, colour.saturation(0)).ravel().tolist() == [82, 82, 82]


def test_chained_maps_are_one_after_the_other():
    image = np.array([[[100, 50, 20]]], np.uint8)
    joined = colour.chain(colour.gain(2), colour.offset(10))
    assert colour.apply(image, joined).ravel().tolist() == [210, 110, 50]
    assert colour.mean_grey(image, joined) == pytest.approx(0.299 * 210 + 0.587 * 110 + 0.114 * 50)


def test_hue_turns_red_to_green_in_a_third():
    red = np.array([[[255, 0, 0]]], np.uint8)
    turned = colour.shift_hue(red, 1 / 3).ravel()
    assert turned[1] == 255
    assert max(turned[0], turned[2]) < 8
    assert np.array_equal(colour.shift_hue(red, 0), red)


@pytest.mark.parametrize("preset", sorted(augment.PRESETS))
@pytest.mark.parametrize("num_boxes", [0, 3])
def test_presets_keep_boxes_whole_and_change_nothing_given(preset, num_boxes):
    vary = augment.build_augment(PresetAugmentConfig(preset=preset))
    scene, untouched = large_scene(num_boxes=num_boxes), large_scene(num_boxes=num_boxes)
    for seed in range(25):
        varied = vary(scene, random.Random(seed))
        height, width = varied.image.shape[:2]
        assert varied.image.dtype == np.uint8
        assert geometry.has_area(varied.boxes_xyxy).all()
        assert (varied.boxes_xyxy >= 0).all()
        assert (varied.boxes_xyxy <= [width, height, width, height]).all()
        assert len(varied.labels) == len(varied.boxes_xyxy)
    assert same(scene, untouched)


def test_the_same_draws_give_the_same_scene():
    vary = augment.build_augment(PresetAugmentConfig(preset="ssd"))
    scenes = [vary(large_scene(), random.Random(3)) for _ in range(2)]
    assert same(*scenes)


def test_multiscale_takes_a_listed_short_side():
    shorts = {
        min(augment.multiscale(large_scene(), random.Random(seed)).image.shape[:2])
        for seed in range(40)
    }
    assert shorts <= set(range(480, 801, 32))
    assert len(shorts) > 5


def test_multiscale_obeys_the_long_side():
    wide = augment.multiscale(large_scene(width=800, height=200), random.Random(0))
    # 1333 / 800 = 1.66625; 200 * 1.66625 = 333.25
    assert wide.image.shape[:2] == (333, 1333)


def test_lsj_always_gives_1024():
    for seed in range(10):
        assert augment.lsj(large_scene(), random.Random(seed)).image.shape == (1024, 1024, 3)


def test_iou_crop_keeps_what_has_its_centre_inside():
    scene = large_scene()
    for seed in range(30):
        cropped = augment.iou_crop(scene, random.Random(seed))
        assert len(cropped.boxes_xyxy) >= 1
        height, width = cropped.image.shape[:2]
        assert width >= 0.3 * 320 - 1
        assert height >= 0.3 * 240 - 1


def jitter(**values):
    return augment.build_augment(JitterAugmentConfig(preset="jitter", **values))


def test_jitter_without_settings_is_the_scene():
    assert same(jitter(hflip=0)(large_scene(), random.Random(0)), large_scene())


def test_jitter_flips_are_exact():
    vary = jitter(hflip=1, vflip=1)
    expected = geometry.vflip(geometry.hflip(large_scene()))
    assert same(vary(large_scene(), random.Random(0)), expected)


def test_jitter_keeps_the_size_and_moves_boxes_with_the_pixels():
    # one white rectangle on black: its extent after the warp is where the box says
    image = np.zeros((120, 160, 3), np.uint8)
    image[40:80, 60:100] = 255
    scene = Scene(image, np.array([[60.0, 40, 100, 80]]), np.array([0]))
    vary = jitter(scale=(0.75, 1.35), aspect=0.1, shift=0.1)
    for seed in range(10):
        varied = vary(scene, random.Random(seed))
        assert varied.image.shape == image.shape
        rows, columns = np.nonzero((varied.image == 255).all(2))
        found = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        assert np.abs(np.array(found) - varied.boxes_xyxy[0]).max() <= 1.5


def test_jitter_colours_stay_near():
    grey = Scene(np.full((8, 8, 3), 128, np.uint8), np.zeros((0, 4)), np.zeros(0, np.int64))
    vary = jitter(gain=0.1, offset=0.05, contrast=0.2, saturation=0.5)
    values = {int(vary(grey, random.Random(seed)).image[0, 0, 0]) for seed in range(30)}
    # 128 * (1 +- .1) +- 12.75
    assert min(values) >= 102
    assert max(values) <= 154
    assert len(values) > 10
