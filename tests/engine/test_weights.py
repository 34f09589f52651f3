import pytest
import torch
from safetensors.torch import save_file

from engine.weights import WeightsError, load_partial, read_weights
from tests.engine.running import ListLog, run
from tests.engine.toy_task import ToyTask


@pytest.fixture
def weights():
    return ToyTask().build_network().state_dict()


@pytest.mark.parametrize(
    "wrap",
    [
        lambda w: w,
        lambda w: {"state_dict": w, "epoch": 3},
        lambda w: {"model": w},
        lambda w: {"network": w},
        lambda w: {"model": {f"module.{name}": tensor for name, tensor in w.items()}},
        lambda w: {"deploy": "ema", "ema": w, "network": {"other": torch.zeros(1)}},
    ],
    ids=["bare", "state_dict", "model", "network", "data parallel", "own checkpoint"],
)
def test_weights_are_found_in_what_people_save(tmp_path, weights, wrap):
    torch.save(wrap(weights), tmp_path / "w.pth")
    assert read_weights(tmp_path / "w.pth").keys() == weights.keys()


def test_safetensors_are_read(tmp_path, weights):
    save_file(weights, tmp_path / "w.safetensors")
    assert torch.equal(
        read_weights(tmp_path / "w.safetensors")["head.weight"], weights["head.weight"]
    )


@pytest.mark.parametrize("name", ["w.pt", "w.safetensors"])
@pytest.mark.parametrize("content", [b"", b"not weights at all"])
def test_spoilt_files_are_said(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(WeightsError, match=name):
        read_weights(tmp_path / name)


def test_files_with_code_or_without_weights_are_refused(tmp_path):
    torch.save({"model": ToyTask()}, tmp_path / "code.pt")
    with pytest.raises(WeightsError, match="more than tensors and plain values"):
        read_weights(tmp_path / "code.pt")
    torch.save({"epoch": 3}, tmp_path / "bare.pt")
    with pytest.raises(WeightsError, match="holds no state dict"):
        read_weights(tmp_path / "bare.pt")
    with pytest.raises(WeightsError, match="no such weights file"):
        read_weights(tmp_path / "gone.pt")


def test_what_fits_is_loaded_and_the_rest_reported(weights):
    network = ToyTask().build_network()
    start = network.head.weight.detach().clone()
    given = dict(weights) | {"extra": torch.zeros(1), "body.weight": torch.zeros(8, 9)}
    del given["norm.bias"]
    report = load_partial(network, given, exclude=["head"])
    assert report.loaded == tuple(
        f"norm.{name}" if name != "body.bias" else name
        for name in ["body.bias", "num_batches_tracked", "running_mean", "running_var", "weight"]
    )
    assert report.missing == ("head.bias", "head.weight", "norm.bias")
    assert report.unexpected == ("extra", "head.bias", "head.weight")
    assert report.mismatched == ("body.weight [8, 9] for [8, 3]",)
    assert torch.equal(network.head.weight, start)
    assert torch.equal(network.body.bias, weights["body.bias"])
    assert str(report).startswith("5 tensors loaded, 3 missing (head.bias, head.weight, norm.bias)")


def test_nothing_that_fits_is_an_error():
    with pytest.raises(WeightsError, match=r"none of the 1 weights fits .* has conv, the network"):
        load_partial(ToyTask().build_network(), {"conv": torch.zeros(1)})


def test_exclusion_that_names_nothing_is_an_error(weights):
    with pytest.raises(WeightsError, match="no weight is named 'haed'"):
        load_partial(ToyTask().build_network(), weights, exclude=["haed"])


def test_fine_tuning_tells_what_was_left_out(tmp_path, weights):
    torch.save({n: t for n, t in weights.items() if n != "head.bias"}, tmp_path / "w.pt")
    log = ListLog()
    run(tmp_path / "run", log=log, epochs=1, initial_weights={"path": str(tmp_path / "w.pt")})
    name, message, step = log.events[0]
    assert (name, step) == ("initial_weights", 0)
    assert message.endswith("8 tensors loaded, 1 missing (head.bias)")
