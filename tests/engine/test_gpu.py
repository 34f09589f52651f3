import pytest
import torch

from engine.checkpoint import CheckpointStore
from engine.contract import Draws, EpochRequest
from engine.guard import TrainingDiverged
from engine.loop import fit
from engine.state import build_state
from engine.updater import Updater
from tests.engine.running import ListLog, assert_same, train_config
from tests.engine.test_guard import SpoiltTask
from tests.engine.toy_task import ToyTask

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
CUDA = torch.device("cuda", 0)


def fit_on_cuda(folder, task, **changes):
    options = {name: changes.pop(name) for name in ("resume",) if name in changes}
    log, store = ListLog(), CheckpointStore(folder)
    config = train_config(**changes)
    fit(task, config, seed=1, log=log, store=store, device=CUDA, **options)
    return log, store.newest()


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_update_never_waits_for_the_device(precision):
    task, config = ToyTask(), train_config(precision=precision, clip_norm=1.0, ema={"decay": 0.9})
    state, _ = build_state(task, config, draws=Draws(1), device=CUDA, config_digest="")
    updater = Updater(task, config, state=state, device=CUDA)
    request = EpochRequest(epoch=0, start=0, rank=0, world_size=1, workers=0, draws=Draws(1))
    first, second, *_ = list(task.train_batches(request))
    updater.start_epoch(trains_other_parts=False)
    updater.step([first], lr_factor=1.0)  # allocates
    torch.cuda.set_sync_debug_mode("error")
    try:
        updater.step([second], lr_factor=1.0)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_losses_are_read_once_a_window_and_name_the_first_bad_update(tmp_path, precision):
    with pytest.raises(TrainingDiverged) as caught:
        fit_on_cuda(tmp_path, SpoiltTask(call=5, loss=float("nan")), precision=precision)
    assert (caught.value.epoch, caught.value.iteration) == (0, 5)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_resumed_run_equals_an_unbroken_one(tmp_path, precision):
    changes = {"precision": precision, "determinism": "strict", "log_every": 3}
    _, whole = fit_on_cuda(tmp_path / "whole", ToyTask(), epochs=2, **changes)
    _, first = fit_on_cuda(tmp_path / "parts", ToyTask(), epochs=1, **changes)
    _, second = fit_on_cuda(tmp_path / "parts", ToyTask(), epochs=2, resume=first, **changes)
    assert_same(second, whole)
