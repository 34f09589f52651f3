"""Frames out of video files, and frames into a video that browsers play."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

logger = logging.getLogger(__name__)

VIDEO_ENDINGS = frozenset(
    {".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm", ".mpg", ".mpeg", ".wmv"}
)
# VP8 in .webm plays in every browser and in MLflow's artifact view; OpenCV's mp4v does not
CODECS = (("VP80", ".webm"), ("mp4v", ".mp4"))
FALLBACK_FPS = 25.0


class VideoError(Exception):
    """A video that cannot be read or written; one sentence."""

    exit_code = 1


@dataclass(frozen=True)
class Frame:
    """One frame.

    Args:
        index: counted from 0.
        time_s: its time in the video, s.
        picture: (H, W, 3) uint8 RGB, upright.
    """

    index: int
    time_s: float
    picture: np.ndarray


class VideoReader:
    """Walks once through a video file.

    Args:
        path: the file.

    Raises:
        VideoError: if it is no video that can be decoded.
    """

    def __init__(self, path: Path) -> None:
        import cv2

        self.path = path
        self._capture = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG)
        if not path.is_file() or not self._capture.isOpened():
            raise VideoError(f"{path}: not a video that can be decoded")
        self._check_size()
        fps = float(self._capture.get(cv2.CAP_PROP_FPS))
        self.fps = fps if 0 < fps < 1000 else FALLBACK_FPS

    def _check_size(self) -> None:
        """Refuse a video whose frames are too large, before the first one is decoded."""
        import cv2

        from readers.picture_header import check_size
        from readers.records import DatasetError

        width, height = (
            int(self._capture.get(side))
            for side in (cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT)
        )
        try:
            check_size(width, height, name=str(self.path))
        except DatasetError as error:
            raise VideoError(str(error)) from error

    def __iter__(self) -> Iterator[Frame]:
        """Yield the frames in order.

        Raises:
            VideoError: if not even the first one can be decoded.
        """
        import cv2

        index = 0
        while True:
            ok, frame_bgr = self._capture.read()
            if not ok:
                break
            time_ms = float(self._capture.get(cv2.CAP_PROP_POS_MSEC))
            # some containers keep no time stamps: they say 0 for every frame
            time_s = time_ms / 1000 if time_ms > 0 else index / self.fps
            yield Frame(index, time_s, cv2.cvtColor(frame_bgr, cv2.COLOR_BGR2RGB))
            index += 1
        self._capture.release()
        if index == 0:
            raise VideoError(f"{self.path}: holds no frame that can be decoded")


class VideoWriter:
    """Writes frames of one size into a video, whole only once closed.

    Args:
        path: the file without its ending, which depends on the codec that is there.
        fps: frames per second.
        width: px of the frames; an odd side loses its last column, since codecs need even ones.
        height: px of the frames.

    Raises:
        VideoError: if no codec is there or the file cannot be made.
    """

    def __init__(self, path: Path, *, fps: float, width: int, height: int) -> None:
        import cv2

        self.size = (max(width // 2 * 2, 2), max(height // 2 * 2, 2))
        for codec, ending in CODECS:
            self.path = path.with_name(path.name + ending)
            code = cv2.VideoWriter.fourcc(*codec)
            self._writer = cv2.VideoWriter(str(self.path), cv2.CAP_FFMPEG, code, fps, self.size)
            if self._writer.isOpened():
                break
            self.path.unlink(missing_ok=True)
            logger.warning("%s: this OpenCV cannot write %s", self.path, codec)
        else:
            raise VideoError(f"{path}: this OpenCV writes neither VP8 nor MPEG-4 video")

    def write(self, picture: np.ndarray) -> None:
        """Append a frame, (H, W, 3) uint8 RGB; another size is fitted to the first one's."""
        import cv2
        import numpy as np

        width, height = self.size
        if picture.shape[0] // 2 * 2 != height or picture.shape[1] // 2 * 2 != width:
            picture = cv2.resize(picture, self.size, interpolation=cv2.INTER_AREA)
        frame_bgr = cv2.cvtColor(picture[:height, :width], cv2.COLOR_RGB2BGR)
        self._writer.write(np.ascontiguousarray(frame_bgr))

    def __enter__(self) -> VideoWriter:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Finish the file."""
        self._writer.release()
