"""A detector as it is deployed: from pictures to boxes with names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from models.detection.build import build_detector
from tasks.detection.config import read_model_section
from tasks.detection.predictions import predict
from tasks.predictor import Predictor, give_weights, without_starting_weights


def build_predictor(
    state: Mapping[str, torch.Tensor],
    experiment: Mapping[str, Any],
    classes: Mapping[str, Any],
    *,
    device: torch.device,
) -> DetectionPredictor:
    """Return the predictor of a detection experiment; see `tasks.predictor.PredictorBuilder`."""
    model = read_model_section(without_starting_weights(experiment["model"]))
    network = build_detector(model, num_classes=len(classes["names"]))
    give_weights(network, state)
    return DetectionPredictor(
        network, class_names=classes["names"], class_ids=classes["ids"], device=device
    )


class DetectionPredictor(Predictor):
    """Finds boxes.

    Args:
        network: a detector that holds its weights.
        class_names: label -> name, labels from 0.
        class_ids: label -> id in the training set's own files.
        device: where the network runs.
    """

    unit = "boxes"
    columns = ("label", "label_id", "score", "x1", "y1", "x2", "y2")

    def __init__(
        self,
        network: nn.Module,
        *,
        class_names: Sequence[str],
        class_ids: Sequence[int],
        device: torch.device,
    ) -> None:
        self.network = network.to(device).eval()
        self.class_names = tuple(class_names)
        self.class_ids = tuple(class_ids)
        self.device = device

    def predict(
        self, pictures: Sequence[np.ndarray], *, score_threshold: float
    ) -> list[dict[str, Any]]:
        """Find the boxes of a batch of pictures.

        Args:
            pictures: each (H, W, 3) uint8 RGB, upright.
            score_threshold: lowest score that is reported, in [0, 1]; below the model's own
                `score_threshold` it has no effect.

        Returns:
            Per picture `boxes` ([x1, y1, x2, y2], px, end exclusive), `scores`, `labels` (names),
            `label_ids` (ids in the training set's files), best score first, `width` and `height`.
        """
        found = predict(self.network, pictures, device=self.device, score_threshold=score_threshold)
        return [
            self._answer(boxes, picture) for boxes, picture in zip(found, pictures, strict=True)
        ]

    def rows(self, answer: Mapping[str, Any]) -> list[list[Any]]:
        """Return one row per box."""
        boxes = zip(
            answer["labels"], answer["label_ids"], answer["scores"], answer["boxes"], strict=True
        )
        return [
            [label, label_id, round(score, 5), *(round(side, 2) for side in box)]
            for label, label_id, score, box in boxes
        ]

    def draw(self, picture: np.ndarray, answer: Mapping[str, Any]) -> np.ndarray:
        """Return a copy of the picture with the boxes, their names and scores."""
        from tasks.detection.drawing import draw_boxes

        texts = [
            f"{name} {score:.2f}"
            for name, score in zip(answer["labels"], answer["scores"], strict=True)
        ]
        labels = [self.class_ids.index(class_id) for class_id in answer["label_ids"]]
        boxes_xyxy = np.asarray(answer["boxes"], dtype=np.float64).reshape(-1, 4)
        return draw_boxes(picture, boxes_xyxy, labels, texts)

    def _answer(self, found: Mapping[str, Any], picture: np.ndarray) -> dict[str, Any]:
        labels = [int(label) for label in found["labels"]]
        return {
            "boxes": [[round(float(x), 3) for x in box] for box in found["boxes_xyxy"]],
            "scores": [round(float(score), 6) for score in found["scores"]],
            "labels": [self.class_names[label] for label in labels],
            "label_ids": [int(self.class_ids[label]) for label in labels],
            "width": int(picture.shape[1]),
            "height": int(picture.shape[0]),
        }
