"""The points of a training's curves: measured update by update, logged window by window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from engine.contract import Batch, Progress, RunLog
from engine.devices import peak_memory_gib
from engine.distributed import mean_over_ranks, world_size
from engine.guard import Reading
from engine.optimizers import current_lr
from engine.state import TrainingState

_DATA, _STEP = "time/data_s", "time/step_s"
_NORM, _NONFINITE = "grad/norm", "guard/nonfinite"
_SAMPLES = "samples"


class PointLog:
    """Fills the state's window, and empties it into the run log.

    Args:
        log: takes the points.
        state: holds the window, so that a resumed run's points are those of an unbroken one.
        num_batches: of each epoch.
        num_updates: of the whole training.
        device: whose memory is measured.
    """

    def __init__(
        self,
        log: RunLog,
        state: TrainingState,
        *,
        num_batches: Sequence[int],
        num_updates: int,
        device: torch.device,
    ) -> None:
        self._log = log
        self._state = state
        self._num_batches = num_batches
        self._num_updates = num_updates
        self._device = device
        self._latest: Mapping[str, float] = {}
        self._measures: set[str] = set()

    def add_readings(self, readings: Sequence[Reading]) -> None:
        """Add losses and gradient norms that were read from the device."""
        window = self._state.window
        for reading in readings:
            for measures in reading.measures:
                self._measures.update(f"train/{name}" for name in measures)
            for terms in (*reading.terms, *reading.measures):
                for name, value in terms.items():
                    window.add(f"train/{name}", value)
            window.add(_NORM, reading.norm)
            if reading.is_skipped:
                window.add(_NONFINITE, 1.0)

    def add_times(self, batches: Sequence[Batch], *, data: float, step: float) -> None:
        """Add an update's times.

        Args:
            batches: its batches (this rank's shares).
            data: seconds that were spent waiting for them.
            step: seconds that the update itself took.
        """
        window, count = self._state.window, len(batches)
        window.add(_DATA, data, count=count)
        window.add(_STEP, step, count=count)
        window.add(_SAMPLES, float(sum(len(batch.ids) for batch in batches)), count=count)

    def log_window(self) -> None:
        """Log the window's points, if it has any, and begin a new one. A collective call."""
        window, state = self._state.window, self._state
        if window.sum(_SAMPLES) == 0:
            return
        data, step, samples = mean_over_ranks(
            torch.tensor(
                [window.sum(_DATA), window.sum(_STEP), window.sum(_SAMPLES)], dtype=torch.float64
            )
        ).tolist()
        skipped = window.sum(_NONFINITE)
        means = window.means()
        batches = window.count(_SAMPLES)
        values = {name: mean for name, mean in means.items() if name not in (_SAMPLES, _NONFINITE)}
        values |= {_DATA: data / batches, _STEP: step / batches}
        values["time/images_per_s"] = samples * world_size() / max(data + step, 1e-9)
        values["memory/peak_gib"] = peak_memory_gib(self._device)
        values["progress/epoch"] = self._epochs_done()
        values |= {f"lr/{name}": lr for name, lr in current_lr(state.optimizer).items()}
        if skipped:
            values[_NONFINITE] = skipped
        self._log.metrics(values, step=state.update)
        # what a progress line shows are losses; measures would crowd them out
        self._latest = {k: v for k, v in values.items() if k not in self._measures}
        window.clear()

    def log_progress(self) -> None:
        """Say where training stands."""
        state = self._state
        self._log.progress(
            Progress(
                epoch=state.epoch,
                epochs=len(self._num_batches),
                iteration=state.iteration,
                num_iterations=self._num_batches[state.epoch],
                update=state.update,
                num_updates=self._num_updates,
                values=self._latest,
            )
        )

    def _epochs_done(self) -> float:
        return self._state.epoch + self._state.iteration / self._num_batches[self._state.epoch]
