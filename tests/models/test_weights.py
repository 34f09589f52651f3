from urllib.error import URLError

import pytest
import torch
from torch import nn
from torchvision.models import ResNet18_Weights, WeightsEnum, mobilenet_v2, resnet18

from models.weights import (
    WeightsError,
    compare,
    load_backbone,
    load_strictly,
    read_state_dict,
    resolve_weights,
)


def small_network():
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))


@pytest.mark.parametrize(
    "text", ["IMAGENET1K_V1", "DEFAULT", "ResNet18_Weights.IMAGENET1K_V1"], ids=str
)
def test_an_enum_is_known_by_its_members_with_and_without_its_name(text):
    assert resolve_weights(text, ResNet18_Weights, key="w") is ResNet18_Weights.IMAGENET1K_V1


def test_none_is_no_weights():
    assert resolve_weights("none", ResNet18_Weights, key="w") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("IMAGENET1K_V3", r"w: 'IMAGENET1K_V3' is unknown.*\(IMAGENET1K_V1, DEFAULT\)"),
        ("weights/absent", "w: there is no file weights/absent"),
        ("absent.pth", "w: there is no file absent.pth"),
    ],
)
def test_wrong_weights_are_told_with_the_right_ones(text, message):
    with pytest.raises(WeightsError, match=message):
        resolve_weights(text, ResNet18_Weights, key="w")


@pytest.mark.parametrize(
    "wrap",
    [
        lambda tensors: tensors,
        lambda tensors: {"state_dict": tensors, "epoch": 3},
        lambda tensors: {"model": {f"module.{name}": v for name, v in tensors.items()}},
        lambda tensors: {"network": {}, "ema": tensors, "deploy": "ema"},
    ],
    ids=["bare", "state_dict", "model-ddp", "ours"],
)
def test_a_state_dict_is_found_in_each_kind_of_checkpoint(wrap, tmp_path):
    tensors = small_network().state_dict()
    torch.save(wrap(tensors), tmp_path / "w.pth")

    found = read_state_dict(tmp_path / "w.pth")

    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)


def test_a_file_that_holds_code_is_refused(tmp_path):
    torch.save(small_network(), tmp_path / "pickled.pth")

    with pytest.raises(WeightsError, match=r"pickled\.pth: cannot be read as a file of tensors"):
        read_state_dict(tmp_path / "pickled.pth")


@pytest.mark.parametrize("content", [b"", b"not a torch file"], ids=["empty", "text"])
def test_a_broken_file_is_refused(content, tmp_path):
    (tmp_path / "w.pth").write_bytes(content)

    with pytest.raises(WeightsError, match=r"w\.pth: cannot be read"):
        read_state_dict(tmp_path / "w.pth")


def test_a_file_without_tensors_is_refused(tmp_path):
    torch.save({"epoch": 3}, tmp_path / "w.pth")

    with pytest.raises(WeightsError, match="holds no tensors by name"):
        read_state_dict(tmp_path / "w.pth")


def test_an_enum_that_cannot_be_fetched_says_where_its_file_goes(monkeypatch, tmp_path):
    def refuse(*_, **__):
        raise URLError("no route to host")

    monkeypatch.setattr(WeightsEnum, "get_state_dict", refuse)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    place = tmp_path / "hub" / "checkpoints" / "resnet18-f37072fd.pth"
    with pytest.raises(WeightsError, match=f"no route to host.*put the file at {place}"):
        read_state_dict(ResNet18_Weights.IMAGENET1K_V1)


def test_a_backbone_file_may_lack_the_classifier(tmp_path):
    tensors = {
        name: torch.rand_like(value) if value.is_floating_point() else value
        for name, value in mobilenet_v2(weights=None).state_dict().items()
        if not name.startswith("classifier.")
    }
    torch.save(tensors, tmp_path / "features.pth")
    network = mobilenet_v2(weights=None)

    fit = load_backbone(network, tmp_path / "features.pth")

    assert list(fit.missing) == ["classifier.1.bias", "classifier.1.weight"]
    assert torch.equal(network.features[0][0].weight, tensors["features.0.0.weight"])


def test_a_classifier_of_another_class_count_is_left_out(tmp_path, caplog):
    torch.save(resnet18(weights=None, num_classes=7).state_dict(), tmp_path / "seven.pth")

    with caplog.at_level("INFO"):
        fit = load_backbone(resnet18(weights=None), tmp_path / "seven.pth")

    assert list(fit.mismatched) == ["fc.bias", "fc.weight"]
    assert "left out: fc.bias, fc.weight" in caplog.text
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_a_predictor_that_is_left_out_is_told_without_asking_for_logs(caplog):
    network = small_network()
    tensors = {name: value.clone() for name, value in network.state_dict().items()}
    last = list(tensors)[-1]
    tensors[last] = torch.zeros(3, 3, 3)
    load_strictly(network, tensors, free=[last], source="coco.pth")
    (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert f"left out: {last}" in record.getMessage()


def test_a_hole_in_the_weights_is_refused_and_nothing_is_loaded():
    network = small_network()
    before = network[0].weight.clone()
    tensors = {"0.weight": torch.zeros(3, 2), "1.weight": torch.zeros(3)}

    with pytest.raises(WeightsError, match=r"2 entries do, but 0\.bias, 1\.bias, "):
        load_strictly(network, tensors, free=[], source="w")
    assert torch.equal(network[0].weight, before)


def test_weights_of_which_nothing_fits_are_refused_even_where_all_is_free():
    with pytest.raises(WeightsError, match=r"none of its 1 entries \(first: x\)"):
        load_strictly(small_network(), {"x": torch.zeros(1)}, free=[""], source="w")


def test_a_comparison_names_what_does_not_fit():
    tensors = {"0.weight": torch.zeros(3, 2), "0.bias": torch.zeros(4), "extra": torch.zeros(1)}

    fit = compare(small_network(), tensors)

    assert list(fit.loaded) == ["0.weight"]
    assert list(fit.mismatched) == ["0.bias"]
    assert list(fit.unexpected) == ["extra"]
    assert list(fit.missing) == ["1.bias", "1.running_mean", "1.running_var", "1.weight"]
