"""The one training loop: *when* things happen, in their order.

`fit` goes through epochs, `train_epoch` through an epoch's updates, `Updater.step`
(engine/updater.py) makes one. There are no hooks: when a point is logged, a score is taken or a
checkpoint is written stands on this page.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from engine.checkpoint import CheckpointStore
from engine.config import RollbackGuardConfig, TrainConfig
from engine.contract import Batch, Draws, Evaluation, RunLog, Task
from engine.distributed import any_over_ranks, gather_objects, is_main, share_object, world_size
from engine.faults import can_step_back, most_steps_back
from engine.foreign import FOREIGN, adopt
from engine.guard import TrainingDiverged
from engine.interrupt import Interrupted, Interruption
from engine.seeding import seed_everything
from engine.state import BestScore, build_state
from engine.training import Training


@dataclass(frozen=True)
class FitResult:
    """How a training ended.

    Args:
        updates: optimizer updates done.
        epochs: epochs done.
        best_score: the best headline score; None if none was a number.
        best_path: the checkpoint that reached it.
        last_path: the newest checkpoint.
        stopped_early: whether the score stood still for too long.
        headline: the score's name.
    """

    updates: int
    epochs: int
    best_score: float | None
    best_path: Path | None
    last_path: Path | None
    stopped_early: bool
    headline: str | None


def fit(  # noqa: PLR0913  (called once a run; each argument is another party)
    task: Task,
    config: TrainConfig,
    *,
    seed: int,
    log: RunLog,
    store: CheckpointStore,
    device: torch.device,
    interruption: Interruption | None = None,
    resume: Mapping[str, Any] | None = None,
    config_digest: str = "",
    compat: Collection[str] = (),
) -> FitResult:
    """Train a task's network, from its start or from where a checkpoint was written.

    Args:
        task: says what is trained, on what, and how it is scored.
        config: the experiment's `train` section.
        seed: the experiment's seed.
        log: takes points, pictures and events; a rank other than 0 passes one that keeps nothing.
        store: takes checkpoints.
        device: where to train.
        interruption: turns signals into an orderly end, where it is installed.
        resume: a checkpoint's content, or what `engine.foreign.read_foreign` made of another
            program's.
        config_digest: the experiment's, to notice a resume with another one.
        compat: reference defects to keep; the loop knows `warmup_cap` and `lr_curve`.

    Raises:
        TrainingDiverged: at the first loss or gradient that is not finite.
        Interrupted: after a signal, once a checkpoint is written.
        ValueError: if the configuration does not fit the network, the data or the checkpoint.
        CheckpointError: if a checkpoint cannot be written.
    """
    seed_everything(Draws(seed), config.determinism)
    num_batches = _count_batches(task, config)
    # what is resumed has its weights; the file they once came from may be gone
    start = config if resume is None else config.model_copy(update={"initial_weights": None})
    state, report = build_state(
        task, start, draws=Draws(seed), device=device, config_digest=config_digest
    )
    training = Training(task, config, state, log, store, device, num_batches, compat, interruption)
    if report is not None:
        log.event("initial_weights", report, step=0)
    _agree_on_start(resume)
    if resume is not None:
        _resume(training, resume)
    # ranks must end at the same update: with several, a signal waits until they have met
    with training.interruption.deferred() if world_size() > 1 else nullcontext():
        try:
            train(training)
        except Interrupted as interrupted:
            save_interrupted(training, interrupted)
            raise
        except TrainingDiverged as diverged:
            log.metrics({"guard/nonfinite": 1.0}, step=training.state.update)
            log.event("diverged", str(diverged), step=training.state.update)
            raise
    return _result(training)


def train(training: Training) -> None:
    """Go through the epochs that are left."""
    state = training.state
    if state.update == 0 and training.config.evaluate_first:
        # curves and pictures begin with the network as it starts
        log_evaluation(training, *evaluate(training))
    if state.update == 0 and can_step_back(training.config.guard):
        save(training)  # the first step back may be needed before the first epoch's end
    while state.epoch < training.config.epochs and not training.stands_still():
        training.task.start_epoch(state.epoch, state.network)
        changed = state.freezing.apply(state.epoch)
        training.updater.start_epoch(trains_other_parts=changed)
        try:
            train_epoch(training)
            finish_epoch(training)
        except TrainingDiverged as diverged:
            if not step_back(training, diverged):
                raise
    if is_main() and training.store.newest_path() is None:
        save(training)  # a run that had only its last words left was gone on from


def train_epoch(training: Training) -> None:
    """Make the updates of the epoch that are left."""
    state = training.state
    for batches, waited in _timed(training.batches_of_updates()):
        with training.interruption.deferred():  # an update is made whole, or not at all
            started = time.perf_counter()
            trace = training.updater.step(batches, lr_factor=training.lr_factor())
            state.update += 1
            state.iteration += len(batches)
            training.guard.add(trace)
            if training.reads_device():
                read_device(training)
            step = time.perf_counter() - started
            training.points.add_times(batches, data=waited, step=step)
            if training.ends_window():
                training.points.log_window()
            training.points.log_progress()
            if training.saves_after_update():
                save(training)
    if state.iteration != training.num_batches[state.epoch]:
        raise RuntimeError(
            f"epoch {state.epoch} ended after {state.iteration} batches, "
            f"the task promised {training.num_batches[state.epoch]}"
        )


def step_back(training: Training, diverged: TrainingDiverged) -> bool:
    """Go back to the newest checkpoint, where `train.guard` says so; a collective call.

    Returns:
        Whether training can go on.
    """
    state, guard = training.state, training.config.guard
    if not can_step_back(guard) or state.steps_back >= most_steps_back(guard):
        return False
    found = share_object(training.store.newest() if is_main() else None)
    if found is None:
        return False
    # what is counted goes on counting; all else is as it was
    patience, steps_back, lr_scale = state.patience.state_dict(), state.steps_back, state.lr_scale
    restarts = state.draws.restarts
    training.guard.forget()
    state.load_state_dict(found)
    state.patience.load_state_dict(patience)
    state.patience.renew()
    state.steps_back = steps_back + 1
    if isinstance(guard, RollbackGuardConfig):
        state.lr_scale = lr_scale * guard.lr_factor
        change = f"learning rates times {state.lr_scale:g}"
    else:
        state.draws = Draws(state.draws.seed, restarts + 1)
        change = f"random draws number {restarts + 1}"
    name = "rolled_back" if isinstance(guard, RollbackGuardConfig) else "restarted"
    training.log.event(
        name,
        f"{diverged}; back to update {state.update} with {change} "
        f"({state.steps_back} of {most_steps_back(guard)})",
        step=state.update,
    )
    save(training)  # a resumed run must not go the way that led nowhere
    return True


def finish_epoch(training: Training) -> None:
    """Score the epoch's network if it is time, and write what came of the epoch."""
    state, log = training.state, training.log
    is_evaluated = training.evaluates_after_epoch()
    with training.interruption.deferred():
        read_device(training)
        if is_evaluated:
            save(training)  # an evaluation takes long, and may fail
    evaluation, seconds = evaluate(training) if is_evaluated else (None, 0.0)
    with training.interruption.deferred():
        is_best = evaluation is not None and take_score(training, evaluation, seconds)
        is_kept = training.keeps_epoch()
        if training.stands_still():
            training.points.log_window()
            log.event("early_stop", training.early_stop_message(), step=state.update)
        state.epoch, state.iteration = state.epoch + 1, 0
        if is_evaluated or is_kept or state.epoch % training.config.checkpoint.every_epochs == 0:
            save(training, is_best=is_best, is_kept=is_kept)


