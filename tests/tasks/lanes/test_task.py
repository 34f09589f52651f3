"""The lane task as the loop sees it, on a few drawn roads."""

import numpy as np
import pytest
import torch

from engine.contract import Draws, EpochRequest
from readers.culane import write_lines_txt
from readers.lane_index import ImageLanesIndex
from steps.experiment import load
from tasks.lanes import predictor as predicting
from tasks.lanes import scoring, wiring
from tasks.lanes.decoding import DecodedLane
from tasks.lanes.grid import scaled_lanes
from tasks.lanes.predictions import LaneReader
from tasks.lanes.predictor import LanePredictor
from tasks.pictures import read_picture
from tests.engine.running import CPU
from tests.shared import REPOSITORY

SMALL = (
    "data.train.roads=10 data.val.roads=4 data.test.roads=3 train.batch_size=4 evaluate.jobs=1 "
    "evaluate.pictures=2"
)


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """A working folder with drawn roads, and one with their index."""
    folder = tmp_path_factory.mktemp("lanes")
    wiring.prepare(
        experiment(), base=folder, working=folder / "work", output=folder / "index", jobs=1
    )
    return folder / "index"


def experiment(overrides=""):
    path = REPOSITORY / "configs" / "lanes" / "quickstart.yaml"
    return load(path, f"{SMALL} {overrides}").experiment


def batches(task, **changes):
    request = {"epoch": 0, "start": 0, "rank": 0, "world_size": 1, "workers": 0, "draws": Draws(3)}
    return list(task.train_batches(EpochRequest(**{**request, **changes})))


def test_an_epoch_shows_every_picture_once(index):
    task = wiring.build_task(experiment(), index=index)
    found = batches(task)
    assert [len(batch.ids) for batch in found] == [4, 4, 2]
    assert task.num_batches(0) == 3
    assert len({name for batch in found for name in batch.ids}) == 10


def test_ranks_and_workers_share_the_same_batches(index):
    task = wiring.build_task(experiment(), index=index)
    whole = batches(task)
    halves = [batches(task, rank=rank, world_size=2, workers=rank) for rank in (0, 1)]
    task.close()
    for number, batch in enumerate(whole):
        for rank in (0, 1):
            images = halves[rank][number].inputs["images"]
            assert torch.equal(images, batch.inputs["images"][rank::2])


def test_losses_and_measures_have_names_of_their_own(index):
    task = wiring.build_task(experiment(), index=index)
    network = task.build_network()
    batch = task.prepare_batch(batches(task)[0], update=0, draws=Draws(3))
    found = task.losses(network, batch)
    assert {"row", "column", "row_existence", "column_existence"} <= set(found.terms)
    assert {"row_top1", "row_existence_accuracy"} <= set(found.measures)
    sum(found.terms.values()).backward()
    assert all(p.grad is not None for p in network.parameters())


def test_an_auxiliary_head_is_trained_with_masks(index, tmp_path):
    with_aux = experiment("model.aux={}")
    wiring.prepare(with_aux, base=tmp_path, working=tmp_path, output=tmp_path / "index", jobs=1)
    task = wiring.build_task(with_aux, index=tmp_path / "index")
    batch = task.prepare_batch(batches(task)[0], update=0, draws=Draws(3))
    assert set(np.unique(batch.inputs[1].masks)) <= set(range(5))
    found = task.losses(task.build_network(), batch)
    assert found.terms["segmentation"].item() > 0
    assert "segmentation_iou" in found.measures


def test_a_score_comes_with_tables_and_pictures(index):
    task = wiring.build_task(experiment(), index=index)
    network = task.build_network().eval()
    plain = task.evaluate(network, "val", device=CPU, detail=False)
    assert plain.headline == "F1"
    assert set(plain.pictures) == {"01", "02"}
    assert not plain.items
    detailed = task.evaluate(network, "val+test", device=CPU, detail=True)
    assert len(detailed.items["image_id"]) == len(detailed.items["f1"]) == 7
    assert "plots/scores.png" in detailed.files
    assert "worst.png" in detailed.files
    assert detailed.tables["per_scene"]["frames"]
    assert not network.training


