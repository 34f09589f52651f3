"""Our filling of torchvision's detectors against torchvision's own, weights faked."""

import pytest
import torch
from torch import nn
from torchvision.models import WeightsEnum, get_model, get_model_weights

from models.detection.build import build_detector
from models.detection.torchvision_builders import _BACKBONE_WEIGHTS, _BUILDERS
from models.weights import WeightsError
from tasks.detection.config import TorchvisionModelConfig

SMALL = ["fasterrcnn_mobilenet_v3_large_320_fpn", "ssdlite320_mobilenet_v3_large"]
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in _BUILDERS if name not in SMALL]


def config(name, **settings):
    return TorchvisionModelConfig(name=name, **settings)


def fake_download(monkeypatch, tensors):
    monkeypatch.setattr(WeightsEnum, "get_state_dict", lambda self, *_, **__: tensors)


def random_state(network):
    generator = torch.Generator().manual_seed(1)
    return {
        name: torch.rand(value.shape, generator=generator) if value.is_floating_point() else value
        for name, value in network.state_dict().items()
    }


def traits(network):
    """What of a network weights decide: trainable names, kinds and epsilons of norms."""
    norms = {
        name: (type(module), module.eps)
        for name, module in network.named_modules()
        if hasattr(module, "eps")
    }
    return {name: p.requires_grad for name, p in network.named_parameters()}, norms


@pytest.mark.parametrize(
    ("name", "layers"),
    [(name, layers) for name in SMALL for layers in (None, 0, 2)]
    + [pytest.param(*case.values, 2, marks=pytest.mark.slow) for case in SLOW],
)
def test_backbone_weights_fill_and_freeze_as_torchvision_does(name, layers, monkeypatch, tmp_path):
    enum = _BACKBONE_WEIGHTS[_BUILDERS[name].family]
    classifier = {"resnet": "resnet50", "vgg": "vgg16"}.get(
        _BUILDERS[name].family, "mobilenet_v3_large"
    )
    tensors = random_state(get_model(classifier, weights=None))
    torch.save(tensors, tmp_path / "backbone.pth")
    fake_download(monkeypatch, tensors)

    theirs = get_model(
        name,
        weights_backbone=enum.IMAGENET1K_V1,
        num_classes=4,
        trainable_backbone_layers=layers,
    )
    for weights in ("IMAGENET1K_V1", str(tmp_path / "backbone.pth")):
        ours = build_detector(
            config(name, backbone_weights=weights, trainable_backbone_layers=layers), 3
        )
        assert traits(ours) == traits(theirs)
        assert_filled(ours, theirs, from_file=tensors)


def assert_filled(ours, theirs, from_file):
    """The same entries as in torchvision's hold values of the file."""
    values = {value.sum().item() for value in from_file.values() if value.is_floating_point()}
    expected = theirs.state_dict()
    filled = {name for name, value in expected.items() if value.sum().item() in values}
    assert len(filled) > 20
    for name, value in ours.state_dict().items():
        if name in filled and name.startswith("backbone"):
            assert torch.equal(value, expected[name]), name


@pytest.mark.parametrize("name", [*SMALL, *SLOW])
def test_whole_weights_are_taken_over_as_torchvision_does(name, monkeypatch):
    tensors = random_state(get_model(name, weights=None, weights_backbone=None, num_classes=91))
    fake_download(monkeypatch, tensors)

    ours = build_detector(config(name, weights="COCO_V1", detections_per_image=100), 90)
    theirs = get_model(name, weights="COCO_V1")

    assert traits(ours) == traits(theirs)
    expected = theirs.state_dict()
    assert all(torch.equal(value, expected[key]) for key, value in ours.state_dict().items())


@pytest.mark.parametrize("name", [*SMALL, *SLOW])
def test_another_class_count_leaves_only_the_predictor_random(name, tmp_path):
    tensors = random_state(get_model(name, weights=None, weights_backbone=None, num_classes=91))
    torch.save(tensors, tmp_path / "coco.pth")

    network = build_detector(config(name, weights=str(tmp_path / "coco.pth")), 3)

    for key, value in network.state_dict().items():
        if value.is_floating_point() and value.shape == tensors[key].shape:
            assert torch.equal(value, tensors[key]), key
        elif value.shape != tensors[key].shape:
            assert key.startswith(_BUILDERS[name].predictor)


@pytest.mark.parametrize("name", [*SMALL, *SLOW])
def test_a_builder_without_weights_trains_every_layer(name):
    network = build_detector(config(name), 2)

    assert all(parameter.requires_grad for parameter in network.parameters())
    assert not any("Frozen" in type(module).__name__ for module in network.modules())


def test_a_fixed_size_detector_refuses_another_size():
    with pytest.raises(ValueError, match=r"model\.min_size: ssd300_vgg16 takes pictures of one"):
        build_detector(config("ssd300_vgg16", min_size=200), 2)


def test_settings_reach_the_detector():
    network = build_detector(
        config(SMALL[0], min_size=100, max_size=150, score_threshold=0.2, nms_threshold=0.4), 2
    )

    assert (network.transform.min_size, network.transform.max_size) == ((100,), 150)
    assert network.roi_heads.score_thresh == 0.2
    assert network.roi_heads.nms_thresh == 0.4


def test_weights_of_another_network_are_refused(tmp_path):
    torch.save(nn.Linear(2, 3).state_dict(), tmp_path / "linear.pth")

    with pytest.raises(WeightsError, match="none of its 2 entries"):
        build_detector(config(SMALL[0], weights=str(tmp_path / "linear.pth")), 2)


def test_too_many_trainable_layers_are_refused():
    with pytest.raises(ValueError, match=r"6 is more than ssd300_vgg16 has \(5\)"):
        build_detector(config("ssd300_vgg16", trainable_backbone_layers=6), 2)


def test_enum_names_are_listed_for_a_wrong_one():
    assert set(get_model_weights("retinanet_resnet50_fpn").__members__) == {"COCO_V1", "DEFAULT"}
    with pytest.raises(WeightsError, match=r"model\.weights: 'COCO_V9'.*COCO_V1"):
        build_detector(config("retinanet_resnet50_fpn", weights="COCO_V9"), 2)
