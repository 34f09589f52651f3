"""One training of a resume proof, as a process that may be killed; opens no run.

`python -m steps.proof_child` is started by steps/proving.py. It goes on from the newest state in
its folder, if there is one.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from steps.options import step_command


@dataclass(frozen=True)
class Job:
    """What the process is to do.

    Args:
        config: the experiment's resolved YAML.
        index: folder of the data's indexes.
        folder: where `checkpoints` are.
        device: where to train.
        workers: loader processes; None: as configured.
        ends_at: the training ends when the state after so many updates is on disk.
        holds_at: the training waits to be killed after making one update more than so many; None:
            it does not wait.
    """

    config: str
    index: str
    folder: str
    device: str
    workers: int | None
    ends_at: int
    holds_at: int | None = None

    def as_text(self) -> str:
        """Return it as the process's argument."""
        return json.dumps(asdict(self))


@step_command()
@click.argument("job")
def main(job: str) -> None:
    """Train as JOB, a JSON text, says."""
    train(Job(**json.loads(job)))


def train(job: Job) -> None:
    """Train until the job's end.

    Raises:
        ValueError: if the experiment's training is over before that.
    """
    import torch

    from engine.checkpoint import CheckpointStore
    from engine.loop import fit
    from engine.proof import ProofLog, Reached, proof_config
    from steps.experiment import load
    from steps.prepared import wiring_of

    loaded = load(job.config)
    experiment = loaded.experiment
    store = CheckpointStore(Path(job.folder) / "checkpoints")
    task = wiring_of(loaded).build_task(experiment, index=Path(job.index))
    try:
        result = fit(
            task,
            proof_config(experiment.train, workers=job.workers),
            seed=experiment.seed,
            log=ProofLog(ends_at=job.ends_at, holds_at=job.holds_at),
            store=store,
            device=torch.device(job.device),
            resume=store.newest(),
            config_digest=loaded.digest,
            compat=experiment.defects,
        )
    except Reached:
        return
    finally:
        task.close()
    raise ValueError(
        f"train.epochs: this training ends after {result.updates} updates, the proof needs "
        f"{job.ends_at}; set more epochs, or prove fewer updates"
    )


if __name__ == "__main__":
    main()
