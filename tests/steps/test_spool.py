"""The write-ahead file keeps what was recorded, whatever happens to its writer."""

import math

import pytest

from steps.spool import Spool, SpoolInfo, point_record, read_records


def _point(step, **values):
    return point_record(values or {"train/loss": 1.0}, step=step, time_ms=1000 + step)


@pytest.fixture
def spool(tmp_path):
    spool = Spool(tmp_path)
    yield spool
    spool.close()


def test_written_records_come_back_in_order(spool):
    for step in range(3):
        spool.append(_point(step))
    spool.drain()
    chunk = spool.unsent()
    assert [record["s"] for record in chunk.records] == [0, 1, 2]


def test_what_was_acknowledged_is_not_sent_again_by_the_next_process(tmp_path):
    first = Spool(tmp_path)
    first.append(_point(0))
    first.drain()
    first.acknowledge(first.unsent())
    first.append(_point(1))
    first.close()
    second = Spool(tmp_path)
    assert [record["s"] for record in second.unsent().records] == [1]
    assert second.num_unsent_points == 1
    second.close()


def test_a_line_torn_by_a_kill_is_dropped_and_writing_goes_on(tmp_path):
    first = Spool(tmp_path)
    first.append(_point(0))
    first.close()
    with (tmp_path / "spool.jsonl").open("a") as file:
        file.write('{"t": 1001, "s": 1, "m": {"train/lo')
    assert [record["s"] for record in read_records(tmp_path)] == [0]
    second = Spool(tmp_path)
    second.append(_point(2))
    second.drain()
    assert [record["s"] for record in second.unsent().records] == [0, 2]
    second.close()


def test_a_call_carries_at_most_1000_points(spool):
    for step in range(120):
        spool.append(_point(step, **{f"train/{i}": 1.0 for i in range(12)}))
    spool.drain()
    sizes = []
    while records := (chunk := spool.unsent()).records:
        sizes.append(sum(len(record["m"]) for record in records))
        spool.acknowledge(chunk)
    assert sizes == [996, 444]


def test_a_call_carries_at_most_100_tags_and_params(spool):
    for i in range(150):
        spool.append({"t": 1, "tags": {f"key {i}": "value"}})
    spool.drain()
    assert len(spool.unsent().records) == 100


def test_non_finite_values_stay_in_the_spool_by_name():
    record = _point(7, a=1.5, b=math.nan, c=math.inf)
    assert record == {"t": 1007, "s": 7, "m": {"a": 1.5}, "x": {"b": "nan", "c": "inf"}}


def test_records_are_kept_when_the_disk_does_not_take_them(spool, monkeypatch):
    spool.append(_point(0))
    spool.drain()
    file = spool._file

    class FullDisk:
        closed = False

        def write(self, data):
            file.write(data[:5])
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(spool, "_file", FullDisk())
    spool.append(_point(1))
    with pytest.raises(OSError, match="No space"):
        spool.drain()
    monkeypatch.setattr(spool, "_file", file)
    spool.drain()
    assert [record["s"] for record in spool.unsent().records] == [0, 1]


def test_only_one_process_writes(spool, tmp_path):
    with pytest.raises(BlockingIOError):
        Spool(tmp_path)


def test_meta_file_names_the_run(tmp_path):
    info = SpoolInfo("abc", "http://tracking:5000", "train")
    info.write(tmp_path)
    assert SpoolInfo.read(tmp_path) == info
    assert SpoolInfo.read(tmp_path / "missing") is None
