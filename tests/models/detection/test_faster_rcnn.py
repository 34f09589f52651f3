import pytest
import torch
from torch import nn
from torchvision.models import mobilenet_v2, resnet18
from torchvision.ops import FrozenBatchNorm2d

from models.detection.build import build_detector
from tasks.detection.config import FasterRcnnConfig
from tests.shared import shared_data


def config(backbone, **settings):
    defaults = {
        "fpn_channels": 32,
        "fpn_levels": (8, 16, 32),
        "anchor_sizes": (24, 35, 51, 80),
        "anchor_ratios": (1.0,),
        "roi_size": 5,
        "head_width": 48,
        "rpn_samples": 64,
        "roi_samples": 64,
        "rpn_candidates": (300, 300),
        "rpn_proposals": (100, 50),
        "min_size": 160,
        "max_size": 160,
    }
    return FasterRcnnConfig(name="fasterrcnn", backbone=backbone, **(defaults | settings))


def slim(**settings):
    return config({"name": "slim_resnet"}, **settings)


def batch():
    pictures = [torch.rand(3, 160, 160), torch.rand(3, 160, 160)]
    targets = [
        {"boxes": torch.tensor([[20.0, 30, 70, 90]]), "labels": torch.tensor([2])},
        {"boxes": torch.zeros(0, 4), "labels": torch.zeros(0, dtype=torch.int64)},
    ]
    return pictures, targets


def save_random(network, path):
    torch.save(network.state_dict(), path)
    return str(path)


def test_the_embedded_network_has_the_promised_size():
    network = build_detector(slim(fpn_channels=64, head_width=192), 4)

    assert sum(p.numel() for p in network.parameters()) == pytest.approx(1.75e6, rel=0.01)


def test_every_parameter_gets_a_gradient_and_empty_targets_are_legal():
    network = build_detector(slim(), 4)

    losses = network(*batch())
    sum(losses.values()).backward()

    assert set(losses) == {
        "loss_classifier", "loss_box_reg", "loss_objectness", "loss_rpn_box_reg"
    }  # fmt: skip
    assert all(p.grad is not None for p in network.parameters())


def test_detections_are_in_pixels_of_the_picture_given():
    network = build_detector(slim(score_threshold=0.0, detections_per_image=20), 4).eval()

    with torch.no_grad():
        small, large = network([torch.rand(3, 160, 160), torch.rand(3, 320, 240)])

    assert 0 < len(small["boxes"]) <= 20
    assert large["boxes"][:, 3].max() <= 320
    assert large["boxes"][:, 2].max() <= 240
    assert set(large["labels"].tolist()) <= {1, 2, 3, 4}


def test_a_picture_of_the_networks_size_is_not_resampled():
    network = build_detector(slim(), 4)
    picture = torch.rand(3, 160, 160)

    resized, _ = network.transform.resize(picture, None)

    assert torch.equal(resized, picture)


def test_a_picture_is_scaled_to_fit_both_sides():
    network = build_detector(slim(min_size=240, max_size=320), 4)

    resized, _ = network.transform.resize(torch.rand(3, 480, 640), None)

    assert resized.shape == (3, 240, 320)


def test_settings_reach_the_network():
    network = build_detector(slim(score_threshold=0.1, nms_threshold=0.4), 4).eval()

    assert network.rpn._pre_nms_top_n == {"training": 300, "testing": 300}
    assert network.rpn._post_nms_top_n == {"training": 100, "testing": 50}
    assert network.rpn.fg_bg_sampler.batch_size_per_image == 64
    assert network.roi_heads.fg_bg_sampler.batch_size_per_image == 64
    assert network.roi_heads.score_thresh == 0.1
    assert network.roi_heads.nms_thresh == 0.4
    assert network.roi_heads.box_roi_pool.output_size == (5, 5)


