"""A picture as the two artifact files by which MLflow's UI finds, shows and compares pictures."""

from __future__ import annotations

import io
import uuid
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

THUMBNAIL_SIDE = 256


def encoded_picture(
    key: str, picture: np.ndarray, *, step: int, time_ms: int
) -> list[tuple[bytes, str]]:
    """Return a picture as the two files by which MLflow's UI knows it.

    Args:
        key: e.g. `pictures/01`.
        picture: (H, W, 3) uint8 RGB.
        step: update count.
        time_ms: ms since 1970.

    Returns:
        Content and artifact path of the whole picture (PNG) and of the small one (WebP).

    Source: names as `MlflowClient.log_image` of MLflow 3.17 makes them, but with an id that is the
    same each time, so that sending a picture again replaces it.
    """
    from PIL import Image

    identity = uuid.uuid5(uuid.NAMESPACE_OID, f"{key} {step} {time_ms}")
    stem = f"images/{key.replace('/', '~')}+step+{step}+timestamp+{time_ms}+{identity}"
    image = Image.fromarray(picture)
    small = image.copy()
    small.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    return [
        (_encoded(image, "PNG"), f"{stem}.png"),
        (_encoded(small, "WEBP"), f"{stem}+compressed.webp"),
    ]


def _encoded(image: Any, form: str) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form)
    return buffer.getvalue()
