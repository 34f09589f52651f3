import pytest
import torch

from engine.checkpoint import CheckpointStore
from engine.contract import Evaluation
from engine.interrupt import Interrupted
from tests.engine.running import ListLog, assert_same, last_state, run
from tests.engine.toy_task import ToyTask

FULL = {
    "epochs": 3,
    "optimizer": {"name": "adamw", "lr": 0.01, "groups": [{"prefix": "head", "lr_factor": 2.0}]},
    "schedule": {"name": "cosine"},
    "warmup": {"name": "linear", "updates": 5},
    "ema": {"decay": 0.9, "ramp": 4},
    "freeze": [{"prefix": "body", "until_epoch": 1}],
    "clip_norm": 1.0,
    "log_every": 4,
}


def test_two_epochs_are_one_and_a_resumed_one(tmp_path):
    whole, first, second = ListLog(), ListLog(), ListLog()
    run(tmp_path / "whole", log=whole, epochs=2)
    run(tmp_path / "parts", log=first, epochs=1)
    run(tmp_path / "parts", log=second, epochs=2, resume=last_state(tmp_path / "parts"))
    assert_same(last_state(tmp_path / "whole"), last_state(tmp_path / "parts"))


class FlatTask(ToyTask):
    """Its first score stays the best."""

    def evaluate(self, network, split, *, device, detail):
        evaluation = super().evaluate(network, split, device=device, detail=detail)
        return Evaluation({**evaluation.scores, "flat": 0.0}, headline="flat")


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_resume_after_any_update_equals_an_unbroken_run(tmp_path, accumulate, optimizer):
    config = FULL | {"accumulate": accumulate}
    config["optimizer"] = FULL["optimizer"] | {"name": optimizer}
    whole = ListLog()
    checkpoint = {"every_updates": 1, "keep": 100}
    task = FlatTask()
    run(tmp_path / "whole", task=task, log=whole, checkpoint=checkpoint, **config)
    final = last_state(tmp_path / "whole")
    files = sorted((tmp_path / "whole").glob("update-*"))
    assert len(files) == 18 // accumulate
    for path in files:
        store, log = CheckpointStore(tmp_path / "whole"), ListLog()
        start = store.load(path)
        if start["best_update"] is not None:
            CheckpointStore(tmp_path / path.stem).adopt_best(store.best_path())
        run(tmp_path / path.stem, task=task, log=log, resume=start, checkpoint=checkpoint, **config)
        if start["update"] < final["update"]:
            assert_same(final, last_state(tmp_path / path.stem), where=path.name)
        assert log.untimed() == whole.untimed(after=start["update"])


@pytest.mark.parametrize("moment", ["evaluate", "data"])
def test_interrupted_run_resumes_where_it_was(tmp_path, moment):
    class StoppedTask(ToyTask):
        calls = 0

        def stop_at(self, call):
            StoppedTask.calls += 1
            if StoppedTask.calls == call:
                raise Interrupted("SIGTERM")

        def evaluate(self, network, split, *, device, detail):
            if moment == "evaluate":
                self.stop_at(2)  # at the end of the first epoch
            return super().evaluate(network, split, device=device, detail=detail)

        def train_batches(self, request):
            for batch in super().train_batches(request):
                if moment == "data":
                    self.stop_at(9)
                yield batch

    whole, before, after = ListLog(), ListLog(), ListLog()
    run(tmp_path / "whole", log=whole)
    with pytest.raises(Interrupted):
        run(tmp_path / "parts", task=StoppedTask(), log=before)
    update = {"evaluate": 6, "data": 8}[moment]
    assert before.events == [("interrupted", "interrupted by SIGTERM; checkpoint saved", update)]
    run(tmp_path / "parts", log=after, resume=last_state(tmp_path / "parts"))
    assert_same(last_state(tmp_path / "whole"), last_state(tmp_path / "parts"))
    assert before.untimed() + after.untimed() == whole.untimed()


def test_resumed_rate_is_not_the_first_one(tmp_path):
    schedule = {"name": "step", "step_size": 1, "gamma": 0.1}
    run(tmp_path, epochs=1, schedule=schedule)
    log = ListLog()
    run(tmp_path, log=log, epochs=2, schedule=schedule, resume=last_state(tmp_path))
    assert log.curve("lr/base")[0][1] == pytest.approx(0.001)


def test_configured_rate_wins_over_the_checkpoint_s(tmp_path):
    run(tmp_path, epochs=1)
    log = ListLog()
    optimizer = {"name": "sgd", "lr": 0.5e-3}
    run(tmp_path, log=log, epochs=2, optimizer=optimizer, resume=last_state(tmp_path))
    assert log.curve("lr/base")[0][1] == pytest.approx(0.5e-3)


