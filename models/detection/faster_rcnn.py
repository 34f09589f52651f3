"""Faster R-CNN over a backbone with a feature pyramid, every part sized by the configuration."""

from __future__ import annotations

from typing import Any

from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
from torchvision.ops import MultiScaleRoIAlign

from models.detection.pyramid import build_pyramid
from models.weights import load_strictly, read_state_dict, resolve_weights

_ROI_SAMPLING = 2  # points per side of a RoIAlign cell, torchvision's


def build_faster_rcnn(model: Any, num_classes: int) -> FasterRCNN:
    """Return the network a `FasterRcnnConfig` describes.

    Args:
        model: an object with the fields of `tasks.detection.config.FasterRcnnConfig`.
        num_classes: classes without background. Where the weights have another count, the class
            predictor starts from random values and the rest is loaded.

    Raises:
        WeightsError: if weights are unknown, cannot be read, or do not fit.
        ValueError: if the backbone has no features of a level's stride.

    Source: Ren et al., Faster R-CNN (NeurIPS 2015); Lin et al., Feature Pyramid Networks (CVPR
    2017); torchvision's implementation. Each pyramid level has anchors of one size.
    """
    backbone = build_pyramid(model.backbone, strides=model.fpn_levels, channels=model.fpn_channels)
    # the pooled level serves the region proposals only, as in torchvision
    levels = [str(k) for k in range(len(model.fpn_levels))]
    roi_pool = MultiScaleRoIAlign(levels, output_size=model.roi_size, sampling_ratio=_ROI_SAMPLING)
    head = TwoMLPHead(model.fpn_channels * model.roi_size**2, model.head_width)
    network = FasterRCNN(
        backbone,
        min_size=model.min_size,
        max_size=model.max_size,
        rpn_anchor_generator=AnchorGenerator(
            sizes=tuple((size,) for size in model.anchor_sizes),
            aspect_ratios=(tuple(model.anchor_ratios),) * len(model.anchor_sizes),
        ),
        rpn_pre_nms_top_n_train=model.rpn_candidates[0],
        rpn_pre_nms_top_n_test=model.rpn_candidates[1],
        rpn_post_nms_top_n_train=model.rpn_proposals[0],
        rpn_post_nms_top_n_test=model.rpn_proposals[1],
        rpn_batch_size_per_image=model.rpn_samples,
        box_roi_pool=roi_pool,
        box_head=head,
        box_batch_size_per_image=model.roi_samples,
        box_score_thresh=model.score_threshold,
        box_nms_thresh=model.nms_threshold,
        box_detections_per_img=model.detections_per_image,
        box_predictor=FastRCNNPredictor(model.head_width, num_classes + 1),
    )
    weights = resolve_weights(model.weights, None, key="model.weights")
    if weights is not None:
        tensors = read_state_dict(weights)
        load_strictly(network, tensors, free=["roi_heads.box_predictor."], source=str(weights))
    return network
