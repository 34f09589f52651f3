"""A run log is ended at random points; what it had written is sent later, once."""

import json
from collections import Counter

import pytest

from steps.spool import Spool
from steps.sync import find_spools, send_spool
from tests.crash.log_server import ARTIFACTS, POINTS, RUN, TAKEN, FileStore
from tests.crash.seeds import LOG_CASES, extent, generator, seed
from tests.crash.toy_server import REPORTED

ENDINGS = ("kill", "outside", "torn", "empty")


@pytest.fixture(scope="module")
def counts(log_server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    assert log_server.run(folder=folder)[0] == 0
    _check(folder, written=POINTS - 1, files=[])
    return json.loads((folder / "counts.json").read_text())


def _case(number):
    rng = generator("log", number)
    return ENDINGS[number % len(ENDINGS)], rng.random(), rng


def _named(number):
    ending, share, _ = _case(number)
    return f"seed{seed()}-{number}-{ending}@{share:.2f}"


@pytest.mark.parametrize("number", range(LOG_CASES[extent()]), ids=_named)
def test_what_was_written_is_sent_once(number, log_server, counts, tmp_path, monkeypatch):
    ending, share, rng = _case(number)
    if ending == "outside":
        pid = log_server.start(folder=tmp_path)
        log_server.kill_after(pid, 0.4 * share)
    else:
        call = 1 + int(0.9 * share * counts["log"])
        assert log_server.run(folder=tmp_path, phase="log", call=call)[0] == -9
    written, files = _reported(tmp_path)
    if ending in ("torn", "empty"):
        _cut_power(tmp_path / RUN, rng, how=ending)
    monkeypatch.setattr("steps.sync._client", lambda info: FileStore(tmp_path))
    for folder, info in list(find_spools(tmp_path, "all")):
        assert send_spool(folder, info).problem == ""
    assert not list(find_spools(tmp_path, "all"))
    _check(tmp_path, written=written, files=files)


def _reported(folder):
    said = [json.loads(line) for line in (folder / REPORTED).read_text().splitlines()]
    steps = [one["written"] for one in said if "written" in one]
    return max(steps, default=-1), [one["file"] for one in said if "file" in one]


def _cut_power(folder, rng, *, how):
    """Take away what was not synchronised: the count of what was sent; a part of a line."""
    if (folder / "sent.json").exists():
        (folder / "sent.json").write_text("")
    if how == "torn" and (folder / "spool.jsonl").exists():
        with (folder / "spool.jsonl").open("ab") as file:
            file.write(b'{"t":17,"s":9999,"m":{"train/lo'[: rng.randrange(1, 31)])


def _check(folder, *, written, files):
    """Hold what the store took against what was reported: nothing lost, nothing doubled."""
    path = folder / TAKEN
    rows = (
        [tuple(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []
    )
    # an equal row is one row in MLflow's database
    times = Counter((key, step) for key, step, _, _ in set(rows))
    assert set(times.values()) <= {1}
    for key in ("train/loss", "lr/all"):
        missing = [step for step in range(written + 1) if (key, step) not in times]
        assert not missing
    for name in files:
        number = int(name.removeprefix("update-").removesuffix(".pt"))
        assert (folder / ARTIFACTS / "checkpoints" / name).read_bytes() == bytes([number]) * 3000


def test_a_spool_whose_run_is_unknown_is_told(tmp_path, caplog):
    spool = Spool(tmp_path / RUN)
    spool.append({"t": 0, "s": 0, "m": {"train/loss": 1.0}})
    spool.close()
    (tmp_path / RUN / "meta.json").write_text("")
    assert not list(find_spools(tmp_path, "all"))
    assert "meta.json is damaged" in caplog.text
