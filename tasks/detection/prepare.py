"""From data sources to checked indexes: what the `prepare` step does for detection."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TypeAlias, assert_never

from readers.coco import read_coco
from readers.config import CocoSource, VocSource, YoloSource
from readers.index import ImageBoxesIndex, build_index
from readers.records import Finding, ImageBoxesSet
from readers.voc import read_voc
from readers.yolo import read_yolo
from tasks.detection.config import DataConfig, DetectionSource, SyntheticSource
from tasks.detection.findings import box_counts, draw_finding
from tasks.detection.synthetic import ANNOTATIONS, DRAWING, IMAGES, write_synthetic
from tasks.quality import SplitQuality
from tasks.splits import Prepared, read_splits, save_splits

LEGEND = "Red: the box in question. Green: the picture's other boxes."

PreparedBoxes: TypeAlias = Prepared[ImageBoxesIndex]


def prepare_data(
    config: DataConfig, *, base: Path, working: Path, output: Path, jobs: int = 1
) -> dict[str, PreparedBoxes]:
    """Read and check all splits; write `<split>.arrow`, `quality.json` and `quality.html`.

    All splits get the class table of `train`, matched by name.

    Args:
        config: where the data are.
        base: folder that relative paths count from.
        working: folder for drawn pictures, kept from run to run.
        output: folder to write to.
        jobs: threads that read picture files; 0 takes one per CPU.

    Returns:
        Split name -> what was prepared.

    Raises:
        DatasetError: if a source cannot be read, or a finding is an error; in the second case
            the reports are there, the indexes are not.
    """
    prepared, whole = read_splits(
        config, partial(prepare_split, base=base, working=working, jobs=jobs or -1)
    )
    for name in prepared:
        prepared[name] = _in_classes_of_train(prepared[name], name, prepared)
    _note_empty_classes(prepared["train"])
    return save_splits(prepared, whole, output=output, quality=_quality, legend=LEGEND)


def prepare_split(
    source: DetectionSource, *, base: Path, working: Path, jobs: int = 1
) -> PreparedBoxes:
    """Read and check one source.

    Args:
        source: format and paths.
        base: folder that relative paths count from.
        working: folder for drawn pictures.
        jobs: threads that read picture files.

    Raises:
        DatasetError: if it cannot be read at all.
    """
    records = read_source(source, base=base, working=working, jobs=jobs)
    index = build_index(records)
    return Prepared(index, list(records.findings))


def read_source(source: DetectionSource, *, base: Path, working: Path, jobs: int) -> ImageBoxesSet:
    """Return the reader's records of a source; arguments as for `prepare_split`."""
    match source:
        case CocoSource():
            return read_coco(base / source.images, base / source.annotations, jobs=jobs)
        case YoloSource():
            names = source.names
            if isinstance(names, str):
                names = str(base / names)
            return read_yolo(base / source.path, split=source.split, names=names, jobs=jobs)
        case VocSource():
            return read_voc(base / source.root, source.image_set, classes=source.classes, jobs=jobs)
        case SyntheticSource():
            key = f"detection-{DRAWING}-{source.images}x{source.size}-seed{source.seed}"
            folder = working / "synthetic" / key
            write_synthetic(folder, images=source.images, size=source.size, seed=source.seed)
            return read_coco(folder / IMAGES, folder / ANNOTATIONS, jobs=jobs)
        case _:
            assert_never(source)


def _in_classes_of_train(
    split: PreparedBoxes, name: str, prepared: Mapping[str, PreparedBoxes]
) -> PreparedBoxes:
    """Return the split in train's class table; a class with boxes that train lacks is an error."""
    table = prepared["train"].index
    if split.index.class_names == table.class_names:
        return split
    counts = split.index.counts()["per_class"]
    unknown = [key for key in counts if key not in table.class_names and counts[key]]
    for key in unknown:
        message = (
            f"class {key!r} ({counts[key]} boxes) is not a class of train: "
            f"{', '.join(table.class_names)}"
        )
        split.findings.append(
            Finding("error", "class-not-in-train", name, message, "nothing is prepared")
        )
    if unknown:
        return split
    return Prepared(split.index.with_classes(table.class_names, table.class_ids), split.findings)


def _note_empty_classes(train: PreparedBoxes) -> None:
    counts = train.index.counts()["per_class"]
    empty = [name for name, count in counts.items() if count == 0]
    if empty:
        message = f"{len(empty)} of {len(counts)} classes have no box: {', '.join(empty)}"
        action = "they stay classes, and cannot be learned"
        train.findings.append(Finding("warning", "class-without-boxes", "train", message, action))


def _quality(split: PreparedBoxes) -> SplitQuality:
    return SplitQuality(
        counts=box_counts(split.index), findings=split.findings, draw=draw_finding(split.index)
    )
