"""The network's input of pictures and masks: sizes, rows that are kept, pixels that are taken."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from PIL import Image

from tasks.lanes.config import UfldModelConfig
from tasks.lanes.geometry import affine
from tasks.lanes.transform import (
    mask_to_input,
    nearest_sources,
    normalise,
    resize,
    row_plan,
    to_input,
    warped_to_input,
)

RANDOM = np.random.RandomState(0)


def model(size=(64, 32), crop=0.5):
    anchors = {"anchors": 5, "cells": 10}
    return UfldModelConfig.model_validate(
        {
            "name": "ufldv2",
            "backbone": {"name": "resnet18"},
            "input": size,
            "crop": crop,
            "rows": anchors,
            "columns": anchors,
        }
    )


def picture(width, height):
    return RANDOM.randint(0, 256, (height, width, 3)).astype(np.uint8)


def pil_resized(image, width, height):
    return np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR))


@pytest.mark.parametrize("size", [(1280, 720), (640, 236), (100, 41), (64, 64), (30, 20)])
def test_inputs_are_the_lowest_rows_of_pils_resize(size):
    image = picture(*size)
    found = to_input(image, model=model()).astype(int)
    assert found.shape == (32, 64, 3)
    assert np.abs(found - pil_resized(image, 64, 64)[32:]).max() <= 1


@pytest.mark.parametrize(
    ("height", "size", "crop", "first_row", "dropped"),
    [
        # 720 -> 400 of which 80 are dropped, nine rows for five: 75 of them are never made
        (720, (800, 320), 0.8, 135, 5),
        # 590 -> 533: no whole number of rows makes another before the end
        (590, (1600, 320), 0.6, 0, 213),
        (1440, (1600, 800), 0.8, 252, 25),
        (320, (800, 320), 1.0, 0, 0),
    ],
)
def test_rows_that_cannot_be_seen_are_left_out(height, size, crop, first_row, dropped):
    plan = row_plan(height, model=model(size, crop))
    whole = int(size[1] / crop)
    assert (plan.first_row, plan.dropped) == (first_row, dropped)
    assert plan.height - plan.dropped == size[1]
    assert (height - plan.first_row) * whole == plan.height * height


@pytest.mark.parametrize("height", [90, 720, 722, 1080])
def test_leaving_rows_out_changes_no_pixel(height):
    image = picture(80, height)
    found = to_input(image, model=model((64, 64), 0.8))
    assert (found == resize(image, width=64, height=80)[16:]).all()


def test_a_picture_that_does_not_move_is_that_of_evaluation():
    image = picture(160, 90)
    still = affine(centre=(80, 45))
    found = warped_to_input(image, still, model=model(), frame=(160, 90))
    assert (found == to_input(image, model=model())).all()


def test_a_picture_of_another_size_is_first_made_the_frames():
    image = picture(80, 45)
    still = affine(centre=(80, 45))
    found = warped_to_input(image, still, model=model(), frame=(160, 90))
    large = resize(image, width=160, height=90)
    assert (found == to_input(large, model=model())).all()


def test_moved_pictures_keep_their_colours_apart():
    image = np.zeros((90, 160, 3), np.uint8)
    image[:] = 10, 20, 30
    found = warped_to_input(
        image, affine(scale=(2, 2), centre=(80, 45)), model=model(), frame=(160, 90)
    )
    assert (found == [10, 20, 30]).all()


def test_read_only_pictures_are_taken():
    image = picture(160, 90)
    image.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert to_input(image, model=model()).shape == (32, 64, 3)


def test_nearest_takes_the_pixel_under_the_centre():
    # centres of 3 px over 5: 0.83, 2.5, 4.17
    assert nearest_sources(5, 3).tolist() == [0, 2, 4]
    assert nearest_sources(3, 5).tolist() == [0, 0, 1, 2, 2]
    expected = torch.nn.functional.interpolate(
        torch.arange(720.0)[None, None], size=400, mode="nearest-exact"
    )
    assert nearest_sources(720, 400).tolist() == expected[0, 0].long().tolist()


def test_masks_lie_over_the_pictures():
    # 3 x 3 px of the mask for each px of the input before the crop
    blocks = RANDOM.randint(0, 5, (64, 64)).astype(np.uint8)
    mask = blocks.repeat(3, 0).repeat(3, 1)
    found = mask_to_input(mask, None, model=model(), frame=(192, 192))
    assert (found == blocks[32:]).all()
    shift = affine(shift=(6, -3), centre=(96, 96))
    found = mask_to_input(mask, shift, model=model(), frame=(192, 192))
    assert (found[:-1, 2:] == blocks[33:, :-2]).all()
    assert not found[:, :2].any()


def test_a_mask_of_another_size_is_first_made_the_frames():
    blocks = RANDOM.randint(0, 5, (64, 64)).astype(np.uint8)
    shift = affine(shift=(6, -3), centre=(96, 96))
    found = mask_to_input(blocks, shift, model=model(), frame=(192, 192))
    assert (found[:-1, 2:] == blocks[33:, :-2]).all()


def test_normalised_pictures_are_planes_of_floats():
    images = torch.tensor([[[[0, 128, 255]]]], dtype=torch.uint8)
    found = normalise(images)
    assert found.shape == (1, 3, 1, 1)
    assert found.is_contiguous()
    expected = [-0.485 / 0.229, (128 / 255 - 0.456) / 0.224, (1 - 0.406) / 0.225]
    assert found.flatten().tolist() == pytest.approx(expected, abs=1e-6)
