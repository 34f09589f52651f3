"""The detection task: what the loop gets of it, with a small detector and drawn scenes."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from engine.contract import Draws, EpochRequest
from readers.coco import read_coco
from readers.index import ImageBoxesIndex, build_index
from tasks.detection import predictions
from tasks.detection.config import DataConfig, EvaluateConfig, FasterRcnnConfig
from tasks.detection.samples import read_scene
from tasks.detection.synthetic import CLASS_NAMES, write_synthetic
from tasks.detection.task import DetectionTask, predict

CPU = torch.device("cpu")
MODEL = FasterRcnnConfig.model_validate(
    {
        "name": "fasterrcnn",
        "backbone": {"name": "slim_resnet", "widths": [8, 8, 16, 16], "blocks": [1, 1, 1, 1]},
        "min_size": 64,
        "max_size": 64,
        "fpn_channels": 16,
        "fpn_levels": [8, 16],
        "anchor_sizes": [12, 24, 40],
        "anchor_ratios": [1.0],
        "roi_size": 3,
        "head_width": 16,
        "rpn_samples": 16,
        "roi_samples": 16,
        "rpn_candidates": [50, 50],
        "rpn_proposals": [20, 20],
        "score_threshold": 0.0,
    }
)
TWELVE = 12


@pytest.fixture(scope="module")
def index(tmp_path_factory) -> ImageBoxesIndex:
    folder: Path = tmp_path_factory.mktemp("scenes") / "set"
    write_synthetic(folder, images=10, size=64, seed=0)
    return build_index(read_coco(folder / "images", folder / "annotations.json"))


def data(**values) -> DataConfig:
    source = {"format": "synthetic", "images": 10, "seed": 0}
    return DataConfig.model_validate({"train": source, "val": source, **values})


def make_task(index, *, batch_size=4, evaluate=None, **values) -> DetectionTask:
    return DetectionTask(
        data=data(**values),
        model=MODEL,
        evaluate=EvaluateConfig.model_validate({"batch_size": 3, **(evaluate or {})}),
        batch_size=batch_size,
        indexes={"train": index, "val": index.subset(range(4)), "test": index.subset(range(4, 10))},
    )


def request(**values) -> EpochRequest:
    given = {"epoch": 0, "start": 0, "rank": 0, "world_size": 1, "workers": 0, "draws": Draws(1)}
    return EpochRequest(**(given | values))


def batches(task, **values) -> list:
    made = [(batch.ids, batch.inputs) for batch in task.train_batches(request(**values))]
    return [
        (ids, inputs["pixels"].tolist(), inputs["boxes_xyxy"].tolist(), inputs["labels"].tolist())
        for ids, inputs in made
    ]


@pytest.fixture(scope="module")
def network(index) -> nn.Module:
    torch.manual_seed(0)
    return make_task(index).build_network().eval()


class Oracle(nn.Module):
    """Finds what is labelled, or nothing; knows a picture by its pixels."""

    def __init__(self, index: ImageBoxesIndex, *, is_blind: bool = False) -> None:
        super().__init__()
        self.scenes = [read_scene(record) for record in index]
        self.is_blind = is_blind

    def forward(self, images):
        return [self.answer((image * 255).round().to(torch.uint8)) for image in images]

    def answer(self, pixels):
        image = pixels.permute(1, 2, 0).numpy()
        scene = next(each for each in self.scenes if np.array_equal(each.image, image))
        found = slice(0, 0) if self.is_blind else slice(None)
        return {
            "boxes": torch.tensor(scene.boxes_xyxy[found], dtype=torch.float32),
            "labels": torch.tensor(scene.labels[found] + 1),
            "scores": torch.full(scene.labels[found].shape, 0.9),
        }


def test_class_names_come_from_the_data(index):
    assert make_task(index).class_names == CLASS_NAMES


def test_batches_are_the_same_with_workers(index):
    task = make_task(index)
    assert batches(task) == batches(make_task(index), workers=2)


def test_batches_of_ranks_and_starts_are_parts_of_the_whole(index):
    whole = batches(make_task(index))
    assert batches(make_task(index), start=1) == whole[1:]
    even, odd = (batches(make_task(index), rank=rank, world_size=2) for rank in range(2))
    for (ids, *_), (even_ids, *_), (odd_ids, *_) in zip(whole, even, odd, strict=True):
        assert ids[0::2] == even_ids
        assert ids[1::2] == odd_ids


def test_number_of_batches_with_and_without_the_last(index):
    assert make_task(index).num_batches(0) == 2
    task = make_task(index, drop_last=False)
    assert task.num_batches(0) == 3
    assert [len(ids) for ids, *_ in batches(task)] == [4, 4, 2]


def test_a_split_smaller_than_a_batch_says_so(index):
    with pytest.raises(
        ValueError, match=r"data\.train: 10 usable pictures do not fill .*batch_size=11"
    ):
        make_task(index, batch_size=11).num_batches(0)


def test_losses_are_named_and_sum_to_something_trainable(index):
    task = make_task(index)
    network = task.build_network()
    batch = next(iter(task.train_batches(request())))
    prepared = task.prepare_batch(batch, update=0, draws=Draws(1))
    terms = task.losses(network, prepared).terms
    assert set(terms) == {"classifier", "box_reg", "objectness", "rpn_box_reg"}
    sum(terms.values()).backward()
    assert all(p.grad is not None for p in network.parameters() if p.requires_grad)


def test_pictures_without_boxes_train_as_negatives(index):
    task = make_task(index)
    network = task.build_network()
    batch = next(iter(task.train_batches(request())))
    count = len(batch.ids)
    batch.inputs |= {
        "boxes_xyxy": torch.zeros(0, 4), "labels": torch.zeros(0, dtype=torch.int64),
        "counts": [0] * count,
    }  # fmt: skip
    terms = task.losses(network, task.prepare_batch(batch, update=0, draws=Draws(1))).terms
    assert all(torch.isfinite(term) for term in terms.values())


def test_drop_empty_leaves_pictures_without_boxes_out(index):
    full = make_task(index, drop_last=False, batch_size=1, drop_empty=True)
    with_boxes = int((index.num_trainable_boxes() > 0).sum())
    assert full.num_batches(0) == with_boxes


def test_a_detector_that_finds_all_scores_one(index):
    evaluation = make_task(index).evaluate(Oracle(index), "test", device=CPU, detail=False)
    assert len(evaluation.scores) == TWELVE
    assert evaluation.headline == "mAP"
    assert evaluation.scores["mAP"] == pytest.approx(1)
    assert evaluation.items == {} == evaluation.files


def test_a_detector_that_finds_nothing_scores_zero(index):
    blind = Oracle(index, is_blind=True)
    evaluation = make_task(index).evaluate(blind, "val", device=CPU, detail=True)
    assert evaluation.scores["mAP"] == 0
    assert "plots/precision-recall.png" in evaluation.files
    assert evaluation.items["detections"] == [0] * 4


def test_detail_holds_tables_plots_and_the_worst_pictures(index, network):
    task = make_task(index, evaluate={"worst": 2, "slices": ["size", "crowding", "aspect"]})
    evaluation = task.evaluate(network, "val+test", device=CPU, detail=True)
    assert {len(column) for column in evaluation.items.values()} == {10}
    assert list(evaluation.tables["per_class"]["class"]) == list(CLASS_NAMES)
    assert set(evaluation.tables["slices"]["by"]) == {"size", "crowding", "aspect"}
    assert set(evaluation.files) == {
        "plots/precision-recall.png", "worst.png", "worst/01.png", "worst/02.png",
    }  # fmt: skip
    assert all(content.startswith(b"\x89PNG") for content in evaluation.files.values())


def test_pictures_are_always_of_the_same_items(index, network):
    task = make_task(index, evaluate={"pictures": 3})
    first = task.evaluate(Oracle(index, is_blind=True), "test", device=CPU, detail=False)
    second = task.evaluate(Oracle(index, is_blind=True), "test", device=CPU, detail=False)
    assert list(first.pictures) == ["01", "02", "03"]
    for key, picture in first.pictures.items():
        assert np.array_equal(picture, second.pictures[key])


def test_more_pictures_than_there_are_is_all_of_them(index):
    task = make_task(index, evaluate={"pictures": 16})
    found = task.evaluate(Oracle(index), "val", device=CPU, detail=False).pictures
    assert list(found) == ["01", "02", "03", "04"]


@pytest.mark.parametrize("validation_loss", [False, True])
def test_evaluation_disturbs_neither_network_nor_generators_nor_index(
    index, network, validation_loss
):
    task = make_task(index, evaluate={"validation_loss": validation_loss})
    weights, records = copy.deepcopy(network.state_dict()), pickle.dumps(list(index))
    generator = torch.get_rng_state()
    first = task.evaluate(network, "val", device=CPU, detail=False)
    second = task.evaluate(network, "val", device=CPU, detail=False)
    assert first.scores == pytest.approx(second.scores, abs=0, nan_ok=True)
    assert not any(module.training for module in network.modules())
    assert torch.equal(generator, torch.get_rng_state())
    assert pickle.dumps(list(index)) == records
    assert all(torch.equal(v, weights[key]) for key, v in network.state_dict().items())
    assert ("loss" in first.scores) == validation_loss


def test_validation_loss_is_the_sum_of_its_terms(index, network):
    task = make_task(index, evaluate={"validation_loss": True})
    scores = task.evaluate(network, "val", device=CPU, detail=False).scores
    terms = ["classifier", "box_reg", "objectness", "rpn_box_reg"]
    assert scores["loss"] == pytest.approx(sum(scores[term] for term in terms))


def test_a_split_that_is_not_there_is_named(index, network):
    task = make_task(index)
    del task._indexes["test"]
    with pytest.raises(ValueError, match=r"no data\.test; there is train, val"):
        task.evaluate(network, "val+test", device=CPU, detail=False)


def test_predict_takes_pictures_of_any_size_and_keeps_to_the_threshold(network):
    pictures = [np.full((h, w, 3), 100, np.uint8) for h, w in ((40, 64), (100, 30))]
    everything = predict(network, pictures, device=CPU, score_threshold=0.0)
    nothing = predict(network, pictures, device=CPU, score_threshold=1.0)
    for picture, found in zip(pictures, everything, strict=True):
        height, width = picture.shape[:2]
        assert found["boxes_xyxy"].dtype == np.float32
        assert (found["boxes_xyxy"] <= [width, height, width, height]).all()
        assert (found["labels"] >= 0).all()
        assert (np.diff(found["scores"]) <= 0).all()
    assert [len(found["scores"]) for found in nothing] == [0, 0]
    assert predict(network, [], device=CPU, score_threshold=0.5) == []


@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_find_together_what_one_finds_alone(index, monkeypatch, world_size):
    oracle = Oracle(index)
    alone = predictions.detect_split(oracle, index, device=CPU, batch_size=2)
    shares = []
    monkeypatch.setattr(predictions, "world_size", lambda: world_size)
    monkeypatch.setattr(predictions, "gather_objects", lambda mine: shares.append(mine) or [])
    for rank in range(world_size):
        monkeypatch.setattr(predictions, "rank", lambda rank=rank: rank)
        predictions.detect_split(oracle, index, device=CPU, batch_size=2)
    monkeypatch.setattr(predictions, "gather_objects", lambda mine: shares)
    together = predictions.detect_split(oracle, index, device=CPU, batch_size=2)
    assert len(together) == len(index)
    for one, other in zip(alone, together, strict=True):
        assert np.array_equal(one.boxes_xyxy, other.boxes_xyxy)


def test_batches_of_one_and_of_many_find_the_same(network):
    pictures = [
        np.random.RandomState(i).randint(0, 256, (64, 64, 3)).astype(np.uint8) for i in (0, 1)
    ]
    together = predict(network, pictures, device=CPU, score_threshold=0.0)
    alone = [predict(network, [each], device=CPU, score_threshold=0.0)[0] for each in pictures]
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(one["scores"], other["scores"], rtol=1e-4, atol=1e-6)
