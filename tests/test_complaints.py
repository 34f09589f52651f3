"""What users of other trainers suffer from, where no other test shows that it does not happen here.

docs/complaints.md says which complaint each test answers.
"""

import pickle
import threading

import pytest
import torch
import yaml
from pydantic import TypeAdapter

from engine.checkpoint import CheckpointStore
from engine.contract import Draws, EpochRequest, Losses
from models.detection.build import build_detector
from tasks import pictures
from tasks.detection.config import DetectionModelConfig
from tests.engine.running import CPU, ListLog, run
from tests.engine.toy_task import ToyTask
from tests.shared import REPOSITORY
from tests.tasks.detection.test_metrics import evaluator, index_of, record
from tests.tasks.detection.test_task import index, make_task  # noqa: F401  (index: a fixture)

LARGE = [100, 100, 300, 300]


def request(**values):
    given = {"epoch": 0, "start": 0, "rank": 0, "world_size": 1, "workers": 0, "draws": Draws(1)}
    return EpochRequest(**(given | values))


@pytest.mark.parametrize("ema", [None, {"decay": 0.9}])
def test_the_weights_that_are_saved_are_those_that_were_scored(tmp_path, ema):
    log = ListLog()
    result = run(tmp_path, log=log, epochs=3, ema=ema)
    state = CheckpointStore(tmp_path).load(result.best_path)
    network = ToyTask().build_network().eval()
    network.load_state_dict(state[state["deploy"]])
    with torch.no_grad():
        again = ToyTask().evaluate(network, "val", device=CPU, detail=False).scores["fit"]
    assert dict(log.curve("val/fit"))[state["update"]] == again


class SlopeTask(ToyTask):
    """Its gradient is 1 for everything that trains."""

    def losses(self, network, batch):
        return Losses({"sum": sum(p.sum() for p in network.parameters() if p.requires_grad)})


def test_unfreezing_a_part_leaves_the_momentum_of_the_others(tmp_path):
    checkpoint = {"every_updates": 1, "keep": 99}
    freeze = [{"prefix": "body", "until_epoch": 1}]
    run(tmp_path, task=SlopeTask(), epochs=2, freeze=freeze, checkpoint=checkpoint)
    path = next(tmp_path.glob("update-00000007-*"))  # six updates an epoch
    moments = torch.load(path, weights_only=True)["optimizer"]["state"]
    names = [name for name, _ in ToyTask().build_network().named_parameters()]
    found = {n: moments[k]["momentum_buffer"].flatten()[0].item() for k, n in enumerate(names)}
    assert found["body.weight"] == 1
    assert found["head.weight"] == pytest.approx((1 - 0.9**7) / 0.1)


def test_an_evaluation_that_cannot_work_fails_before_the_first_update(tmp_path):
    class Unbuilt(ToyTask):
        def evaluate(self, network, split, *, device, detail):
            raise FileNotFoundError(2, "No such file", "evaluator")

    log = ListLog()
    with pytest.raises(FileNotFoundError):
        run(tmp_path, task=Unbuilt(), log=log)
    assert (log.states, log.points) == ([], [])


def test_an_index_travels_to_workers_as_the_name_of_its_file(tmp_path):
    pictures = [record(f"{k}", [LARGE] * 50, [0] * 50) for k in range(200)]
    sent = pickle.dumps(index_of(*pictures).save(tmp_path / "train.arrow"))
    assert len(sent) < 8 * len(pictures) + 1000  # the order of the rows, and a path


def test_ground_truth_is_scored_without_reading_a_picture(monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("a picture was read")

    monkeypatch.setattr(pictures, "read_image", refuse)
    made = evaluator(record("a", [LARGE], [0]), detections=[("a", [LARGE], [0.9], [0])])
    assert made.compute().stats["mAP"] == 1


def test_the_head_has_an_output_for_each_class_of_the_data(index):  # noqa: F811
    predictor = make_task(index).build_network().roi_heads.box_predictor
    assert predictor.cls_score.out_features == 1 + len(index.class_names)


def test_pictures_of_many_sizes_are_the_same_with_workers(index):  # noqa: F811
    def sizes_and_sums(workers):
        task = make_task(index, augment={"preset": "multiscale"})
        requests = [request(epoch=epoch, start=1, workers=workers) for epoch in (0, 1)]
        batches = [batch.inputs for each in requests for batch in task.train_batches(each)]
        task.close()
        return [(inputs["sizes"], int(inputs["pixels"].sum())) for inputs in batches]

    alone = sizes_and_sums(0)
    assert alone == sizes_and_sums(2)
    assert alone[0][0] != alone[1][0]


@pytest.mark.parametrize(
    "name", ["retinanet_resnet50_fpn", "fcos_resnet50_fpn", "ssdlite320_mobilenet_v3_large"]
)
def test_every_kind_of_detector_trains_on_pictures_without_objects(name):
    config = TypeAdapter(DetectionModelConfig).validate_python({"name": name})
    network = build_detector(config, 3)
    side = 320 if name.startswith("ssd") else 64
    network.transform.min_size, network.transform.max_size = (side,), side
    empty = {"boxes": torch.zeros(0, 4), "labels": torch.zeros(0, dtype=torch.int64)}
    losses = network([torch.rand(3, side, side) for _ in range(2)], [empty, dict(empty)])
    sum(losses.values()).backward()
    assert all(torch.isfinite(loss) for loss in losses.values())
    gradients = [p.grad for p in network.parameters() if p.grad is not None]
    assert gradients
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


def test_without_cuda_training_takes_the_cpu_and_only_asking_for_cuda_fails(monkeypatch):
    from steps.devices import DeviceError, find_device

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert find_device("auto") == CPU
    with pytest.raises(DeviceError, match="sees no CUDA device here"):
        find_device("cuda")


def test_without_psutil_a_run_has_no_system_metrics_and_goes_on(monkeypatch):
    from steps import system_metrics

    monkeypatch.setattr(system_metrics.importlib.util, "find_spec", lambda name: None)
    before = {thread.name for thread in threading.enumerate()}
    measured = system_metrics.SystemMetrics(lambda values, count: None)
    measured.start()
    assert {thread.name for thread in threading.enumerate()} <= before  # nothing measures
    measured.stop()


def test_every_parameter_of_mlproject_is_text_that_the_steps_check():
    entry_points = yaml.safe_load((REPOSITORY / "MLproject").read_text())["entry_points"]
    for entry in entry_points.values():
        assert entry["parameters"]  # `parameters:` without any breaks MLflow
        assert {spec["type"] for spec in entry["parameters"].values()} == {"string"}