def read_device(training: Training) -> None:
    """Read what updates measured since the last reading; with several ranks, let them meet.

    Raises:
        TrainingDiverged: if a loss or gradient was not finite.
        Interrupted: if a signal reached any rank.
    """
    training.points.add_readings(training.guard.read())
    if world_size() > 1 and any_over_ranks(training.interruption.is_requested):
        raise Interrupted(training.interruption.signal_name or "a signal to another rank")


def evaluate(training: Training) -> tuple[Evaluation, float]:
    """Score the network that would be deployed on `val`; return also the seconds it took."""
    network = training.state.deployed
    network.eval()
    started = time.perf_counter()
    with torch.no_grad():
        evaluation = training.task.evaluate(network, "val", device=training.device, detail=False)
    return evaluation, time.perf_counter() - started


def log_evaluation(training: Training, evaluation: Evaluation, seconds: float) -> None:
    """Log scores and pictures at the current update."""
    state = training.state
    values = {f"val/{name}": score for name, score in evaluation.scores.items()}
    if state.best.score is not None:
        values[f"val/best_{evaluation.headline}"] = state.best.score
    training.log.metrics(values | {"time/evaluate_s": seconds}, step=state.update)
    pictures = {f"pictures/{key}": picture for key, picture in evaluation.pictures.items()}
    training.log.pictures(pictures, step=state.update)


