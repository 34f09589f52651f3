import copy

import numpy as np
import pytest
import torch

from engine.config import FreezeConfig
from engine.contract import Batch, Draws, EpochRequest, Evaluation, Losses
from engine.freezing import Freezing
from engine.state import build_state
from engine.updater import Updater
from tests.engine.running import CPU, ListLog, assert_same, last_state, run, train_config
from tests.engine.toy_task import ToyTask


class PlainTask(ToyTask):
    """Without batch statistics and dropout, so that halves of a batch add up to it."""

    def build_network(self):
        return torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


class ScaledTask(PlainTask):
    """Its loss is `scale` times larger."""

    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def losses(self, network, batch):
        terms = super().losses(network, batch).terms
        return Losses({name: self.scale * term for name, term in terms.items()})


def weights(folder):
    return last_state(folder)["network"]


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_accumulated_halves_are_one_whole(tmp_path, optimizer):
    config = {"epochs": 2, "optimizer": {"name": optimizer, "lr": 0.01}}
    run(tmp_path / "whole", task=PlainTask(batch_size=8), **config)
    run(tmp_path / "halves", task=PlainTask(batch_size=4), accumulate=2, **config)
    for name, value in weights(tmp_path / "whole").items():
        torch.testing.assert_close(weights(tmp_path / "halves")[name], value, rtol=0, atol=1e-6)


def test_leftover_batches_make_an_update_at_the_epoch_s_end(tmp_path):
    log = ListLog()
    result = run(tmp_path, log=log, accumulate=4, epochs=2)  # 6 batches: 4 and 2
    assert result.updates == 4
    assert [(s.update, s.iteration) for s in log.states] == [(1, 4), (2, 6), (3, 4), (4, 6)]


def one_update(task, *, scaler=None, **changes):
    """One update of the first batch: weights before and after, and what was measured."""
    torch.manual_seed(0)
    config = train_config(**changes)
    state, _ = build_state(task, config, draws=Draws(1), device=CPU, config_digest="")
    if scaler is not None:
        state.scaler = scaler
    before = copy.deepcopy(state.network.state_dict())
    updater = Updater(task, config, state=state, device=CPU)
    request = EpochRequest(epoch=0, start=0, rank=0, world_size=1, workers=0, draws=Draws(1))
    trace = updater.step([next(iter(task.train_batches(request)))], lr_factor=1.0)
    after = state.network.state_dict()
    moved = torch.cat([(after[name] - before[name]).flatten() for name in before])
    return moved, trace


PLAIN_SGD = {"name": "sgd", "lr": 1.0, "momentum": 0.0}


def test_norm_is_clipped_and_logged_as_it_was():
    moved, trace = one_update(ScaledTask(100.0), optimizer=PLAIN_SGD, clip_norm=0.5)
    assert trace.norm > 10
    assert moved.norm().item() == pytest.approx(0.5, rel=1e-4)


def test_value_is_clipped_before_norm():
    moved, _ = one_update(ScaledTask(1e4), optimizer=PLAIN_SGD, clip_value=0.01)
    assert moved.abs().max().item() == pytest.approx(0.01)
    moved, _ = one_update(ScaledTask(1e4), optimizer=PLAIN_SGD, clip_value=0.01, clip_norm=0.02)
    assert moved.norm().item() == pytest.approx(0.02, rel=1e-4)
    assert moved.abs().max().item() < 0.01


def test_gradient_is_unscaled_before_it_is_clipped():
    plain, _ = one_update(PlainTask(), optimizer=PLAIN_SGD, clip_norm=1e6)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    scaled, trace = one_update(PlainTask(), scaler=scaler, optimizer=PLAIN_SGD, clip_norm=1e6)
    # clipped while 65536 times too large, the step would be 2**16 times shorter
    torch.testing.assert_close(scaled, plain)
    assert trace.norm < 1e3


def test_scaler_leaves_out_an_update_that_overflows():
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    optimizer = PLAIN_SGD | {"momentum": 0.9}
    moved, _ = one_update(ScaledTask(1e35), scaler=scaler, optimizer=optimizer)
    assert moved.abs().max() == 0
    assert scaler.get_scale() == 2.0**15


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nonfinite_update_changes_no_weight(optimizer, bad):
    moved, trace = one_update(ScaledTask(bad), optimizer={"name": optimizer, "lr": 0.1})
    assert moved.abs().max() == 0
    assert not torch.isfinite(trace.norm)


def test_optimizer_without_fused_kernel_is_guarded_too(monkeypatch):
    monkeypatch.setattr("engine.optimizers.supports_fused", lambda parameters: False)
    assert one_update(ScaledTask(float("nan")), optimizer=PLAIN_SGD)[0].abs().max() == 0
    assert one_update(PlainTask(), optimizer=PLAIN_SGD)[0].abs().max() > 0


def test_bf16_trains_in_bf16_and_keeps_weights_in_fp32(tmp_path):
    seen = []

    class Spy(PlainTask):
        def losses(self, network, batch):
            seen.append(network(batch.inputs[0]).dtype)
            return super().losses(network, batch)

    run(tmp_path, task=Spy(), epochs=1, precision="bf16")
    assert set(seen) == {torch.bfloat16}
    assert weights(tmp_path)["0.weight"].dtype == torch.float32


