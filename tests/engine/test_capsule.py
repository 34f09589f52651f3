"""What is kept of an update that went wrong."""

import errno
import json
import math

import pytest
import torch

from engine.capsule import (
    SUMMARY_ENTRIES,
    CapsuleError,
    CapsuleStore,
    batches_of,
    load_capsule,
    plain,
)
from engine.contract import Batch
from engine.guard import TrainingDiverged
from tests.engine.running import ListLog, assert_same, last_state, run
from tests.engine.test_policies import FlawedTask


def diverge(folder, *, task=None, log=None, **changes):
    with pytest.raises(TrainingDiverged):
        run(folder / "checkpoints", task=task or FlawedTask([2]), log=log, **changes)
    return folder / "capsules"


def test_a_diverged_run_leaves_what_its_last_update_was_made_of(tmp_path):
    log = ListLog()
    options = {"checkpoint": {"every_updates": 1}, "config_digest": "abc", "accumulate": 1}
    folder = diverge(tmp_path, log=log, **options)
    assert log.capsules == [str(folder / "update-00000002")]
    capsule = load_capsule(folder / "update-00000002")
    assert (capsule["update"], capsule["epoch"], capsule["iteration"]) == (2, 0, 2)
    assert (capsule["seed"], capsule["restarts"], capsule["lr_factor"]) == (1, 0, 1.0)
    assert (capsule["exact"], capsule["checkpoint_update"]) == (True, 2)
    assert capsule["config_digest"] == "abc"
    (batch,) = batches_of(capsule)
    assert (batch.rank, batch.iteration) == (0, 2)
    assert list(batch.ids) == capsule["ids"]
    assert batch.inputs[0].shape == (4, 3)


def test_weights_and_moments_are_those_from_before_the_update(tmp_path):
    options = {"checkpoint": {"every_updates": 1}, "guard": {"policy": "skip"}}
    run(tmp_path / "checkpoints", task=FlawedTask([11]), **options)
    capsule = load_capsule(tmp_path / "capsules" / "update-00000011")
    state = last_state(tmp_path / "checkpoints")
    assert state["update"] == 12  # the update that was left out is counted
    assert_same(capsule["network"], state["network"])
    assert_same(capsule["optimizer"]["state"], state["optimizer"]["state"])


def test_all_batches_of_an_accumulated_update_are_kept(tmp_path):
    folder = diverge(tmp_path, task=FlawedTask([3]), accumulate=2)
    batches = batches_of(load_capsule(folder / "update-00000001"))
    assert [batch.iteration for batch in batches] == [2, 3]


def test_a_run_keeps_three_capsules(tmp_path):
    log = ListLog()
    options = {"guard": {"policy": "skip"}, "epochs": 1}
    run(tmp_path / "checkpoints", task=FlawedTask(range(1, 6)), log=log, **options)
    assert [path[-8:] for path in log.capsules] == ["00000001", "00000002", "00000003"]
    assert not list((tmp_path / "capsules").glob(".*"))


def test_a_mended_update_says_that_its_weights_are_later_ones(tmp_path):
    task = FlawedTask([1], bad_tensors=1)
    options = {"guard": {"policy": "zero_few"}, "epochs": 1}
    run(tmp_path / "checkpoints", task=task, **options)
    capsule = load_capsule(tmp_path / "capsules" / "update-00000001")
    assert (capsule["exact"], capsule["later"]) == (False, 1)


def test_a_person_can_read_what_went_wrong(tmp_path):
    folder = diverge(tmp_path)
    summary = json.loads((folder / "update-00000002" / "capsule.json").read_text())
    assert summary["reason"] == "square not finite"
    assert summary["terms"] == {"square": "nan"}


def test_a_full_disk_costs_the_capsule_and_nothing_else(tmp_path, monkeypatch):
    def no_room(*arguments, **named):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("engine.capsule.CheckpointStore.save", no_room)
    log = ListLog()
    diverge(tmp_path, log=log)
    assert [name for name, _, _ in log.events] == ["capsule_failed", "diverged"]
    assert "No space left on device" in log.events[0][1]
    assert not list((tmp_path / "capsules").iterdir())


def test_a_batch_of_other_things_than_tensors_costs_the_capsule_only(tmp_path):
    class OddTask(FlawedTask):
        def train_batches(self, request):
            for batch in super().train_batches(request):
                yield Batch((*batch.inputs, object()), batch.ids)

        def losses(self, network, batch):
            return super().losses(network, Batch(batch.inputs[:2], batch.ids))

    log = ListLog()
    diverge(tmp_path, task=OddTask([2]), log=log)
    assert "the batch holds a object" in log.events[0][1]


def test_what_is_kept_has_no_more_than_its_own_bytes():
    view = torch.zeros(1000, 1000)[:2]
    copy = plain({"x": [(view, 1, "a", None, math.nan)]})["x"][0][0]
    assert copy.untyped_storage().nbytes() == 8000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such capsule"),
        (b"PK torn", "not a checkpoint that may be read"),
        ({"network": {}}, "not a capsule, it lacks batches, epoch"),
    ],
)
def test_what_is_no_capsule_is_told_in_one_sentence(tmp_path, content, message):
    if isinstance(content, bytes):
        (tmp_path / "capsule.pt").write_bytes(content)
    elif content is not None:
        torch.save(content, tmp_path / "capsule.pt")
    with pytest.raises(CapsuleError, match=message):
        load_capsule(tmp_path)


def test_a_capsule_that_was_being_written_is_no_capsule(tmp_path):
    (tmp_path / ".writing-update-00000001-1").mkdir()
    (tmp_path / ".writing-update-00000001-1" / "capsule.pt").write_bytes(b"")
    assert CapsuleStore(tmp_path).has_room()
    CapsuleStore(tmp_path).save({**dict.fromkeys(SUMMARY_ENTRIES), "update": 1})
    assert [path.name for path in tmp_path.iterdir()] == ["update-00000001"]
