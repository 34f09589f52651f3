"""What came of a resume proof, for people and for programs."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from steps.experiment import Loaded
    from steps.proving import Extent, Proof

_PACKAGES = ("torch", "numpy", "opencv-python")
_SHOWN_DIGITS = 16


def verdict(proof: Proof, device: torch.device) -> str:
    """Return the proof in one sentence."""
    differences, extent = proof.states.differences, proof.extent
    if differences:
        return (
            f"resume-proof: different: {differences[0].sentence()} is the first of "
            f"{len(differences)} values of {len(proof.states.digests)} that are not the same after "
            f"{_trainings(extent)}{_hint(device)}"
        )
    for result in proof.layouts:
        if result.difference is not None:
            return f"resume-proof: different: batches of {result.layout}: {result.difference}"
    return (
        f"resume-proof: equal: {len(proof.states.digests)} values are the same to the bit after "
        f"{_trainings(extent)}, and {proof.layouts[0].batches} batches in "
        f"{len(proof.layouts)} layouts of ranks and workers"
    )


def report_lines(proof: Proof) -> list[str]:
    """Return a line for each part of the state and each layout of the batches."""
    lines = []
    for name, part in proof.states.parts.items():
        found = _found(part.straight, part.broken)
        lines.append(f"{name}: {part.values} values, {found}")
    for result in proof.layouts:
        found = _found(result.expected, result.sha256)
        lines.append(f"batches of {result.layout}: {result.batches}, {found}")
    return lines


def as_json(
    proof: Proof, loaded: Loaded, *, machine: dict[str, Any], dataset: str
) -> dict[str, Any]:
    """Return all of it as JSON values; numbers that are not finite are texts."""
    from engine.capsule import readable

    states, extent, experiment = proof.states, proof.extent, loaded.experiment
    workers = experiment.train.workers if extent.workers is None else extent.workers
    found: dict[str, Any] = readable(
        {
            "is_equal": proof.is_equal,
            "config": {"name": experiment.name, "digest": loaded.digest, "seed": experiment.seed},
            "dataset": dataset,
            "updates": {"before": extent.before, "after": extent.after},
            "workers": workers,
            "determinism": experiment.train.determinism,
            "precision": experiment.train.precision,
            "machine": machine,
            "first_difference": asdict(states.differences[0]) if states.differences else None,
            "differences": [asdict(difference) for difference in states.differences],
            "parts": {
                name: {**asdict(part), "is_equal": part.straight == part.broken}
                for name, part in states.parts.items()
            },
            "batches": [
                {**asdict(result.layout), **asdict(result), "is_equal": result.difference is None}
                for result in proof.layouts
            ],
            "sha256": dict(states.digests),
        }
    )
    for row in found["batches"]:
        del row["layout"]
    return found


def machine(device: torch.device) -> dict[str, Any]:
    """Return what equal bits depend on, beside the configuration."""
    import torch

    versions = {name: _version(name) for name in _PACKAGES}
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {
        "versions": {"python": platform.python_version(), **versions, "cuda": torch.version.cuda},
        "device": str(device),
        "device_name": name,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", ""),
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _trainings(extent: Extent) -> str:
    updates = extent.before + extent.after
    return (
        f"{updates} updates straight, and {extent.before}, SIGKILL, resume and {extent.after} more"
    )


def _hint(device: torch.device) -> str:
    if device.type == "cuda":
        return "; on CUDA equal bits take train.determinism=strict"
    return ""


def _found(straight: str, broken: str) -> str:
    if straight == broken:
        return f"the same, {straight[:_SHOWN_DIGITS]}"
    return f"DIFFERENT, {straight[:_SHOWN_DIGITS]} and {broken[:_SHOWN_DIGITS]}"
