"""`make bench`: every measurement in turn; `python -m benchmarks NAME ...` runs some.

Each prints a ratio of two things timed in one run. Absolute times of a shared machine mean little.
"""

from __future__ import annotations

import importlib
import os
import sys

MEASUREMENTS = (
    "train_loop",
    "torchvision_loop",
    "logging_cost",
    "coco_evaluation",
    "loader",
    "lane_decoding",
    "culane_evaluation",
    "lane_labels",
    "lane_loader",
    "startup",
)


def main(names: list[str]) -> int:
    """Run the measurements and print a line for each; 1 when a target was missed."""
    unknown = sorted(set(names) - set(MEASUREMENTS))
    if unknown:
        print(f"unknown measurement {unknown[0]!r}; there are: {', '.join(MEASUREMENTS)}")
        return 2
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    missed = False
    for name in names or MEASUREMENTS:
        for ratio in importlib.import_module(f"benchmarks.{name}").measure():
            print(ratio.line(), flush=True)
            missed |= bool(ratio.target) and not ratio.is_met
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