def test_another_experiment_s_checkpoint_is_told(tmp_path):
    run(tmp_path, epochs=1, config_digest="aaaa")
    log = ListLog()
    run(tmp_path, log=log, epochs=2, resume=last_state(tmp_path), config_digest="bbbb")
    name, message, step = log.events[0]
    assert (name, step) == ("config_changed", 6)
    assert "aaaa" in message
    assert "bbbb" in message


def test_other_groups_are_refused(tmp_path):
    run(tmp_path, epochs=1)
    optimizer = {"name": "sgd", "lr": 0.01, "groups": [{"prefix": "head"}]}
    message = r"groups are base \(6 tensors\), this experiment's are base \(4 tensors\), head \(2"
    with pytest.raises(ValueError, match=message):
        run(tmp_path, epochs=2, optimizer=optimizer, resume=last_state(tmp_path))


def test_another_kind_of_optimizer_is_refused(tmp_path):
    run(tmp_path, epochs=1)
    adam = {"name": "adam", "lr": 0.01}
    with pytest.raises(ValueError, match="of another kind of optimizer than Adam; start from"):
        run(tmp_path, epochs=2, optimizer=adam, resume=last_state(tmp_path))


def test_another_headline_has_a_best_score_of_its_own(tmp_path):
    run(tmp_path, task=FlatTask(), epochs=1)
    result = run(tmp_path, epochs=2, resume=last_state(tmp_path))
    assert result.headline == "fit"
    assert result.best_score < 0  # 0 was the other score's
    assert result.best_path.name.startswith("best-00000012-")


def test_another_network_is_refused(tmp_path):
    run(tmp_path, epochs=1)
    state = last_state(tmp_path)
    state["network"]["head.weight"] = torch.zeros(2, 8)
    with pytest.raises(ValueError, match=r"another network: size mismatch for head.weight"):
        run(tmp_path, epochs=2, resume=state)


def test_other_data_is_refused(tmp_path):
    run(tmp_path / "whole", epochs=1, checkpoint={"every_updates": 5, "keep": 9})
    path = next((tmp_path / "whole").glob("update-00000005-*"))
    state = CheckpointStore(tmp_path).load(path)
    with pytest.raises(ValueError, match="at batch 5 of epoch 0, which has 3 batches"):
        run(tmp_path / "new", task=ToyTask(size=12), epochs=1, resume=state)


def test_best_state_of_the_earlier_run_is_taken_over(tmp_path):
    run(tmp_path / "old", task=FlatTask(), epochs=2)
    old, new = CheckpointStore(tmp_path / "old"), CheckpointStore(tmp_path / "new")
    new.adopt_best(old.best_path())
    result = run(tmp_path / "new", task=FlatTask(), epochs=3, resume=old.newest())
    assert (result.best_score, result.best_path.name) == (0.0, old.best_path().name)
    assert old.best_update() == 6


def test_lost_best_state_is_told_and_the_next_one_counts(tmp_path):
    run(tmp_path / "old", task=FlatTask(), epochs=2)
    log, state = ListLog(), last_state(tmp_path / "old")
    result = run(tmp_path / "new", task=FlatTask(), log=log, epochs=3, resume=state)
    assert [name for name, _, _ in log.events] == ["best_missing"]
    assert result.best_path.name.startswith("best-00000018-")


def test_best_state_that_was_written_but_not_yet_marked_is_marked(tmp_path):
    run(tmp_path, task=FlatTask(), epochs=1)
    store = CheckpointStore(tmp_path)
    store.best_path().unlink()
    run(tmp_path, task=FlatTask(), epochs=2, resume=store.newest())
    assert store.best_update() == 6


def test_finished_run_resumes_to_nothing(tmp_path):
    run(tmp_path, epochs=1)
    log = ListLog()
    result = run(tmp_path, log=log, epochs=1, resume=last_state(tmp_path))
    assert (result.updates, log.points) == (6, [])


def test_finished_run_leaves_its_state_in_a_new_folder(tmp_path):
    nan = float("nan")

    class UnscoredTask(ToyTask):
        def evaluate(self, network, split, *, device, detail):
            return Evaluation({"score": nan}, headline="score")

    run(tmp_path / "old", task=UnscoredTask(), epochs=1)
    state = last_state(tmp_path / "old")
    result = run(tmp_path / "new", task=UnscoredTask(), epochs=1, resume=state)
    assert_same(CheckpointStore(tmp_path / "new").load(result.last_path), state)


def test_resume_needs_no_initial_weights(tmp_path):
    run(tmp_path, epochs=1)
    gone = {"path": str(tmp_path / "gone.pt")}
    assert run(tmp_path, epochs=2, initial_weights=gone, resume=last_state(tmp_path)).epochs == 2
