"""Trains the toy task in a process of its own, which tests may kill.

Arguments: folder of the checkpoints, loader workers, seconds that each batch takes. Goes on from
the newest checkpoint and prints the update count after each update.
"""

import sys
import time
from pathlib import Path

import torch

from engine.checkpoint import CheckpointStore
from engine.contract import NullLog
from engine.interrupt import Interrupted, Interruption
from engine.loop import fit
from tests.engine.running import train_config
from tests.engine.toy_task import ToyTask

CONFIG = {
    "epochs": 4,
    "accumulate": 2,
    "optimizer": {"name": "adam", "lr": 0.01},
    "ema": {"decay": 0.9},
    "checkpoint": {"every_updates": 2},
}


class SlowTask(ToyTask):
    seconds = 0.0

    def prepare_batch(self, batch, *, update, draws):
        time.sleep(self.seconds)
        return batch


class PrintingLog(NullLog):
    def progress(self, progress):
        print(progress.update, flush=True)


def main(folder, workers, seconds):
    torch.set_num_threads(1)
    interruption = Interruption()
    interruption.install()
    task, store = SlowTask(), CheckpointStore(Path(folder))
    task.seconds = float(seconds)
    try:
        fit(
            task,
            train_config(**CONFIG, workers=int(workers)),
            seed=1,
            log=PrintingLog(),
            store=store,
            device=torch.device("cpu"),
            interruption=interruption,
            resume=store.newest(),
        )
    except Interrupted as interrupted:
        print(interrupted, flush=True)
        sys.exit(interrupted.exit_code)


if __name__ == "__main__":
    main(*sys.argv[1:])