@pytest.mark.parametrize(
    ("name", "layers", "channels"),
    [
        ("mobilenet_v2", ["6", "13", "17"], [32, 96, 320]),
        ("mobilenet_v3_small", ["3", "8", "11"], [24, 48, 96]),
        ("mobilenet_v3_large", ["6", "12", "15"], [40, 112, 160]),
        ("resnet18", ["layer2", "layer3", "layer4"], [128, 256, 512]),
        ("resnet50", ["layer2", "layer3", "layer4"], [512, 1024, 2048]),
    ],
)
def test_pyramid_levels_are_the_last_block_of_their_stride(name, layers, channels):
    network = build_detector(config({"name": name}), 2)

    assert list(network.backbone.body.return_layers) == layers
    widths = [block[0].in_channels for block in network.backbone.fpn.inner_blocks]
    assert widths == channels
    with torch.no_grad():
        features = network.backbone(torch.rand(2, 3, 64, 96))
    assert [tuple(level.shape[2:]) for level in features.values()] == [
        (8, 12), (4, 6), (2, 3), (1, 2)
    ]  # fmt: skip


def test_a_stride_the_backbone_lacks_is_refused():
    with pytest.raises(ValueError, match=r"no features of stride 64; it has 2, 4, 8, 16, 32"):
        build_detector(slim(fpn_levels=(16, 32, 64)), 2)


def test_a_backbone_without_weights_trains_whole_with_batch_norm():
    network = build_detector(config({"name": "mobilenet_v2", "trainable_layers": 2}), 2)

    assert all(p.requires_grad for p in network.parameters())
    assert not any(isinstance(m, FrozenBatchNorm2d) for m in network.modules())


def test_a_pretrained_mobilenet_trains_its_last_stages_with_frozen_norms(tmp_path):
    path = save_random(mobilenet_v2(weights=None), tmp_path / "w.pth")

    network = build_detector(
        config({"name": "mobilenet_v2", "weights": path, "trainable_layers": 4}), 2
    )

    body = network.backbone.body
    trained = {name.split(".")[0] for name, p in body.named_parameters() if p.requires_grad}
    assert trained == {str(index) for index in range(4, 18)}
    assert not any(isinstance(m, nn.BatchNorm2d) for m in network.modules())


def test_a_pretrained_resnet_trains_its_last_layers(tmp_path):
    path = save_random(resnet18(weights=None), tmp_path / "w.pth")

    network = build_detector(
        config({"name": "resnet18", "weights": path, "trainable_layers": 2}), 2
    )

    body = network.backbone.body
    trained = {name.split(".")[0] for name, p in body.named_parameters() if p.requires_grad}
    assert trained == {"layer3", "layer4"}


def test_all_layers_of_a_pretrained_resnet_may_train(tmp_path):
    path = save_random(resnet18(weights=None), tmp_path / "w.pth")

    network = build_detector(
        config({"name": "resnet18", "weights": path, "trainable_layers": 5}), 2
    )

    assert all(p.requires_grad for p in network.parameters())


def test_weights_of_a_whole_detector_are_loaded_but_for_another_class_count(tmp_path):
    first = build_detector(slim(), 4)
    path = save_random(first, tmp_path / "detector.pth")

    second = build_detector(slim(weights=path), 7)

    old, new = first.state_dict(), second.state_dict()
    differing = {name for name in new if not torch.equal(new[name], old[name])}
    assert {name.rpartition(".")[0] for name in differing} == {
        "roi_heads.box_predictor.cls_score", "roi_heads.box_predictor.bbox_pred"
    }  # fmt: skip


def test_real_mobilenet_features_are_loaded():
    folder = shared_data("weights/mobilenetv2_imagenet")
    path = folder / "mobilenet_v2_features_torchvision_names.pth"

    network = build_detector(config({"name": "mobilenet_v2", "weights": str(path)}), 2)

    stem = torch.load(path, weights_only=True)["features.0.0.weight"]
    assert torch.equal(network.backbone.body["0"][0].weight, stem)