def test_fp16_needs_cuda(tmp_path):
    with pytest.raises(ValueError, match="fp16 needs a CUDA device"):
        run(tmp_path, precision="fp16")


def test_frozen_part_does_not_move_and_its_statistics_stay(tmp_path):
    start = ToyTask().build_network().state_dict()
    torch.save(start, tmp_path / "start.pt")
    run(
        tmp_path / "run",
        epochs=2,
        initial_weights={"path": str(tmp_path / "start.pt")},
        freeze=[{"prefix": "body"}, {"prefix": "norm"}],
        optimizer={"name": "sgd", "lr": 0.01, "weight_decay": 0.1},
    )
    state = weights(tmp_path / "run")
    for name in start:
        assert torch.equal(state[name], start[name]) == (not name.startswith("head")), name


def test_part_trains_from_its_epoch_on(tmp_path):
    checkpoint = {"keep_every_epochs": 1}
    run(tmp_path, epochs=3, freeze=[{"prefix": "body", "until_epoch": 2}], checkpoint=checkpoint)
    body = [
        torch.load(path, weights_only=True)["network"]["body.weight"]
        for path in sorted(tmp_path.glob("epoch-*"))
    ]
    assert torch.equal(body[0], body[1])
    assert not torch.equal(body[1], body[2])


def test_part_stops_training_at_its_epoch_momentum_and_all(tmp_path):
    run(
        tmp_path,
        epochs=3,
        freeze=[{"prefix": "body", "from_epoch": 2}, {"prefix": "norm", "from_epoch": 2}],
        checkpoint={"keep_every_epochs": 1},
        optimizer={"name": "sgd", "lr": 0.01, "momentum": 0.9, "weight_decay": 0.1},
    )
    paths = sorted(tmp_path.glob("epoch-*"))
    first, second, third = (torch.load(p, weights_only=True)["network"] for p in paths)
    for name in first:
        assert not torch.equal(first[name], second[name]), name
        assert torch.equal(second[name], third[name]) == (not name.startswith("head")), name


def test_norm_only_trains_weights_on_fixed_statistics():
    network = ToyTask().build_network().eval()
    Freezing(network, [FreezeConfig(prefix="norm", norm_only=True)]).apply(0)
    assert network.training
    assert not network.norm.training
    assert network.norm.weight.requires_grad


def test_what_the_network_froze_stays_frozen():
    network = ToyTask().build_network()
    network.body.weight.requires_grad_(False)
    freezing = Freezing(network, [FreezeConfig(prefix="body", until_epoch=1)])
    freezing.apply(0)
    assert freezing.apply(1)
    assert not network.body.weight.requires_grad
    assert network.body.bias.requires_grad


def test_freezing_all_is_refused(tmp_path):
    freeze = [{"prefix": name} for name in ("body", "norm", "head")]
    with pytest.raises(ValueError, match="nothing is left to train in epoch 0"):
        run(tmp_path, freeze=freeze)


def test_channels_last_reaches_weights_and_pictures(tmp_path):
    layouts = []

    class PictureTask(ToyTask):
        def build_network(self):
            return torch.nn.Conv2d(4, 4, 3)

        def train_batches(self, request):
            for index in range(self.num_batches(0)):
                yield Batch({"pictures": torch.ones(2, 4, 5, 5)}, [str(index)])

        def losses(self, network, batch):
            layouts.append(
                batch.inputs["pictures"].is_contiguous(memory_format=torch.channels_last)
            )
            layouts.append(network.weight.is_contiguous(memory_format=torch.channels_last))
            return Losses({"sum": network(batch.inputs["pictures"]).mean()})

        def evaluate(self, network, split, *, device, detail):
            return Evaluation({"score": 0.0}, headline="score")

    run(tmp_path, task=PictureTask(), epochs=1, channels_last=True)
    assert all(layouts)


def test_restart_draws_differently(tmp_path):
    run(tmp_path, epochs=1, checkpoint={"every_updates": 1, "keep": 9})
    path = next(tmp_path.glob("update-00000001-*"))
    state = torch.load(path, weights_only=True)
    same, other = tmp_path / "same", tmp_path / "other"
    run(same, epochs=1, resume=state)
    run(other, epochs=1, resume=state | {"restarts": 1})
    assert_same(weights(same), weights(tmp_path))
    assert not torch.equal(weights(other)["head.weight"], weights(same)["head.weight"])


@pytest.mark.slow
def test_compiled_network_keeps_the_names_of_its_weights(tmp_path):
    try:
        torch.compile(lambda x: x + 1)(torch.zeros(1))
    except Exception as error:
        pytest.skip(f"no working compiler: {error}")
    run(tmp_path / "compiled", task=PlainTask(), epochs=1, compile=True)
    run(tmp_path / "eager", task=PlainTask(), epochs=1)
    for name, value in weights(tmp_path / "eager").items():
        np.testing.assert_allclose(weights(tmp_path / "compiled")[name], value, atol=1e-5)
