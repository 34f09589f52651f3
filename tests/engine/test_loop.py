import itertools

import pytest
import torch

from engine.contract import Evaluation, Losses
from tests.engine.running import ListLog, last_state, run
from tests.engine.toy_task import ToyTask


class ScoredTask(ToyTask):
    """Gets the scores it is told, in turn."""

    def __init__(self, *scores: float) -> None:
        super().__init__()
        self.scores = itertools.chain(scores, itertools.repeat(scores[-1]))

    def evaluate(self, network, split, *, device, detail):
        assert split == "val"
        assert not network.training
        return Evaluation({"score": next(self.scores)}, headline="score")


def test_loss_falls(tmp_path):
    log = ListLog()
    # statistics of four points at a time are too rough for a line
    freeze = [{"prefix": "norm", "norm_only": True}]
    run(tmp_path, log=log, epochs=20, log_every=30, freeze=freeze)
    losses = [value for _, value in log.curve("train/loss")]
    assert losses[-1] < 0.1 * losses[0]
    assert log.curve("val/fit")[-1][1] > -0.1


def test_points_of_a_window(tmp_path):
    log = ListLog()
    run(tmp_path, log=log, epochs=1, log_every=2, evaluate_first=False)
    step, values = log.points[0]
    assert step == 2
    assert set(values) == {
        "train/loss", "train/square", "train/within", "grad/norm", "lr/base", "time/data_s",
        "time/step_s", "time/images_per_s", "memory/peak_gib", "progress/epoch",
    }  # fmt: skip
    assert values["progress/epoch"] == pytest.approx(2 / 6)
    assert [step for step, _ in log.curve("train/loss")] == [2, 4, 6]


def test_window_is_the_mean_over_its_batches(tmp_path):
    each, pair = ListLog(), ListLog()
    run(tmp_path / "each", log=each, epochs=1, log_every=1)
    run(tmp_path / "pair", log=pair, epochs=1, log_every=2)
    single = [value for _, value in each.curve("train/loss")]
    assert pair.curve("train/loss")[0][1] == pytest.approx((single[0] + single[1]) / 2)


def test_last_window_is_logged_though_it_is_short(tmp_path):
    log = ListLog()
    run(tmp_path, log=log, epochs=1, log_every=4)
    assert [step for step, _ in log.curve("train/loss")] == [4, 6]


def test_scores_and_pictures_begin_with_the_untrained_network(tmp_path):
    log = ListLog()
    run(tmp_path, log=log, epochs=2)
    assert [step for step, _ in log.curve("val/fit")] == [0, 6, 12]
    assert log.shown == [(0, ["pictures/01"]), (6, ["pictures/01"]), (12, ["pictures/01"])]


def test_last_epoch_is_always_scored(tmp_path):
    log = ListLog()
    run(tmp_path, log=log, epochs=5, evaluate_every=2, evaluate_first=False)
    assert [step for step, _ in log.curve("val/fit")] == [12, 24, 30]


def test_best_checkpoint_is_the_best_score_s(tmp_path):
    log = ListLog()
    result = run(tmp_path, task=ScoredTask(0.9, 0.1, 0.5, 0.3), log=log, epochs=3)
    # 0.9 belongs to the untrained network
    assert result.best_score == 0.5
    assert result.best_path.name.startswith("best-00000012-")
    assert result.last_path.name.startswith("update-00000018-")
    assert log.curve("val/best_score") == [(6, 0.1), (12, 0.5), (18, 0.5)]
    assert [kind for _, kind in log.files].count("best") == 2


def test_undefined_score_is_never_the_best(tmp_path):
    nan = float("nan")
    result = run(tmp_path, task=ScoredTask(nan, nan, 0.2, nan), epochs=3)
    assert result.best_score == 0.2
    assert run(tmp_path / "none", task=ScoredTask(nan), epochs=1).best_path is None


def test_early_stopping_counts_evaluations_without_a_better_score(tmp_path):
    log = ListLog()
    task = ScoredTask(0.0, 0.5, 0.505, 0.4, 0.6)
    stopping = {"patience": 2, "min_change": 0.01}
    result = run(tmp_path, task=task, log=log, epochs=9, early_stopping=stopping)
    assert (result.epochs, result.stopped_early) == (3, True)
    assert result.best_score == 0.505
    assert [name for name, _, _ in log.events] == ["early_stop"]
    assert log.curve("train/loss")[-1][0] == 18