def nearly(record, *, frame):
    """Return lanes a little beside a picture's own, the last one left out, in px of the frame."""
    lanes = scaled_lanes(record, frame)[:-1]
    points = [np.float32(lane + np.array([7.0 * number, 0])) for number, lane in enumerate(lanes)]
    return [DecodedLane(slot, "row", each, 0.9) for slot, each in enumerate(points)]


def test_lines_that_predict_leaves_score_as_the_network_does(index, tmp_path, monkeypatch):
    half = experiment("data.frame=[320,120] model.input=[320,96]")
    frame = half.data.frame
    wiring.prepare(half, base=tmp_path, working=tmp_path, output=tmp_path / "index", jobs=1)
    task = wiring.build_task(half, index=tmp_path / "index")
    records = list(ImageLanesIndex.open(tmp_path / "index" / "val.arrow"))
    found = [nearly(record, frame=frame) for record in records]
    monkeypatch.setattr(scoring, "predict_split", lambda *_, **__: found)
    network = task.build_network().eval()
    wanted = task.evaluate(network, "val", device=CPU, detail=False).scores

    reader = LaneReader(model=half.model, decode=half.decode, frame=frame)
    predictor = LanePredictor(network, reader, metric="f1", device=CPU)
    for record, lanes in zip(records, found, strict=True):
        monkeypatch.setattr(predicting, "predict_lanes", lambda *_, lanes=lanes, **__: [lanes])
        (answer,) = predictor.predict([read_picture(record)], score_threshold=0.0)
        for name, text in predictor.files(record.image_id, answer).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    scored = task.evaluate_results(tmp_path / "lines", "val", detail=True)

    assert scored.scores == pytest.approx(wanted, nan_ok=True)
    assert 0 < scored.scores["F1"] < 1
    assert {"plots/scores.png", "worst.png"} <= set(scored.files)


def test_labels_of_joined_splits_score_in_full(index):
    task = wiring.build_task(experiment(), index=index)
    lines = index.parent / "joined"
    for split in ("val", "test"):
        for record in ImageLanesIndex.open(index / f"{split}.arrow"):
            path = (lines / record.image_id).with_suffix(".lines.txt")
            path.parent.mkdir(parents=True, exist_ok=True)
            write_lines_txt(path, record.lanes)
    (one, *_) = ImageLanesIndex.open(index / "test.arrow")
    names = [set(ImageLanesIndex.open(index / f"{s}.arrow").image_ids) for s in ("val", "test")]
    assert one.image_id in names[0] & names[1]
    assert task.evaluate_results(lines, "test", detail=False).scores["F1"] == 1
    assert len(task.evaluate_results(lines, "val+test", detail=True).items["f1"]) == 7


def test_an_absent_split_is_named(index):
    task = wiring.build_task(experiment(), index=index)
    with pytest.raises(ValueError, match=r"no data\.other; there is train, val, test"):
        task.evaluate(task.build_network().eval(), "other", device=CPU, detail=False)


def test_too_few_pictures_for_a_batch_are_told(index):
    small = experiment("train.batch_size=64 data.drop_last=true")
    task = wiring.build_task(small, index=index)
    with pytest.raises(ValueError, match="10 usable pictures do not fill a batch"):
        task.num_batches(0)


def test_slots_are_the_classes_of_a_deployed_model(index):
    assert wiring.classes(index) == {
        "names": ["slot 1", "slot 2", "slot 3", "slot 4"],
        "ids": [1, 2, 3, 4],
    }


def test_every_split_says_where_it_came_from(index):
    splits = wiring.summarise(experiment(), index=index)
    assert splits["train"].items == 10
    assert splits["train"].source.startswith("drawn: 10 roads")
    assert len({split.digest for split in splits.values()}) == 3
