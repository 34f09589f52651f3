"""Going on from checkpoints of other programs: `{model, optimizer}` and bare state dicts."""

import pytest
import torch

from engine.foreign import read_foreign
from engine.weights import WeightsError
from tests.engine.running import ListLog, assert_same, last_state, run

EVERY = {"epochs": 3, "optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9}}


def foreign_file(folder, name, *, wrapped=True, prefix="module."):
    """A checkpoint as other programs write it, of a toy training of one epoch."""
    run(folder / "theirs", **{**EVERY, "epochs": 1})
    state = last_state(folder / "theirs")
    weights = {prefix + key: value for key, value in state["network"].items()}
    content = weights
    if wrapped:
        moments = {
            "state": state["optimizer"]["state"],
            "param_groups": [{"lr": 1.0, "params": [0, 1, 2, 3, 4, 5]}],
        }
        content = {"model": weights, "optimizer": moments}
    torch.save(content, folder / name)
    return folder / name, state


@pytest.mark.parametrize(
    ("name", "given", "epoch"),
    [
        ("ep000.pth", None, 1),
        ("ep001.pth", None, 2),
        ("model_best.pth", None, 0),
        ("model_best.pth", 2, 2),
        ("ep000.pth", 3, 3),
    ],
)
def test_epoch_comes_from_the_name_or_is_given(tmp_path, name, given, epoch):
    path, _ = foreign_file(tmp_path, name)
    log = ListLog()
    result = run(tmp_path / "ours", log=log, resume=read_foreign(path, epoch=given), **EVERY)
    assert result.updates == 18
    (event,) = [message for name, message, _ in log.events if name == "resumed_from_file"]
    assert (
        f"with epoch {epoch}, update {6 * epoch}; the optimizer's moments are the file's" in event
    )
    assert min(step for step, _ in log.curve("train/loss")) > 6 * epoch if epoch < 3 else True


def test_weights_and_moments_are_the_files(tmp_path):
    path, state = foreign_file(tmp_path, "ep002.pth")
    run(tmp_path / "ours", resume=read_foreign(path), **EVERY)
    ours = last_state(tmp_path / "ours")
    assert_same(ours["network"], state["network"])
    assert_same(ours["optimizer"]["state"], state["optimizer"]["state"])
    assert ours["update"] == 18


def test_a_bare_state_dict_has_no_moments(tmp_path):
    path, state = foreign_file(tmp_path, "ep002.pth", wrapped=False, prefix="")
    log = ListLog()
    run(tmp_path / "ours", log=log, resume=read_foreign(path), **EVERY)
    assert_same(last_state(tmp_path / "ours")["network"], state["network"])
    assert "moments begin anew: the file has none" in log.events[0][1]


def test_moments_of_another_kind_of_optimizer_begin_anew(tmp_path):
    path, state = foreign_file(tmp_path, "ep002.pth")
    log, adam = ListLog(), {**EVERY, "optimizer": {"name": "adamw", "lr": 0.01}}
    run(tmp_path / "ours", log=log, resume=read_foreign(path), **adam)
    assert_same(last_state(tmp_path / "ours")["network"], state["network"])
    assert "moments begin anew: the file's are of another kind of optimizer" in log.events[0][1]


def test_a_state_of_ours_is_taken_as_it_is(tmp_path):
    run(tmp_path / "first", **{**EVERY, "epochs": 1})
    (path,) = (tmp_path / "first").glob("update-*")
    assert read_foreign(path)["update"] == last_state(tmp_path / "first")["update"]


def test_an_epoch_beyond_the_last_is_refused(tmp_path):
    path, _ = foreign_file(tmp_path, "ep009.pth")
    with pytest.raises(ValueError, match=r"is to go on with epoch 10, and train\.epochs is 3"):
        run(tmp_path / "ours", resume=read_foreign(path), **EVERY)


def test_another_network_is_refused(tmp_path):
    torch.save({"model": {"a": torch.zeros(2)}}, tmp_path / "ep001.pth")
    with pytest.raises(ValueError, match="the checkpoint holds another network"):
        run(tmp_path / "ours", resume=read_foreign(tmp_path / "ep001.pth"), **EVERY)


@pytest.mark.parametrize("content", [{}, {"model": {}}, {"epoch": 3}, [1, 2]])
def test_a_file_without_a_network_is_refused(tmp_path, content):
    torch.save(content, tmp_path / "ep001.pth")
    with pytest.raises(WeightsError, match="holds no network"):
        read_foreign(tmp_path / "ep001.pth")
