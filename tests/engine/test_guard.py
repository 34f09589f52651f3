import pytest
import torch

from engine.contract import Losses
from engine.guard import BatchTrace, FiniteGuard, TrainingDiverged, UpdateTrace
from tests.engine.running import ListLog, assert_same, last_state, run
from tests.engine.toy_task import ToyTask

NAN, INF = float("nan"), float("inf")


class SpoiltTask(ToyTask):
    """One batch of one epoch has a bad loss term, or a bad gradient of a good one."""

    def __init__(self, *, call, loss=1.0, gradient=1.0):
        super().__init__()
        self.call, self.loss, self.gradient, self.calls = call, loss, gradient, 0

    def losses(self, network, batch):
        square = super().losses(network, batch).terms["square"]
        is_bad = self.calls == self.call
        self.calls += 1
        if not is_bad:
            return Losses({"square": square, "other": 0.1 * square})
        square.register_hook(lambda gradient: gradient * self.gradient)
        return Losses({"square": square, "other": 0.1 * square * self.loss})


@pytest.mark.parametrize("call", [0, 4, 8], ids=["first update", "mid-epoch", "second epoch"])
@pytest.mark.parametrize(
    "bad", [{"loss": NAN}, {"loss": INF}, {"gradient": NAN}, {"gradient": INF}]
)
def test_first_bad_update_ends_the_run(tmp_path, call, bad):
    log = ListLog()
    with pytest.raises(TrainingDiverged) as caught:
        run(tmp_path, task=SpoiltTask(call=call, **bad), log=log, evaluate_first=False)
    diverged = caught.value
    assert (diverged.epoch, diverged.iteration) == divmod(call, 6)
    assert (diverged.update, diverged.seed, diverged.exit_code) == (call, 1, 4)
    assert len(diverged.ids) == 4
    assert all(name.startswith("point-") for name in diverged.ids)
    assert set(diverged.terms) == {"square", "other"}
    assert str(diverged).count("\n") == 0
    assert ("other not finite" if "loss" in bad else "gradient's norm") in str(diverged)
    assert log.events == [("diverged", str(diverged), call + 1)]
    assert log.curve("guard/nonfinite") == [(call + 1, 1.0)]


def test_checkpoint_before_the_bad_update_stays(tmp_path):
    checkpoint = {"every_updates": 1, "keep": 9}
    run(tmp_path / "good", task=SpoiltTask(call=-1), checkpoint=checkpoint, epochs=1)
    bad = SpoiltTask(call=4, gradient=NAN)
    with pytest.raises(TrainingDiverged):
        run(tmp_path / "bad", task=bad, checkpoint=checkpoint, epochs=1)
    state = last_state(tmp_path / "bad")
    assert state["update"] == 4
    before = next((tmp_path / "good").glob("update-00000004-*"))
    assert_same(state["network"], torch.load(before, weights_only=True)["network"])


def test_bad_batch_of_an_accumulated_update_is_the_one_named(tmp_path):
    with pytest.raises(TrainingDiverged) as caught:
        run(tmp_path, task=SpoiltTask(call=4, loss=NAN), accumulate=3, evaluate_first=False)
    assert (caught.value.update, caught.value.iteration) == (1, 4)
    assert len(caught.value.ids) == 4


def test_bad_gradient_names_all_samples_of_its_update(tmp_path):
    with pytest.raises(TrainingDiverged) as caught:
        run(tmp_path, task=SpoiltTask(call=4, gradient=NAN), accumulate=3, evaluate_first=False)
    assert (caught.value.update, caught.value.iteration) == (1, 3)
    assert len(caught.value.ids) == 12


def trace(update, *, loss=1.0, norm=1.0):
    values = torch.tensor([loss, loss])
    batch = BatchTrace(iteration=update, ids=[f"s{update}"], names=("loss_box",), values=values)
    return UpdateTrace(epoch=0, update=update, batches=[batch], norm=torch.tensor(norm))


def test_late_reading_names_the_first_of_several():
    guard = FiniteGuard(seed=0, scales_loss=False)
    for update, loss in enumerate([1.0, 2.0, INF, NAN]):
        guard.add(trace(update, loss=loss))
    with pytest.raises(TrainingDiverged, match=r"iteration 2 \(update 2, seed 0\).*samples: s2$"):
        guard.read()


def test_reading_empties_the_guard():
    guard = FiniteGuard(seed=0, scales_loss=False)
    guard.add(trace(0, loss=3.0, norm=2.0))
    (reading,) = guard.read()
    assert reading.terms == [{"loss_box": 3.0, "loss": 3.0}]
    assert reading.norm == 2.0
    assert guard.read() == []


def test_scaler_s_skips_are_its_business_until_they_never_end():
    guard = FiniteGuard(seed=0, scales_loss=True)
    for update in range(50):
        guard.add(trace(update, norm=INF))
    assert all(reading.is_skipped for reading in guard.read())
    guard.add(trace(50, norm=INF))
    with pytest.raises(TrainingDiverged, match="in 51 updates running"):
        guard.read()


def test_long_lists_of_samples_are_cut_in_the_message_only():
    ids = [f"s{number}" for number in range(20)]
    diverged = TrainingDiverged(
        "x", epoch=0, iteration=0, update=0, seed=0, terms={"a": 1.0}, ids=ids
    )
    assert str(diverged).endswith("s15 and 4 more")
    assert diverged.ids == ids
