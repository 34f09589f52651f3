"""Which parity test reads which fixture files, by the beginning of their names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

DETECTION = (
    "warmup_lr",
    "epoch_lr_schedules",
    "aspect_ratio_groups_",
    "smoothed_value",
    "fasterrcnn_mnv3_320_state_dict",
    "fasterrcnn_mnv3_320_losses",
    "coco_synth_",
    "coco_val2014_100",
)
LANES = (
    "state_counts_all_backbones",
    "state_culane",
    "state_curvelanes",
    "state_tusimple",
    "model_",
    "train_steps",
    "labels_",
    "losses",
    "lr_curves",
    "decode",
    "transform_test",
    "transform_train",
    "culane_eval",
    "curvelanes_eval",
    "tusimple_eval",
)
# task -> kinds
KINDS = {"detection": DETECTION, "lanes": LANES}
# kinds that lie in the same folders and are read by parity tests of other tasks
ELSEWHERE = ("yolo", "seqnet", "person_search_", "kuhn_munkres")

REPOSITORY = Path(__file__).resolve().parent.parent.parent
COPIES = REPOSITORY / "tests" / "fixtures"
SHARED = REPOSITORY.parent / "shared" / "fixtures"


def fixture_folder(config: pytest.Config, task: str) -> Path:
    """Return the folder that was given to pytest, else the copies of the task."""
    given = config.getoption("--fixture-folder")
    return Path(given) if given else COPIES / task


def fixture_files(config: pytest.Config, task: str, kind: str) -> list[Path]:
    """Return the files of a kind; of one that is not in the copies, the shared ones.

    A .json stands for the .npz of the same stem beside it.
    """
    found = _files_of(fixture_folder(config, task), kind)
    if found or config.getoption("--fixture-folder"):
        return found
    return _files_of(SHARED / task / "open", kind)


def _files_of(folder: Path, kind: str) -> list[Path]:
    paths = sorted(folder.glob(f"{kind}*"))
    return [p for p in paths if p.suffix == ".json" or p.with_suffix(".json") not in paths]


def unknown_files(folder: Path, known: Sequence[str]) -> list[Path]:
    """Return the files that are of none of the kinds."""
    return sorted(
        path
        for path in folder.glob("*")
        if not path.name.startswith(tuple(known)) and path.suffix != ".md"
    )
