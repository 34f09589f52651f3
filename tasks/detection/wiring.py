"""Ties the detection task to the steps: preparation, the task, what a deployed model must know."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from readers.index import ImageBoxesIndex
from tasks.detection.prepare import prepare_data
from tasks.detection.task import DetectionTask
from tasks.splits import SavedSplit, open_splits

# which key of a source says where its labels are
_LABELS = {"coco": "annotations", "yolo": "path", "voc": "root"}


def prepare(
    experiment: Any, *, base: Path, working: Path, output: Path, jobs: int
) -> Mapping[str, SavedSplit]:
    """Check the data sets, write their indexes and the quality report into `output`.

    Raises:
        DatasetError: when a data set cannot be used; the report is written all the same.
    """
    prepare_data(experiment.data, base=base, working=working, output=output, jobs=jobs)
    return summarise(experiment, index=output)


def summarise(experiment: Any, *, index: Path) -> Mapping[str, SavedSplit]:
    """Summarise the splits that `prepare` wrote into the folder `index`."""
    return {
        split: SavedSplit(opened.digest, len(opened), _source_of(experiment.data, split))
        for split, opened in open_splits(index, ImageBoxesIndex).items()
    }


def data_key(experiment: Any) -> Mapping[str, Any]:
    """Return the sources of the splits; what is done with the pictures later does not count."""
    return experiment.data.model_dump(mode="json", include={"train", "val", "test", "splits"})


def build_task(experiment: Any, *, index: Path) -> DetectionTask:
    """Return the detection task over the prepared splits in the folder `index`."""
    return DetectionTask(
        data=experiment.data,
        model=experiment.model,
        evaluate=experiment.evaluate,
        batch_size=experiment.train.batch_size,
        indexes=open_splits(index, ImageBoxesIndex),
        compat=experiment.defects,
    )


def classes(index: Path) -> Mapping[str, list[Any]]:
    """Return the class names and their ids in the data set's files, in label order."""
    opened = next(iter(open_splits(index, ImageBoxesIndex).values()))
    return {"names": list(opened.class_names), "ids": [int(i) for i in opened.class_ids]}


def _source_of(data: Any, split: str) -> str:
    """Return the file or folder that a split's labels came from."""
    source = data.splits.source if data.splits is not None else getattr(data, split)
    if source.format == "synthetic":
        return f"drawn: {source.images} scenes of {source.size} px, seed {source.seed}"
    return str(getattr(source, _LABELS[source.format]))
