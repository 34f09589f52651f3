"""How long `python -m steps.train --help` takes, against Python with click alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.pairs import Ratio, median_ratio, paired_seconds

ROOT = Path(__file__).parents[1]


def measure() -> list[Ratio]:
    """Return the ratio of the help's time to the time of importing click."""
    pairs = paired_seconds(
        lambda: _run("-m", "steps.train", "--help"), lambda: _run("-c", "import click"), pairs=7
    )
    ratio, low, high = median_ratio(pairs)
    best = min(ours for ours, _ in pairs)
    detail = f"fastest {best:.2f} s"
    return [Ratio("train --help", ratio, (low, high), "x import click", "", True, detail)]


def _run(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
