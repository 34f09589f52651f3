import os
import socket

import pytest
import torch
from torch import multiprocessing

from engine.checkpoint import CheckpointStore
from engine.contract import NullLog
from engine.distributed import (
    any_over_ranks,
    gather_objects,
    is_main,
    join_group,
    leave_group,
    max_over_ranks,
    mean_over_ranks,
    rank,
    world_size,
)
from engine.guard import TrainingDiverged
from engine.interrupt import Interrupted, Interruption
from engine.loop import fit
from tests.engine.running import CPU, last_state, run, train_config
from tests.engine.test_guard import SpoiltTask
from tests.engine.test_updater import PlainTask

CONFIG = {"epochs": 2, "accumulate": 2, "freeze": [{"prefix": "0", "until_epoch": 1}]}


def test_one_process_answers_for_itself():
    assert (rank(), world_size(), is_main()) == (0, 1, True)
    assert (any_over_ranks(True), any_over_ranks(False), gather_objects("a")) == (
        True,
        False,
        ["a"],
    )
    value = torch.ones(2)
    assert mean_over_ranks(value) is value
    assert max_over_ranks(value) is value


def _train(number, folder, job):
    os.environ |= {"RANK": str(number), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    torch.set_num_threads(1)
    join_group(CPU)
    try:
        job(folder)
    finally:
        leave_group()


def _fit(folder, task, **options):
    return fit(
        task,
        train_config(**CONFIG | options.pop("config", {})),
        seed=1,
        log=NullLog(),
        store=CheckpointStore(folder),
        device=CPU,
        **options,
    )


def _talk(folder):
    assert gather_objects(rank()) == [0, 1]
    assert any_over_ranks(rank() == 1)
    assert mean_over_ranks(torch.tensor(float(rank()))).item() == 0.5
    assert max_over_ranks(torch.tensor(float(rank()))).item() == 1.0


def _plain(folder):
    _fit(folder, PlainTask())


def _diverging(folder):
    bad = SpoiltTask(call=3 if rank() == 1 else -1, loss=float("nan"))
    with pytest.raises(TrainingDiverged) as caught:
        _fit(folder, bad, config={"freeze": []})
    assert (caught.value.update, caught.value.iteration) == (1, 3)
    assert len(caught.value.ids) == 4  # of both ranks


class StoppedTask(PlainTask):
    def prepare_batch(self, batch, *, update, draws):
        if update == 2 and rank() == 1:
            os.kill(os.getpid(), 15)
        return batch


def _interrupted(folder):
    interruption = Interruption()
    interruption.install()
    with pytest.raises(Interrupted):
        _fit(folder, StoppedTask(), interruption=interruption)
    interruption.uninstall()
    gather_objects(None)  # rank 0 has written by now
    _fit(folder, PlainTask(), resume=CheckpointStore(folder).newest())


def spawn(job, folder, port):
    os.environ["MASTER_PORT"] = str(port)
    multiprocessing.spawn(_train, args=(folder, job), nprocs=2)


def _disagreeing(folder):
    _fit(folder, PlainTask())
    gather_objects(None)
    resume = CheckpointStore(folder).newest() if is_main() else None
    with pytest.raises(ValueError, match=r"different updates: \[6, 0\]"):
        _fit(folder, PlainTask(), resume=resume)


@pytest.mark.slow
def test_ranks_talk(tmp_path, unused_port):
    spawn(_talk, tmp_path, unused_port)


@pytest.mark.slow
@pytest.mark.parametrize("job", [_plain, _interrupted])
def test_two_ranks_train_as_one(tmp_path, job, unused_port):
    spawn(job, tmp_path / "two", unused_port)
    run(tmp_path / "one", task=PlainTask(), **CONFIG)
    one, two = last_state(tmp_path / "one"), last_state(tmp_path / "two")
    assert one["update"] == two["update"]
    for name, value in one["network"].items():
        torch.testing.assert_close(two["network"][name], value, rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("job", [_diverging, _disagreeing])
def test_ranks_end_together(tmp_path, job, unused_port):
    spawn(job, tmp_path, unused_port)


@pytest.fixture
def unused_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
