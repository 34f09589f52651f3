"""Pictures on sheets and in files."""

from __future__ import annotations

import cv2
import numpy as np

from tasks.marks import GROUND
from tasks.sheets import contact_sheet, encode_png, worst_files


def test_contact_sheet_takes_unequal_pictures():
    pictures = [np.full((h, w, 3), 200, np.uint8) for h, w in ((10, 400), (300, 20), (5, 5))]
    sheet = contact_sheet(pictures, columns=2, side=100)
    assert sheet.shape == (200, 200, 3)
    assert sheet[150, 150].tolist() == list(GROUND)


def test_png_holds_the_picture():
    image = np.random.RandomState(0).randint(0, 256, (5, 7, 3)).astype(np.uint8)
    decoded = cv2.imdecode(np.frombuffer(encode_png(image), np.uint8), cv2.IMREAD_COLOR)
    assert np.array_equal(decoded[..., ::-1], image)


def test_png_holds_a_grey_picture():
    image = np.arange(35, dtype=np.uint8).reshape(5, 7)
    decoded = cv2.imdecode(np.frombuffer(encode_png(image), np.uint8), cv2.IMREAD_UNCHANGED)
    assert np.array_equal(decoded, image)


def test_worst_pictures_are_on_one_sheet_and_alone():
    pictures = [np.full((10, 20, 3), value, np.uint8) for value in (10, 20)]
    assert list(worst_files(pictures)) == ["worst.png", "worst/01.png", "worst/02.png"]
    assert worst_files([]) == {}


def test_rows_of_a_sheet_are_as_high_as_their_pictures():
    wide, tall = np.full((10, 96, 3), 200, np.uint8), np.full((96, 10, 3), 200, np.uint8)
    assert contact_sheet([wide, wide, tall], columns=2, side=100).shape == (14 + 100, 200, 3)
