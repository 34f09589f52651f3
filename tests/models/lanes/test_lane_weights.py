import pytest
import torch
from torchvision.models import WeightsEnum, resnet18, resnet34

from models.lanes.build import build_lane_network
from models.weights import WeightsError
from tasks.lanes.config import AuxConfig
from tests.models.lanes.sections import backbone, section


def saved(network, path, wrap=dict):
    torch.save(wrap(network.state_dict()), path)
    return str(path)


def as_reference(tensors):
    """A checkpoint of the reference, trained on several GPUs."""
    return {
        "model": {f"module.{name}": value for name, value in tensors.items()},
        "optimizer": {"state": {}, "param_groups": []},
    }


def assert_same(network, other):
    own, theirs = network.state_dict(), other.state_dict()
    assert [name for name in own if not torch.equal(own[name], theirs[name])] == []


@pytest.mark.parametrize(
    "wrap",
    [as_reference, lambda tensors: {"model": tensors}, dict],
    ids=["reference-ddp", "reference", "bare"],
)
def test_a_reference_s_checkpoint_fills_the_whole_network(wrap, tmp_path):
    trained = build_lane_network(section(norm=True))

    path = saved(trained, tmp_path / "model_best.pth", wrap)

    assert_same(build_lane_network(section(norm=True, weights=path)), trained)


def test_auxiliary_weights_are_dropped_where_there_is_no_such_head(tmp_path):
    trained = build_lane_network(section(aux=AuxConfig()))
    path = saved(trained, tmp_path / "ep012.pth", as_reference)

    network = build_lane_network(section(weights=path))

    assert_same(network, trained)
    assert_same(build_lane_network(section(aux=AuxConfig(), weights=path)), trained)


def test_an_auxiliary_head_may_start_anew_and_it_is_told(tmp_path, caplog):
    path = saved(build_lane_network(section()), tmp_path / "published.pth")

    with caplog.at_level("INFO"):
        network = build_lane_network(section(aux=AuxConfig(), weights=path))

    assert network.seg_head is not None
    assert "published.pth: has no auxiliary head; it starts anew" in caplog.text


@pytest.mark.parametrize(
    ("trained", "asked", "message"),
    [
        ({"norm": True}, {}, r"holds entries that the network has not \(cls\.0\.bias"),
        ({}, {"norm": True}, r"cls\.0\.bias, cls\.0\.weight not"),
        (
            {"head": "group_instance"},
            {},
            r"entries that the network has not .* see that model\.head",
        ),
        ({"lanes": 4}, {}, r"cls\.3\.bias, cls\.3\.weight not \(missing or of another shape\)"),
        ({"input": (128, 64)}, {}, r"cls\.1\.weight not"),
    ],
    ids=["left-over", "missing", "head", "lanes", "input"],
)
def test_weights_of_another_configuration_are_refused(trained, asked, message, tmp_path):
    path = saved(build_lane_network(section(**trained)), tmp_path / "w.pth")

    with pytest.raises(WeightsError, match=message):
        build_lane_network(section(**asked, weights=path))


def test_a_backbone_takes_torchvision_s_weights(monkeypatch):
    tensors = resnet18(weights=None).state_dict()
    monkeypatch.setattr(WeightsEnum, "get_state_dict", lambda self, *_, **__: tensors)

    chosen = backbone("resnet18", weights="ResNet18_Weights.IMAGENET1K_V1")
    network = build_lane_network(section(chosen))

    own = network.model.state_dict()
    assert all(torch.equal(value, tensors[name]) for name, value in own.items())
    assert len(own) == len(tensors) - 2  # without the classifier


def test_a_backbone_takes_a_file_of_a_classifier_or_of_a_lane_network(tmp_path):
    trained = build_lane_network(section(backbone("resnet18"), lanes=2))
    path = saved(trained, tmp_path / "two_lanes.pth", as_reference)
    network = build_lane_network(section(backbone("resnet18", weights=path)))
    assert_same(network.model, trained.model)

    classifier = resnet18(weights=None, num_classes=7)
    path = saved(classifier, tmp_path / "seven_classes.pth")
    network = build_lane_network(section(backbone("resnet18", weights=path)))
    assert_same(network.model, classifier)


def test_a_backbone_s_weights_are_not_looked_for_where_all_is_loaded(tmp_path):
    trained = build_lane_network(section(backbone("resnet18")))
    path = saved(trained, tmp_path / "w.pth")

    chosen = backbone("resnet18", weights=str(tmp_path / "absent.pth"))
    network = build_lane_network(section(chosen, weights=path))

    assert_same(network, trained)


def test_resnet_34_s_weights_fill_all_but_the_attention(tmp_path):
    plain = resnet34(weights=None)
    path = saved(plain, tmp_path / "resnet34.pth")

    network = build_lane_network(section(backbone("resnet34fca", weights=path)))

    expected, own = plain.state_dict(), network.model.state_dict()
    assert all(torch.equal(own[name], expected[name]) for name in expected if name in own)
    assert all(".att." in name for name in own if name not in expected)


def test_another_resnet_s_weights_are_refused(tmp_path):
    path = saved(resnet18(weights=None), tmp_path / "resnet18.pth")

    with pytest.raises(WeightsError, match=r"does not fit the network"):
        build_lane_network(section(backbone("resnet34", weights=path)))
