"""The run log keeps every point, whatever the tracking store does."""

import math
import re

import numpy as np
import pytest

from steps.run_log import Channel, MlflowRunLog, metric_key
from steps.spool import SpoolInfo, read_records


class FakeStore:
    """Takes what an MLflow client takes, while `error` is None."""

    def __init__(self):
        self.error = None
        self.points = []
        self.tags = {}
        self.files = []
        self.num_calls = 0

    def log_batch(self, run_id, metrics, params, tags):
        self.num_calls += 1
        if self.error is not None:
            raise self.error
        self.points += [(m.key, m.step, m.timestamp, m.value) for m in metrics]
        self.tags.update({t.key: t.value for t in tags})

    def log_artifact(self, run_id, local_path, artifact_path=None):
        if self.error is not None:
            raise self.error
        name = local_path.rsplit("/", 1)[-1]
        self.files.append(f"{artifact_path}/{name}" if artifact_path else name)


@pytest.fixture
def fake():
    return FakeStore()


@pytest.fixture
def log(fake, tmp_path):
    log = MlflowRunLog(Channel(tmp_path, SpoolInfo("run", "http://away", "train"), fake))
    yield log
    log.finish(0.0, patience_s=0.0)


def test_points_arrive_once_each(log, fake):
    for step in range(300):
        log.metrics({"train/loss": step / 7, "lr/all": 0.1}, step=step)
    assert log.flush(10.0)
    assert len(fake.points) == len(set(fake.points)) == 600
    assert fake.num_calls == 1


def test_an_outage_loses_and_doubles_nothing(log, fake):
    fake.error = ConnectionError("refused")
    for step in range(50):
        log.metrics({"train/loss": 1.0}, step=step)
    assert not log.flush(10.0, patience_s=0.1)
    assert log.unsent() == (50, 0)
    fake.error = None
    assert log.flush(10.0)
    assert sorted(step for _, step, _, _ in fake.points) == list(range(50))


def test_a_refused_point_does_not_hold_up_the_others(log, fake, caplog):
    from mlflow import MlflowException
    from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE

    take = fake.log_batch

    def picky(run_id, metrics, params, tags):
        if any(m.key == "train/bad" for m in metrics):
            raise MlflowException("no such name", error_code=INVALID_PARAMETER_VALUE)
        take(run_id, metrics, params, tags)

    fake.log_batch = picky
    for step in range(8):
        log.metrics({"train/bad" if step == 5 else "train/good": 1.0}, step=step)
    assert log.flush(10.0)
    assert sorted(step for _, step, _, _ in fake.points) == [0, 1, 2, 3, 4, 6, 7]
    assert "train/bad" in caplog.text


def test_non_finite_points_are_counted_instead_of_charted(log, fake, tmp_path):
    log.metrics({"train/loss": math.nan, "train/box": math.inf, "lr/all": 0.1}, step=4)
    assert log.flush(10.0)
    assert {(key, value) for key, _, _, value in fake.points} == {
        ("lr/all", 0.1),
        ("guard/nonfinite_points", 2.0),
    }
    assert read_records(tmp_path)[0]["x"] == {"train/loss": "nan", "train/box": "inf"}


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("val/mAP", 0.123456789, 0.12346),
        ("test/mAP_50", 0.999999, 1.0),
        ("train/loss", 1234.56789, 1234.57),
        ("lr/all", 0.000012345678, 0.0000123457),
    ],
)
def test_values_are_rounded_for_reading(log, fake, key, value, shown):
    log.metrics({key: value}, step=0)
    assert log.flush(10.0)
    assert fake.points[0][3] == shown


def test_names_that_mlflow_refuses_are_mended():
    assert metric_key("val/AP/stop sign") == "val/AP/stop sign"
    assert metric_key("val/mAP@.5 (né)") == "val/mAP_.5 _n__"


def test_more_than_1000_values_in_one_call_arrive(log, fake):
    log.metrics({f"val/AP/{i}": 0.5 for i in range(1203)}, step=1)
    assert log.flush(10.0)
    assert len(fake.points) == 1203


def test_pictures_bear_the_names_that_the_ui_looks_for(log, fake, client):
    picture = np.zeros((300, 600, 3), np.uint8)
    log.pictures({"01": picture}, step=7)
    assert log.flush(10.0)
    assert fake.tags["mlflow.loggedImages"] == "True"
    run_id = client.create_run("0").info.run_id
    client.log_image(run_id, picture, key="pictures/01", step=7, synchronous=True)
    theirs = [info.path for info in client.list_artifacts(run_id, "images")]
    assert sorted(map(_without_numbers, fake.files)) == sorted(map(_without_numbers, theirs))


def _without_numbers(path):
    return re.sub(r"timestamp\+\d+\+[0-9a-f-]{36}", "timestamp+T+ID", path)


def test_checkpoints_go_under_their_kind_and_newest_wins(log, fake, tmp_path):
    fake.error = ConnectionError("refused")
    for update in (10, 20):
        path = tmp_path / f"update-{update}.pt"
        path.write_bytes(b"%d" % update)
        log.checkpoint(str(path), kind="last")
        path.unlink()
    keep = tmp_path / "epoch-3.pt"
    keep.write_bytes(b"3")
    log.checkpoint(str(keep), kind="every")
    fake.error = None
    assert log.flush(10.0)
    assert sorted(fake.files) == ["checkpoints/epoch-3.pt", "checkpoints/last.pt"]


def test_an_event_is_counted_and_kept(log, fake, tmp_path):
    log.event("early_stop", "no better score for 5 evaluations", step=9)
    assert log.flush(10.0)
    assert [(key, step, value) for key, step, _, value in fake.points] == [
        ("guard/early_stop", 9, 1.0)
    ]
    assert read_records(tmp_path)[0]["message"].startswith("no better")


def test_a_file_that_is_refused_does_not_hold_up_the_others(log, fake):
    take = fake.log_artifact

    def picky(run_id, local_path, artifact_path=None):
        if local_path.endswith("big.pt"):
            raise PermissionError("too large")
        take(run_id, local_path, artifact_path)

    fake.log_artifact = picky
    log.content(b"x", "big.pt")
    log.content(b"y", "small.txt")
    log.metrics({"train/loss": 1.0}, step=0)
    assert not log.flush(8.0, patience_s=1.5)
    assert fake.files == ["small.txt"]
    assert len(fake.points) == 1
    assert log.unsent() == (0, 1)
