"""What each policy of `train.guard` does about updates that go wrong."""

import math

import pytest
import torch

from engine.config import SkipGuardConfig
from engine.contract import Losses
from engine.faults import Patience
from engine.guard import TrainingDiverged
from tests.engine.running import ListLog, assert_same, last_state, run
from tests.engine.toy_task import ToyTask

NAN, INF = math.nan, math.inf


class FlawedTask(ToyTask):
    """Its loss or gradient is bad at chosen calls (or always, from one on)."""

    def __init__(self, calls=(), *, loss=NAN, gradient=None, bad_tensors=None, when=None):
        super().__init__()
        self.bad, self.loss, self.gradient = set(calls), loss, gradient
        self.bad_tensors, self.when, self.calls = bad_tensors, when, 0
        self.draws = []

    def train_batches(self, request):
        self.draws.append((request.draws.restarts, request.epoch, request.start))
        return super().train_batches(request)

    def losses(self, network, batch):
        term = super().losses(network, batch).terms["square"]
        is_bad = self.calls in self.bad or (self.when is not None and self.when(self))
        self.calls += 1
        if is_bad and self.bad_tensors is not None:
            for parameter in list(network.parameters())[: self.bad_tensors]:
                parameter.register_hook(spoil_once())
            return Losses({"square": term})
        return Losses({"square": term * self.loss if is_bad else term})


def spoil_once():
    """A hook that makes the first entry of the next gradient NaN."""
    left = [1]

    def spoil(gradient):
        if not left:
            return gradient
        left.clear()
        gradient = gradient.clone()
        gradient.view(-1)[0] = NAN
        return gradient

    return spoil


def guard(policy, **more):
    return {"policy": policy, **more}


def names(log):
    return [name for name, _, _ in log.events]


@pytest.mark.parametrize("loss", [NAN, INF])
def test_skip_leaves_the_update_out_and_goes_on(tmp_path, loss):
    log = ListLog()
    task = FlawedTask([2], loss=loss)
    options = {"checkpoint": {"every_updates": 1, "keep": 99}, "guard": guard("skip")}
    result = run(tmp_path, task=task, log=log, epochs=1, **options)
    assert result.updates == 6
    before, after = (state_at(tmp_path, update)["network"] for update in (2, 3))
    assert_same(after, before)  # batch statistics included
    assert names(log) == ["left_out"]
    assert "update 2 (epoch 0, iteration 2) left out: square not finite" in log.events[0][1]
    assert "point-" in log.events[0][1]
    assert log.events[0][2] == 3


def state_at(folder, update):
    (path,) = folder.glob(f"update-{update:08d}-*")
    return torch.load(path, weights_only=True)


def test_skipped_updates_count_in_the_learning_rate(tmp_path):
    """The rate is a function of the update count, skipped ones included."""
    log = ListLog()
    options = {"schedule": {"name": "linear", "per": "update"}, "log_every": 1}
    run(tmp_path, task=FlawedTask([1]), log=log, epochs=1, guard=guard("skip"), **options)
    rates = [rate for _, rate in log.curve("lr/base")]
    assert rates == pytest.approx([0.01 * (1 - k / 5) for k in range(6)])


def test_a_budget_is_counted_in_windows():
    patience = Patience(SkipGuardConfig(policy="skip", window=10, skips=2, failures=1))
    assert all(patience.bears(update) for update in (0, 9, 10, 11))
    assert patience.bears(12)  # the third of its window: one failure
    assert patience.bears(13)  # a window fails once
    assert not all(patience.bears(update) for update in (20, 21, 22))
    assert (patience.left_out, patience.failures) == (9, 2)


def test_a_burst_counts_wherever_in_a_window_it_falls():
    for first in range(5):
        patience = Patience(SkipGuardConfig(policy="skip", window=10, skips=2))
        assert [patience.bears(first + k) for k in range(3)] == [True, True, False]


def test_an_exhausted_budget_ends_the_run_with_the_budget_named(tmp_path):
    log = ListLog()
    with pytest.raises(TrainingDiverged) as caught:
        run(
            tmp_path,
            task=FlawedTask(range(2, 99)),
            log=log,
            guard=guard("skip", window=6, skips=1),
        )
    assert caught.value.update == 3
    assert "more than 1 updates left out within 6, more than 0 times" in str(caught.value)
    assert names(log) == ["left_out", "left_out", "diverged"]