def test_checkpoints_that_stay(tmp_path):
    run(tmp_path, epochs=5, checkpoint={"keep": 2, "keep_every_epochs": 2, "every_updates": 4})
    names = sorted(path.name.rsplit("-", 1)[0] for path in tmp_path.iterdir())
    assert [name for name in names if not name.startswith("best")] == [
        "epoch-0001", "epoch-0003", "update-00000028", "update-00000030",
    ]  # fmt: skip


def test_epochs_without_score_are_written_as_configured(tmp_path):
    log = ListLog()
    checkpoint = {"every_epochs": 2}
    run(tmp_path, log=log, epochs=5, evaluate_every=5, checkpoint=checkpoint)
    updates = [name.split("-")[1] for name, kind in log.files if kind == "last"]
    assert updates == ["00000012", "00000024", "00000030", "00000030"]


def test_averaged_weights_are_scored_and_deployed(tmp_path):
    run(tmp_path, epochs=1, ema={"decay": 0.5})
    state = last_state(tmp_path)
    assert state["deploy"] == "ema"
    assert not torch.equal(state["ema"]["head.weight"], state["network"]["head.weight"])


def test_unknown_parts_are_named_before_anything_runs(tmp_path):
    with pytest.raises(ValueError, match=r"train.freeze: no part .* 'boby'; nearest: body"):
        run(tmp_path, freeze=[{"prefix": "boby"}])


def test_fewer_samples_than_a_batch_is_said(tmp_path):
    with pytest.raises(ValueError, match="fewer samples than one batch of 4"):
        run(tmp_path, task=ToyTask(size=3))


def test_broken_promise_of_batches_is_found(tmp_path):
    task = ToyTask()
    task.num_batches = lambda epoch: 7
    task.train_batches = lambda request: iter(list(ToyTask().train_batches(request))[:5])
    with pytest.raises(RuntimeError, match="ended after 5 batches, the task promised 7"):
        run(tmp_path, task=task)


def test_progress_tells_every_update(tmp_path):
    log = ListLog()
    run(tmp_path, log=log, epochs=2)
    assert [state.update for state in log.states] == list(range(1, 13))
    assert (log.states[-1].epoch, log.states[-1].iteration) == (1, 6)
    assert log.states[-1].num_updates == 12
    assert "train/loss" in log.states[-1].values


def test_warmup_cap_is_the_reference_s(tmp_path):
    log = ListLog()
    warmup = {"name": "linear", "updates": 1000, "start_factor": 0.001}
    run(tmp_path, log=log, epochs=1, log_every=1, warmup=warmup, compat=["warmup_cap"])
    rates = [value for _, value in log.curve("lr/base")]
    # six batches: W = 5, so the last one is the first at full rate
    assert rates == pytest.approx(
        [0.01 * (0.001 * (1 - x) + x) for x in (0, 0.2, 0.4, 0.6, 0.8, 1)]
    )


def test_measures_become_curves_beside_the_losses_and_join_no_sum(tmp_path):
    class Measured(ToyTask):
        def losses(self, network, batch):
            terms = super().losses(network, batch).terms
            return Losses(
                terms, measures={"half": torch.tensor(0.5), "undefined": torch.nan * torch.ones(())}
            )

    log = ListLog()
    run(tmp_path, task=Measured(), log=log, epochs=1)
    assert {value for _, value in log.curve("train/half")} == {0.5}
    assert log.curve("train/loss") == log.curve("train/square")
    assert log.curve("train/undefined") == []


def test_a_measure_may_not_share_a_curve_with_a_term():
    value = torch.zeros(())
    with pytest.raises(ValueError, match="square: a term and a measure of one name"):
        Losses({"square": value}, measures={"square": value})


def test_progress_shows_losses_and_no_measures(tmp_path):
    log = ListLog()
    run(tmp_path, log=log, epochs=1, log_every=2)
    shown = log.states[-1].values
    assert "train/square" in shown
    assert "train/within" not in shown
