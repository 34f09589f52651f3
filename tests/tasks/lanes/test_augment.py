"""What is drawn for a training picture, and its light."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tasks.lanes.augment import Variation, draw_variation, vary_light
from tasks.lanes.config import LaneAugmentConfig

OFF = {"scale": (1.0, 1.0), "rotate": 0.0, "shift": (0.0, 0.0)}


def test_draws_fill_the_references_ranges_and_no_more():
    draw = random.Random(0)
    drawn = [draw_variation(LaneAugmentConfig(), draw) for _ in range(2000)]
    values = np.array([[*v.scale, v.degrees, *v.shift] for v in drawn])
    limits = np.array([[0.8, 1.2], [0.8, 1.2], [-6, 6], [-200, 200], [-100, 100]])
    assert (values >= limits[:, 0]).all()
    assert (values <= limits[:, 1]).all()
    assert values.mean(0) == pytest.approx(limits.mean(1), abs=10)
    assert values.std(0) == pytest.approx(np.ptp(limits, axis=1) / 12**0.5, rel=0.05)
    assert not any(v.is_mirrored for v in drawn)
    assert {(v.gain, v.contrast) for v in drawn} == {(1.0, 1.0)}


def test_nothing_to_vary_moves_nothing():
    assert draw_variation(LaneAugmentConfig(**OFF), random.Random(0)) == Variation()
    assert not Variation().moves
    assert Variation(is_mirrored=True).moves
    assert not Variation(gain=1.2).moves


def test_a_mirror_or_light_leaves_the_other_draws_as_they_were():
    plain = draw_variation(LaneAugmentConfig(), random.Random(5))
    more = draw_variation(LaneAugmentConfig(flip=1, gain=0.3, contrast=0.3), random.Random(5))
    assert (more.scale, more.degrees, more.shift) == (plain.scale, plain.degrees, plain.shift)
    assert more.is_mirrored
    assert more.gain != 1


def test_the_matrix_of_a_mirror_maps_the_left_edge_to_the_right():
    matrix = Variation(is_mirrored=True).matrix((8, 6), width=16)
    assert (matrix @ [0, 3, 1]).tolist() == [16, 3]


def test_light_changes_about_the_mean_and_is_cut():
    picture = np.repeat(np.array([[[50], [150]]], np.uint8), 3, axis=2)  # mean 100
    assert vary_light(picture, Variation()) is picture
    assert vary_light(picture, Variation(contrast=0.5))[0, :, 0].tolist() == [75, 125]
    assert vary_light(picture, Variation(gain=2.0))[0, :, 0].tolist() == [100, 255]
    assert vary_light(picture, Variation(gain=2.0, contrast=1.2))[0, :, 0].tolist() == [80, 255]
