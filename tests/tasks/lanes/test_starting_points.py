"""What a lane training may begin with: the reference's checkpoints, whole or the backbone alone."""

import pytest
import torch

from engine.foreign import read_foreign
from steps.experiment import load
from tasks.lanes import wiring
from tests.engine.running import ListLog, assert_same, last_state, run
from tests.shared import REPOSITORY

SMALL = (
    "data.train.roads=4 data.val.roads=2 data.test.roads=2 train.batch_size=2 evaluate.jobs=1 "
    "evaluate.pictures=1 model.hidden=16 model.backbone.widths=[8,8,8,8] "
    "model.backbone.blocks=[1,1,1,1]"
)
SGD = {"batch_size": 2, "optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9}}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Return a function that gives the task of an experiment, on a few drawn roads."""
    folder = tmp_path_factory.mktemp("roads")

    def task(overrides=""):
        path = REPOSITORY / "configs" / "lanes" / "quickstart.yaml"
        experiment = load(path, f"{SMALL} {overrides}").experiment
        index = folder / f"index-{len(list(folder.iterdir()))}"
        wiring.prepare(experiment, base=folder, working=folder, output=index, jobs=1)
        return wiring.build_task(experiment, index=index)

    return task


@pytest.fixture(scope="module")
def trained(prepared, tmp_path_factory):
    """A state after an epoch, and the same with the auxiliary head."""
    folder = tmp_path_factory.mktemp("trained")
    for name, overrides in (("plain", ""), ("aux", "model.aux={}")):
        run(folder / name, task=prepared(overrides), epochs=1, evaluate_first=False, **SGD)
    return {name: last_state(folder / name) for name in ("plain", "aux")}


def reference_file(path, state):
    """Write a state as the reference does, trained on several GPUs."""
    optimizer = state["optimizer"]
    groups = [{"lr": 1.0, "params": group["params"]} for group in optimizer["param_groups"]]
    content = {
        "model": {f"module.{name}": value for name, value in state["network"].items()},
        "optimizer": {"state": optimizer["state"], "param_groups": groups},
    }
    torch.save(content, path)
    return path


@pytest.mark.parametrize(("name", "given"), [("ep000.pth", None), ("model_best.pth", 1)])
def test_a_training_goes_on_from_both_of_the_references_file_names(
    name, given, prepared, trained, tmp_path
):
    path = reference_file(tmp_path / name, trained["plain"])
    log = ListLog()
    foreign = read_foreign(path, epoch=given)
    result = run(tmp_path / "run", task=prepared(), log=log, resume=foreign, epochs=2, **SGD)
    (told,) = [message for event, message, _ in log.events if event == "resumed_from_file"]
    assert "with epoch 1, update 2; the optimizer's moments are the file's" in told
    assert result.updates == 4
    assert {step for step, _ in log.curve("val/F1")} == {4}


def test_what_is_taken_over_is_the_files(prepared, trained, tmp_path):
    path = reference_file(tmp_path / "ep000.pth", trained["plain"])
    run(tmp_path / "run", task=prepared(), resume=read_foreign(path), epochs=1, **SGD)
    state = last_state(tmp_path / "run")
    assert_same(state["network"], trained["plain"]["network"])
    assert_same(state["optimizer"]["state"], trained["plain"]["optimizer"]["state"])
    assert state["optimizer"]["param_groups"][0]["lr"] == 0.01


def test_a_file_with_the_auxiliary_head_is_gone_on_from_without_it(prepared, trained, tmp_path):
    path = reference_file(tmp_path / "ep000.pth", trained["aux"])
    log, average = ListLog(), {"decay": 0.9}
    foreign = read_foreign(path)
    run(tmp_path / "run", task=prepared(), log=log, resume=foreign, epochs=1, ema=average, **SGD)
    (told,) = [message for event, message, _ in log.events if event == "resumed_from_file"]
    assert "moments begin anew: the file's parameter groups are of" in told
    network = last_state(tmp_path / "run")["network"]
    assert not [name for name in network if name.startswith("seg_head")]
    assert_same(network, {name: trained["aux"]["network"][name] for name in network})


def test_other_lanes_rows_and_cells_begin_with_the_backbone(prepared, trained, tmp_path):
    path = reference_file(tmp_path / "model_best.pth", trained["aux"])
    other = prepared("model.lanes=6 model.rows.anchors=12 model.columns.cells=10")
    log = ListLog()
    weights = {"path": str(path), "exclude": ["cls", "pool", "seg_head"]}
    still = {"optimizer": {"name": "sgd", "lr": 1e-12}, "batch_size": 2}
    run(tmp_path / "run", task=other, log=log, epochs=1, initial_weights=weights, **still)
    (told,) = [message for event, message, _ in log.events if event == "initial_weights"]
    theirs, ours = trained["aux"]["network"], last_state(tmp_path / "run")["network"]
    backbone = [name for name in theirs if name.startswith("model.")]
    assert f"{len(backbone)} tensors loaded" in told
    for name in backbone:
        # statistics of batch norm follow the data
        if "running" not in name and "num_batches" not in name:
            assert torch.allclose(ours[name], theirs[name], atol=1e-6), name
