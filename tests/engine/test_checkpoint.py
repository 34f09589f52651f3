import errno
import logging
import os
import signal

import pytest
import torch

from engine.checkpoint import CheckpointError, CheckpointStore
from engine.interrupt import Interrupted, Interruption


def filled(folder, updates=(1, 2, 3)):
    store = CheckpointStore(folder)
    return store, [store.save({"value": torch.tensor(update)}, update=update) for update in updates]


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def flip_a_byte(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def test_newest_is_the_last_one_written(tmp_path):
    store, paths = filled(tmp_path)
    assert store.newest() == {"value": torch.tensor(3)}
    assert store.newest_path() == paths[-1]
    assert CheckpointStore(tmp_path / "none").newest() is None


@pytest.mark.parametrize(
    "damage",
    [lambda path: path.write_bytes(b""), truncate, flip_a_byte],
    ids=["empty", "truncated", "flipped byte"],
)
def test_damaged_newest_falls_back_with_a_warning(tmp_path, damage, caplog):
    store, paths = filled(tmp_path)
    damage(paths[-1])
    with caplog.at_level(logging.WARNING):
        assert store.newest() == {"value": torch.tensor(2)}
    assert paths[-1].name in caplog.text
    assert store.newest_path() == paths[-2]


def test_missing_newest_is_no_matter(tmp_path):
    store, paths = filled(tmp_path)
    paths[-1].unlink()
    assert store.newest() == {"value": torch.tensor(2)}


def test_nothing_whole_is_none(tmp_path):
    store, paths = filled(tmp_path)
    for path in paths:
        truncate(path)
    assert store.newest() is None


def test_left_over_temporary_files_are_ignored_and_removed(tmp_path):
    store, _ = filled(tmp_path)
    left = tmp_path / ".writing-00000009-1"
    left.write_bytes(b"half")
    assert store.newest() == {"value": torch.tensor(3)}
    store.save({}, update=4)
    assert not left.exists()


def test_state_of_the_same_update_is_replaced(tmp_path):
    store, _ = filled(tmp_path, updates=(1,))
    store.save({"value": "after the evaluation"}, update=1)
    assert store.newest() == {"value": "after the evaluation"}
    assert len(list(tmp_path.iterdir())) == 1


def test_prune_keeps_the_newest_and_the_marked(tmp_path):
    store, paths = filled(tmp_path, updates=(1,))
    best = store.mark_best(paths[0])
    store.save({"value": torch.tensor(2)}, update=2, epoch=7)
    _, paths = filled(tmp_path, updates=(3, 100_000_000))
    store.prune(keep=2)
    kept = store.epoch_path(7)
    assert set(tmp_path.iterdir()) == {best, kept, *paths}
    assert kept.name.startswith("epoch-0007-")
    assert store.load(kept) == {"value": torch.tensor(2)}


def test_an_epoch_that_is_made_again_replaces_its_state(tmp_path):
    store = CheckpointStore(tmp_path)
    store.save({"value": "first"}, update=1, epoch=0)
    store.save({"value": "second"}, update=1, epoch=0)
    assert len(list(tmp_path.glob("epoch-*"))) == 1
    assert store.load(store.epoch_path(0)) == {"value": "second"}


def test_states_of_later_updates_are_given_up(tmp_path):
    store, paths = filled(tmp_path)
    flip_a_byte(paths[-1])
    path = store.save({"value": torch.tensor(2)}, update=2)
    store.prune(keep=1)
    assert list(tmp_path.iterdir()) == [path]


def test_a_signal_while_a_state_is_read_does_not_make_it_torn(tmp_path, monkeypatch):
    store, _ = filled(tmp_path)
    load = torch.load

    def load_slowly(*args, **kwargs):
        signal.raise_signal(signal.SIGTERM)
        return load(*args, **kwargs)

    monkeypatch.setattr(torch, "load", load_slowly)
    interruption = Interruption()
    interruption.install()
    try:
        with pytest.raises(Interrupted):
            store.newest()
    finally:
        interruption.uninstall()


@pytest.mark.parametrize("name", ["best", "epoch"])
def test_a_damaged_marked_state_is_written_anew(tmp_path, name):
    store = CheckpointStore(tmp_path)
    for _ in range(2):
        store.mark_best(store.save({"value": 1}, update=1, epoch=0))
        (path,) = tmp_path.glob(f"{name}-*")
        assert store.load(path) == {"value": 1}
        truncate(path)


def test_folders_that_are_made_survive_a_power_cut(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("engine.checkpoint._sync_folder", synced.append)
    CheckpointStore(tmp_path / "run" / "checkpoints").save({}, update=1)
    assert synced[:2] == [tmp_path, tmp_path / "run"]


def test_one_best_at_a_time(tmp_path):
    store, paths = filled(tmp_path)
    store.mark_best(paths[0])
    best = store.save({"value": "best"}, update=4, kind="best")
    assert store.best_path() == best
    assert len(list(tmp_path.glob("best-*"))) == 1
    flip_a_byte(best)
    assert store.best_path() is None


def test_best_without_hard_links_is_a_copy(tmp_path, monkeypatch):
    def refuse(*args):
        raise OSError(errno.EPERM, "not permitted")

    monkeypatch.setattr(os, "link", refuse)
    store, paths = filled(tmp_path)
    assert store.load(store.mark_best(paths[0])) == {"value": torch.tensor(1)}


def test_full_disk_is_one_sentence_and_leaves_all_as_it_was(tmp_path, monkeypatch):
    store, paths = filled(tmp_path)

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        CheckpointError, match=r"update 4: No space left on device; earlier"
    ) as caught:
        store.save({"value": torch.zeros(10)}, update=4)
    assert str(caught.value).count("\n") == 0
    assert sorted(tmp_path.iterdir()) == sorted(paths)


def test_full_disk_while_the_content_is_written(tmp_path):
    resource = pytest.importorskip("resource")
    store, paths = filled(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(CheckpointError, match="cannot write the checkpoint of update 4"):
            store.save({"value": torch.zeros(100_000)}, update=4)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert sorted(tmp_path.iterdir()) == sorted(paths)


def test_code_in_a_file_is_not_run(tmp_path):
    path = tmp_path / "update-00000001.pt"
    torch.save({"value": CheckpointStore(tmp_path)}, path)
    with pytest.raises(CheckpointError, match="not a checkpoint that may be read"):
        CheckpointStore(tmp_path).load(path)


def test_missing_file_is_said(tmp_path):
    with pytest.raises(CheckpointError, match="no such checkpoint"):
        CheckpointStore(tmp_path).load(tmp_path / "gone.pt")
