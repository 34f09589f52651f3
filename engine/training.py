"""The parties of one training, and what is due when. The loop (engine/loop.py) asks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice

import torch

from engine.capsule import CapsuleError, CapsuleStore, make_capsule
from engine.checkpoint import CheckpointStore
from engine.config import TrainConfig
from engine.contract import Batch, EpochRequest, RunLog, Task
from engine.distributed import is_main, rank, share_object, world_size
from engine.faults import Fault
from engine.guard import FiniteGuard, UpdateTrace
from engine.interrupt import Interruption
from engine.points import PointLog
from engine.schedules import Timeline, capped_warmup, lagging_lr_factor, lr_factor
from engine.state import TrainingState
from engine.updater import Updater

MOST_NAMED = 16


class Training:
    """The parties of one training, and what is due when.

    Args:
        task: says what is trained.
        config: the experiment's `train` section.
        state: what training changes.
        log: takes points.
        store: takes checkpoints.
        device: where to train.
        num_batches: of each epoch.
        compat: reference defects to keep.
        interruption: None where signals are not handled.
    """

    def __init__(  # noqa: PLR0913  (each is another party)
        self,
        task: Task,
        config: TrainConfig,
        state: TrainingState,
        log: RunLog,
        store: CheckpointStore,
        device: torch.device,
        num_batches: Sequence[int],
        compat: Collection[str],
        interruption: Interruption | None,
    ) -> None:
        self.task, self.config, self.state = task, config, state
        self.log, self.store, self.device = log, store, device
        self.capsules = CapsuleStore(store.directory.parent / "capsules")
        self.num_batches = tuple(num_batches)
        self.interruption = interruption or Interruption()
        self.timeline = Timeline.of([-(-n // config.accumulate) for n in num_batches])
        self.updater = Updater(task, config, state=state, device=device)
        self.guard = FiniteGuard(
            seed=state.draws.seed,
            scales_loss=state.scaler.is_enabled(),
            config=config.guard,
            patience=state.patience,
            on_fault=self._take_note,
        )
        self.points = PointLog(
            log, state, num_batches=num_batches, num_updates=self.timeline.updates, device=device
        )
        self._warmup = config.warmup
        if "warmup_cap" in compat:
            self._warmup = capped_warmup(config.warmup, first_epoch_batches=num_batches[0])
        self._lr_factor = lagging_lr_factor if "lr_curve" in compat else lr_factor

    def lr_factor(self) -> float:
        """Return the learning rate's factor for the next update."""
        factor = self._lr_factor(
            self.state.update,
            timeline=self.timeline,
            schedule=self.config.schedule,
            warmup=self._warmup,
        )
        return factor * self.state.lr_scale

    def _take_note(self, fault: Fault, trace: UpdateTrace) -> None:
        """Say that an update went wrong and what was done about it; a collective call."""
        self._keep_capsule(fault, trace)
        if self.config.guard.policy == "stop":
            return  # the end of the run says it
        name = "mended" if fault.is_mended else "left_out"
        done = "mended with zeros" if fault.is_mended else "left out"
        self.log.event(
            name,
            f"update {fault.update} (epoch {fault.epoch}, iteration {fault.iteration}) {done}: "
            f"{fault.reason}; samples: {', '.join(fault.ids[:MOST_NAMED])}",
            step=fault.update + 1,
        )

    def _keep_capsule(self, fault: Fault, trace: UpdateTrace) -> None:
        """Keep what `replay` needs to make the update once more; no failure of that counts."""
        if not share_object(self.capsules.has_room() if is_main() else False):
            return
        try:
            capsule = make_capsule(
                fault, trace, state=self.state, config=self.config, store=self.store
            )
            if is_main():
                self.log.capsule(str(self.capsules.save(capsule)))
        except CapsuleError as error:
            self.log.event("capsule_failed", str(error), step=self.state.update)

    def batches_of_updates(self) -> Iterator[list[Batch]]:
        """Yield the epoch's batches that are left, as many at a time as make an update."""
        state = self.state
        if state.iteration == self.num_batches[state.epoch]:
            return
        request = EpochRequest(
            epoch=state.epoch,
            start=state.iteration,
            rank=rank(),
            world_size=world_size(),
            workers=self.config.workers,
            draws=state.draws,
            pin_memory=self.device.type == "cuda",
        )
        batches = iter(self.task.train_batches(request))
        while group := list(islice(batches, self.config.accumulate)):
            yield group

    def ends_window(self) -> bool:
        """Tell whether points are due after this update."""
        update = self.state.update
        return update % self.config.log_every == 0 or update == self.timeline.updates

    def reads_device(self) -> bool:
        """Tell whether to wait for the device after this update; on the CPU that costs nothing."""
        return self.device.type == "cpu" or self.ends_window()

    def saves_after_update(self) -> bool:
        """Tell whether a checkpoint is due after this update, beside those of epochs."""
        every = self.config.checkpoint.every_updates
        return every is not None and self.state.update % every == 0

    def evaluates_after_epoch(self) -> bool:
        """Tell whether the epoch that is going on ends with an evaluation, as the last does."""
        done = self.state.epoch + 1
        return done % self.config.evaluate_every == 0 or done == self.config.epochs

    def keeps_epoch(self) -> bool:
        """Tell whether the checkpoint of the epoch that is going on stays for good."""
        every = self.config.checkpoint.keep_every_epochs
        return every is not None and (self.state.epoch + 1) % every == 0

    def stands_still(self) -> bool:
        """Tell whether the score has not become better for as long as is allowed."""
        stopping = self.config.early_stopping
        waited = self.state.best.evaluations_without_better
        return stopping is not None and waited >= stopping.patience

    def early_stop_message(self) -> str:
        """Return why the training ends early."""
        best = self.state.best
        return (
            f"{self.state.headline} was not better than {best.reference} in "
            f"{best.evaluations_without_better} evaluations; stopped after epoch {self.state.epoch}"
        )