def test_a_loss_above_the_limit_counts_as_not_finite(tmp_path):
    log = ListLog()
    task = FlawedTask([1], loss=1e9)
    run(tmp_path, task=task, log=log, epochs=1, guard=guard("skip", largest_loss=1e4))
    assert "above train.guard.largest_loss (10000)" in log.events[0][1]


@pytest.mark.parametrize(("bad", "event"), [(1, "mended"), (2, "left_out")])
def test_zero_few_mends_few_tensors_and_leaves_more_out(tmp_path, bad, event):
    log = ListLog()
    task = FlawedTask([1], bad_tensors=bad)
    options = {
        "checkpoint": {"every_updates": 1, "keep": 99},
        "optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0},
    }
    run(tmp_path, task=task, log=log, epochs=1, guard=guard("zero_few", tensors=1), **options)
    assert names(log) == [event]
    before, after = (state_at(tmp_path, update)["network"] for update in (1, 2))
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert ("head.weight" in moved) == (event == "mended")
    # of the mended tensor only the bad entry stood still
    first = before["body.weight"] != after["body.weight"]
    assert not first.view(-1)[0]
    assert first.any() == (event == "mended")
    assert all(torch.isfinite(value).all() for value in after.values())


def test_rollback_goes_back_to_the_checkpoint_with_lower_rates(tmp_path):
    log = ListLog()
    task = FlawedTask([8, 9])
    options = guard("rollback", window=6, skips=1, lr_factor=0.5)
    result = run(tmp_path, task=task, log=log, epochs=3, log_every=1, guard=options)
    assert result.epochs == 3
    assert names(log) == ["left_out", "left_out", "rolled_back"]
    message, step = log.events[-1][1:]
    assert step == 6  # the end of the first epoch
    assert "back to update 6 with learning rates times 0.5 (1 of 3)" in message
    rates = dict(log.curve("lr/base"))
    assert (rates[6], rates[18]) == (0.01, 0.005)
    state = last_state(tmp_path)
    assert (state["steps_back"], state["lr_scale"], state["patience"]["left_out"]) == (1, 0.5, 2)


def test_a_step_back_in_the_first_epoch_leads_to_the_untrained_network(tmp_path):
    log = ListLog()
    options = {"guard": guard("restart_new_seed", skips=0), "evaluate_first": False}
    run(tmp_path / "flawed", task=FlawedTask([2]), log=log, epochs=1, **options)
    assert names(log) == ["left_out", "restarted"]
    assert log.events[-1][2] == 0
    assert "back to update 0 with random draws number 1 (1 of 3)" in log.events[-1][1]


def test_a_restart_draws_anew_from_the_newest_checkpoint(tmp_path):
    task = FlawedTask([8])
    run(tmp_path, task=task, epochs=2, guard=guard("restart_new_seed", skips=0))
    assert task.draws == [(0, 0, 0), (0, 1, 0), (1, 1, 0)]
    assert last_state(tmp_path)["restarts"] == 1


@pytest.mark.parametrize(
    ("policy", "most"), [("rollback", {"rollbacks": 2}), ("restart_new_seed", {"restarts": 2})]
)
def test_steps_back_are_bounded(tmp_path, policy, most):
    log = ListLog()
    with pytest.raises(TrainingDiverged):
        run(
            tmp_path,
            task=FlawedTask(range(8, 999)),
            log=log,
            guard=guard(policy, skips=0, **most),
        )
    assert names(log).count("rolled_back") + names(log).count("restarted") == 2
    assert names(log)[-1] == "diverged"


def test_a_run_resumed_after_a_step_back_goes_on_as_if_unbroken(tmp_path):
    class Stopped(FlawedTask):
        def prepare_batch(self, batch, *, update, draws):
            if self.calls == 12:
                raise KeyboardInterrupt
            return batch

    options = {"epochs": 3, "guard": guard("rollback", skips=0)}
    run(tmp_path / "whole", task=FlawedTask([8]), **options)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "broken", task=Stopped([8]), **options)
    resumed = FlawedTask()
    run(tmp_path / "broken", task=resumed, resume=last_state(tmp_path / "broken"), **options)
    whole, broken = last_state(tmp_path / "whole"), last_state(tmp_path / "broken")
    for part in ("network", "optimizer", "patience", "lr_scale", "steps_back"):
        assert_same(whole[part], broken[part])
