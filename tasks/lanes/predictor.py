"""A lane network as it is deployed: from pictures to lanes in px of the given picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, get_args

import numpy as np
import torch
from torch import nn

from models.lanes.build import build_lane_network
from models.lanes.ufldv2 import without_segmentation
from tasks.config import kept_defects
from tasks.lanes.config import DecodeConfig, LaneCompat, UfldModelConfig
from tasks.lanes.decoding import DecodedLane
from tasks.lanes.formats import culane_text, curvelanes_json, tusimple_lanes, tusimple_line
from tasks.lanes.predictions import LaneReader, predict_lanes
from tasks.predictor import Predictor, give_weights, without_starting_weights

TUSIMPLE_ROWS = np.arange(160, 711, 10)
TUSIMPLE_HEIGHT = 720


def build_predictor(
    state: Mapping[str, torch.Tensor],
    experiment: Mapping[str, Any],
    classes: Mapping[str, Any],
    *,
    device: torch.device,
) -> LanePredictor:
    """Return the predictor of a lane experiment; see `tasks.predictor.PredictorBuilder`."""
    section = {**without_starting_weights(experiment["model"]), "aux": None}
    reader = LaneReader(
        model=UfldModelConfig.model_validate(section),
        decode=DecodeConfig.model_validate(experiment.get("decode", {})),
        frame=tuple(experiment["data"]["frame"]),
        compat=kept_defects(experiment.get("compat", ()), get_args(LaneCompat)),
    )
    network = build_lane_network(reader.model)
    give_weights(network, without_segmentation(state))
    metric = experiment.get("evaluate", {}).get("metric", {}).get("name", "f1")
    return LanePredictor(network, reader, metric=metric, device=device)


class LanePredictor(Predictor):
    """Finds lanes.

    Args:
        network: a lane network that holds its weights.
        reader: how lanes are read off its output.
        metric: what the experiment is scored by; with `tusimple`, answers also come in its form.
        device: where the network runs.
    """

    unit = "lanes"
    columns = ("slot", "kind", "score", "point", "x", "y")

    def __init__(
        self, network: nn.Module, reader: LaneReader, *, metric: str, device: torch.device
    ) -> None:
        self.network = network.to(device).eval()
        self.reader = reader
        self.metric = metric
        self.device = device

    def predict(
        self, pictures: Sequence[np.ndarray], *, score_threshold: float
    ) -> list[dict[str, Any]]:
        """Find the lanes of a batch of pictures.

        Args:
            pictures: each (H, W, 3) uint8 RGB, upright, of the frame's aspect.
            score_threshold: lowest score that is reported, in [0, 1]: the mean probability with
                which a lane crosses the anchors that it was read from. It is above 0.5; which
                lanes there are is up to the section `decode`.

        Returns:
            Per picture `width`, `height` and `lanes` in order of their slots: `slot` (from 0),
            `kind` (`row`, `column` or `pooled`: what it was read from), `score` and `points`
            ([x, y], px of the given picture).
        """
        found = predict_lanes(self.network, pictures, reader=self.reader, device=self.device)
        return [
            self._answer([lane for lane in lanes if lane.score >= score_threshold], picture)
            for lanes, picture in zip(found, pictures, strict=True)
        ]

    def rows(self, answer: Mapping[str, Any]) -> list[list[Any]]:
        """Return one row per point of a lane."""
        return [
            [lane["slot"], lane["kind"], round(lane["score"], 5), number, x, y]
            for lane in answer["lanes"]
            for number, (x, y) in enumerate(lane["points"])
        ]

    def draw(self, picture: np.ndarray, answer: Mapping[str, Any]) -> np.ndarray:
        """Return a copy of the picture with the lanes in their slots' colours, and their scores."""
        from tasks.lanes.drawing import draw_lanes

        found = answer["lanes"]
        return draw_lanes(
            picture,
            _points_of(answer),
            [lane["slot"] for lane in found],
            texts=[f"{lane['score']:.2f}" for lane in found],
        )

    def files(self, item: str, answer: Mapping[str, Any]) -> Mapping[str, str]:
        """Return the lanes as CULane's text, `lines/<picture>.lines.txt`, px of the picture.

        Pooled lanes also come as CurveLanes has its labels, `lines/<picture>.lines.json`.
        """
        path, lanes = PurePosixPath("lines", item), _points_of(answer)
        texts = {str(path.with_suffix(".lines.txt")): culane_text(lanes)}
        if self.reader.decode.mode == "pooled":
            texts[str(path.with_suffix(".lines.json"))] = curvelanes_json(lanes)
        return texts

    def lines(self, item: str, answer: Mapping[str, Any]) -> Mapping[str, str]:
        """Return a line of TuSimple's `tusimple.json` if the experiment is scored by its metric.

        The rows are TuSimple's own, scaled to the picture's height.
        """
        if self.metric != "tusimple":
            return {}
        size = (int(answer["width"]), int(answer["height"]))
        h_samples = np.rint(TUSIMPLE_ROWS * size[1] / TUSIMPLE_HEIGHT).astype(np.int64)
        decoded = [
            DecodedLane(lane["slot"], lane["kind"], points, lane["score"])
            for lane, points in zip(answer["lanes"], _points_of(answer), strict=True)
        ]
        lanes = tusimple_lanes(decoded, h_samples=h_samples, frame=size)
        return {"tusimple.json": tusimple_line(item, lanes, h_samples=h_samples.tolist())}

    def _answer(self, lanes: Sequence[DecodedLane], picture: np.ndarray) -> dict[str, Any]:
        height, width = picture.shape[:2]
        factor = np.array([width, height]) / self.reader.frame
        ordered = sorted(lanes, key=lambda lane: lane.slot)
        return {
            "lanes": [
                {
                    "slot": int(lane.slot),
                    "kind": lane.kind,
                    "score": round(float(lane.score), 6),
                    "points": np.round(lane.points * factor, 3).tolist(),
                }
                for lane in ordered
            ],
            "width": int(width),
            "height": int(height),
        }


def _points_of(answer: Mapping[str, Any]) -> list[np.ndarray]:
    """Return the lanes' points, each (P, 2) float64, px of the picture."""
    return [np.asarray(lane["points"], np.float64).reshape(-1, 2) for lane in answer["lanes"]]
