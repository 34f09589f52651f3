"""What the resume-proof step does: two trainings as processes, one of them killed, and compared."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steps.devices import find_device
from steps.experiment import PROJECT_FOLDER, load
from steps.options import working_folder
from steps.prepared import dataset_digest, prepared_index, wiring_of
from steps.proof_child import Job
from steps.proof_report import as_json, machine, report_lines, verdict
from steps.runs import open_run

if TYPE_CHECKING:
    import torch

    from engine.batch_proof import LayoutResult
    from engine.proof import Comparison
    from steps.experiment import Loaded
    from steps.run_handle import RunHandle

ARTIFACT = "resume_proof.json"
_SECONDS_BETWEEN_LOOKS = 0.01


class ProofError(Exception):
    """A training that does not resume to the bit, or that could not be tried; one sentence."""

    exit_code = 1


@dataclass(frozen=True)
class Extent:
    """How much is proved.

    Args:
        before: updates on disk when the training is killed.
        after: updates after the resume.
        workers: loader processes of the trainings; None: as configured.
        batches: how many are compared; None: a whole epoch's.
    """

    before: int
    after: int
    workers: int | None
    batches: int | None


@dataclass(frozen=True)
class Proof:
    """What came of it.

    Args:
        extent: how much was proved.
        states: the two trainings' final states.
        layouts: what came of the batches, one entry per number of ranks and workers.
    """

    extent: Extent
    states: Comparison
    layouts: list[LayoutResult]

    @property
    def is_equal(self) -> bool:
        """Whether all is the same to the bit."""
        return self.states.is_equal and not any(r.difference for r in self.layouts)


def prove(
    config: str | None, overrides: str, *, device: str, prepare_run: str, extent: Extent
) -> list[str]:
    """Prove an experiment's resume in a run of its own; return the report, the verdict last.

    Args:
        config: YAML of the experiment; None: the default.
        overrides: values in place of the file's.
        device: auto, cpu, cuda or cuda:N.
        prepare_run: the prepare run whose index is used; empty: prepare now.
        extent: how much is proved.

    Raises:
        ProofError: if anything differs, or a training of the proof fails.
        DatasetError, WeightsError, DeviceError: the user's to mend.
    """
    loaded = load(config, overrides)
    torch_device = find_device(device)
    with open_run("resume_proof", loaded) as run:
        index = prepared_index(loaded, prepare_run=prepare_run, run_id=run.run_id)
        digest = dataset_digest(
            wiring_of(loaded).summarise(loaded.experiment, index=index), "train"
        )
        folder = working_folder() / "runs" / run.run_id / "proof"
        trial = Trial(loaded, index, folder, torch_device, extent)
        proof = Proof(extent, trial.states(), trial.layouts())
        run.json(as_json(proof, loaded, machine=machine(torch_device), dataset=digest), ARTIFACT)
        _tell(run, proof, torch_device)
        if not proof.is_equal:
            raise ProofError(
                f"{verdict(proof, torch_device)}; all of it in {ARTIFACT}, states in {folder}"
            )
        shutil.rmtree(folder)
        return [*report_lines(proof), f"run {run.run_id}", verdict(proof, torch_device)]


def _tell(run: RunHandle, proof: Proof, device: torch.device) -> None:
    run.tag("verdict", "equal" if proof.is_equal else "different")
    run.describe(
        verdict(proof, device), more="\n".join(f"    {line}" for line in report_lines(proof))
    )


class Trial:
    """The trainings of a proof, in a folder of their own.

    Args:
        loaded: the experiment.
        index: folder of the data's indexes.
        folder: for configuration, checkpoints and the processes' output; made anew.
        device: where to train.
        extent: how much is proved.
    """

    def __init__(
        self, loaded: Loaded, index: Path, folder: Path, device: torch.device, extent: Extent
    ) -> None:
        self._loaded, self._index, self._folder = loaded, index, folder
        self._device, self._extent = device, extent
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(loaded.text, encoding="utf-8")

    def states(self) -> Comparison:
        """Train without a break, and with one; compare what is left.

        Raises:
            ProofError: if a training fails, or the states on disk are not those that are needed.
        """
        from engine.proof import compare_states

        extent = self._extent
        end = extent.before + extent.after
        self._finish("straight", ends_at=end)
        self._kill("broken", at=extent.before, ends_at=end)
        self._state("broken", extent.before)
        self._finish("broken", ends_at=end)
        return compare_states(self._state("straight", end), self._state("broken", end))

    def layouts(self) -> list[LayoutResult]:
        """Compare batches for several numbers of ranks and loader processes."""
        from engine.batch_proof import prove_batches
        from engine.contract import Draws

        experiment = self._loaded.experiment
        task = wiring_of(self._loaded).build_task(experiment, index=self._index)
        return prove_batches(task, Draws(experiment.seed), count=self._extent.batches)

    def _finish(self, name: str, *, ends_at: int) -> None:
        """Train, from the newest state if there is one, until the process ends by itself."""
        with self._process(name, ends_at=ends_at) as process:
            while process.poll() is None:
                time.sleep(_SECONDS_BETWEEN_LOOKS)
        if process.returncode:
            raise self._failed(name, process)

    def _kill(self, name: str, *, at: int, ends_at: int) -> None:
        """Train, and kill the process as soon as the state of an update is on disk."""
        checkpoints = self._folder / name / "checkpoints"
        with self._process(name, ends_at=ends_at, holds_at=at) as process:
            while not any(checkpoints.glob(f"update-{at:08d}-*.pt")):
                if process.poll() is not None:
                    raise self._failed(name, process)
                time.sleep(_SECONDS_BETWEEN_LOOKS)
        if process.returncode != -signal.SIGKILL:
            raise self._failed(name, process)

    def _state(self, name: str, update: int) -> dict[str, Any]:
        from engine.checkpoint import CheckpointStore

        state = CheckpointStore(self._folder / name / "checkpoints").newest()
        found = None if state is None else state["update"]
        if state is None or found != update:
            raise ProofError(
                f"the {name} training left the state of update {found}, not of {update}; see "
                f"{self._output(name)}"
            )
        return state

    @contextmanager
    def _process(
        self, name: str, *, ends_at: int, holds_at: int | None = None
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Start a training; what still lives at the block's end is killed, loaders included."""
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        job = Job(
            config=str(self._folder / "config.yaml"),
            index=str(self._index.absolute()),
            folder=str(folder),
            device=str(self._device),
            workers=self._extent.workers,
            ends_at=ends_at,
            holds_at=holds_at,
        )
        command = [sys.executable, "-m", "steps.proof_child", job.as_text()]
        with self._output(name).open("ab") as output:
            process = subprocess.Popen(
                command, cwd=PROJECT_FOLDER, stdout=output, stderr=output, start_new_session=True
            )
        try:
            yield process
        finally:
            _kill_all(process)

    def _output(self, name: str) -> Path:
        return self._folder / name / "output.txt"

    def _failed(self, name: str, process: subprocess.Popen[bytes]) -> ProofError:
        lines = self._output(name).read_text(encoding="utf-8", errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
        return ProofError(
            f"the {name} training ended with exit code {process.returncode}: "
            f"{last.removeprefix('Error: ')}"
        )


def _kill_all(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