def take_score(training: Training, evaluation: Evaluation, seconds: float) -> bool:
    """Log an evaluation, and tell whether its headline score is the best so far."""
    state, stopping = training.state, training.config.early_stopping
    # one rank's word counts, so that all go the same way
    score = gather_objects(evaluation.scores[evaluation.headline])[0]
    if state.headline not in (None, evaluation.headline):
        state.best = BestScore()  # resumed, and what counts is another score now
    state.headline = evaluation.headline
    min_change = stopping.min_change if stopping else 0.0
    is_best = state.best.take(score, update=state.update, min_change=min_change)
    log_evaluation(training, evaluation, seconds)
    return is_best


def save(training: Training, *, is_best: bool = False, is_kept: bool = False) -> None:
    """Write a checkpoint of a state whose losses have been read; mark it as told.

    Raises:
        TrainingDiverged: instead, if one of them was not finite.
        CheckpointError: if it cannot be written.
    """
    state, store = training.state, training.store
    training.points.add_readings(training.guard.read())
    if not is_main():
        return
    epoch = state.epoch - 1 if is_kept else None
    path = store.save(state.state_dict(), update=state.update, epoch=epoch)
    store.prune(keep=training.config.checkpoint.keep)
    training.log.checkpoint(str(path), kind="last")
    if is_best:
        training.log.checkpoint(str(store.mark_best(path)), kind="best")
    if epoch is not None:
        training.log.checkpoint(str(store.epoch_path(epoch)), kind="every")


def save_interrupted(training: Training, interrupted: Interrupted) -> None:
    """Write where the run was when the signal came: after its last whole update."""
    save(training)
    training.log.event(
        "interrupted", f"{interrupted}; checkpoint saved", step=training.state.update
    )


def _count_batches(task: Task, config: TrainConfig) -> list[int]:
    counts = [task.num_batches(epoch) for epoch in range(config.epochs)]
    if 0 in counts:
        raise ValueError(
            f"train.batch_size: epoch {counts.index(0)} has no batch; the training split has "
            f"fewer samples than one batch of {config.batch_size}"
        )
    return counts


def _agree_on_start(resume: Mapping[str, Any] | None) -> None:
    """Ranks that start at different updates would wait for each other for ever."""
    starts = gather_objects(0 if resume is None else resume["update"])
    if len(set(starts)) > 1:
        raise ValueError(f"resume: ranks were given checkpoints of different updates: {starts}")


def _resume(training: Training, checkpoint: Mapping[str, Any]) -> None:
    """Go on where a checkpoint was written, and say so if the experiment is another one."""
    state = training.state
    if FOREIGN in checkpoint:
        checkpoint, said = adopt(checkpoint, state.state_dict(), timeline=training.timeline)
        training.log.event("resumed_from_file", said, step=checkpoint["update"])
    state.load_state_dict(checkpoint)
    if state.epoch < training.config.epochs and state.iteration > training.num_batches[state.epoch]:
        raise ValueError(
            f"resume: the checkpoint is at batch {state.iteration} of epoch {state.epoch}, which "
            f"has {training.num_batches[state.epoch]} batches; the data or train.batch_size differ"
        )
    if checkpoint["config_digest"] != state.config_digest:
        training.log.event(
            "config_changed",
            f"resumed from an experiment with digest {checkpoint['config_digest']}, this one has "
            f"{state.config_digest}: the training goes on, but is not what either says",
            step=state.update,
        )
    if is_main():
        _find_best(training)


def _find_best(training: Training) -> None:
    """See to it that the best score so far is that of a file in the store."""
    state, store = training.state, training.store
    if state.best.update in (None, store.best_update()):
        return
    if state.best.update == state.update:
        # the run was ended between writing this state and marking it
        save(training, is_best=True)
        return
    training.log.event(
        "best_missing",
        f"the checkpoint of the best score so far, {state.best.score} at update "
        f"{state.best.update}, is not in {store.directory}: the best of what follows counts",
        step=state.update,
    )
    state.best.score = state.best.update = None


def _result(training: Training) -> FitResult:
    state, store = training.state, training.store
    return FitResult(
        updates=state.update,
        epochs=state.epoch,
        best_score=state.best.score,
        best_path=store.best_path(),
        last_path=store.newest_path(),
        stopped_early=state.epoch < training.config.epochs,
        headline=state.headline,
    )


def _timed(groups: Iterator[list[Batch]]) -> Iterator[tuple[list[Batch], float]]:
    """Yield each group with the seconds that were spent waiting for it."""
    started = time.perf_counter()
    for group in groups:
        yield group, time.perf_counter() - started
        started = time.perf_counter()
