"""From data sources to checked indexes: what the `prepare` step does for detection."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

import numpy as np

from readers.coco import read_coco
from readers.config import CocoSource, VocSource, YoloSource
from readers.index import ImageBoxesIndex, build_index
from readers.records import DatasetError, Finding, ImageBoxesSet
from readers.voc import read_voc
from readers.yolo import read_yolo
from tasks.detection.config import DataConfig, DetectionSource, SplitsConfig, SyntheticSource
from tasks.detection.findings import box_counts, draw_finding
from tasks.detection.synthetic import ANNOTATIONS, DRAWING, IMAGES, write_synthetic
from tasks.quality import SplitQuality, quality_report

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Prepared:
    """A split that was read and checked.

    Args:
        index: its usable pictures and boxes.
        findings: what is wrong with it.
    """

    index: ImageBoxesIndex
    findings: list[Finding]


def prepare_data(
    config: DataConfig, *, base: Path, working: Path, output: Path, jobs: int = 1
) -> dict[str, Prepared]:
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
    jobs = jobs or -1
    if config.splits is not None:
        whole = prepare_split(config.splits.source, base=base, working=working, jobs=jobs)
        prepared = {
            name: Prepared(index, []) for name, index in cut(whole.index, config.splits).items()
        }
        reported = {"all": whole, **prepared}
    else:
        sources = {name: getattr(config, name) for name in SPLITS}
        prepared = {
            name: prepare_split(source, base=base, working=working, jobs=jobs)
            for name, source in sources.items()
            if source is not None
        }
        reported = prepared
    for name in prepared:
        prepared[name] = reported[name] = _in_classes_of_train(prepared[name], name, prepared)
    _note_empty_classes(prepared["train"])
    _note_same_pictures(prepared)
    _write_reports(reported, output)
    _stop_at_errors(reported, output)
    for name, split in prepared.items():
        prepared[name] = Prepared(split.index.save(output / f"{name}.arrow"), split.findings)
    return prepared


def prepare_split(source: DetectionSource, *, base: Path, working: Path, jobs: int = 1) -> Prepared:
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


def cut(index: ImageBoxesIndex, splits: SplitsConfig) -> dict[str, ImageBoxesIndex]:
    """Return train, val and test: names sorted, shuffled, cut at the rounded running shares.

    Of 79 pictures, 60/20/20 gives 47, 16 and 16; a share of 0 gives no split.

    Args:
        index: all pictures.
        splits: shares and the seed of `random.Random(seed).shuffle`.

    Raises:
        DatasetError: if a share above 0 gets no picture.
    """
    names = [record.path.name for record in index]
    order = sorted(range(len(index)), key=lambda row: (names[row], index[row].image_id))
    random.Random(splits.seed).shuffle(order)
    running = np.cumsum((0.0, *splits.fractions))
    ends = [int(share * len(order) + 0.5 + 1e-9) for share in running]
    parts = {}
    for number, (name, share) in enumerate(zip(SPLITS, splits.fractions, strict=True)):
        rows = order[ends[number] : ends[number + 1]]
        if share > 0 and not rows:
            raise DatasetError(
                f"`splits`: {len(order)} pictures are too few to cut off {share:g} for {name}"
            )
        if rows:
            parts[name] = index.subset(rows)
    return parts


def _in_classes_of_train(split: Prepared, name: str, prepared: Mapping[str, Prepared]) -> Prepared:
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


def _note_empty_classes(train: Prepared) -> None:
    counts = train.index.counts()["per_class"]
    empty = [name for name, count in counts.items() if count == 0]
    if empty:
        message = f"{len(empty)} of {len(counts)} classes have no box: {', '.join(empty)}"
        action = "they stay classes, and cannot be learned"
        train.findings.append(Finding("warning", "class-without-boxes", "train", message, action))


def _note_same_pictures(prepared: Mapping[str, Prepared]) -> None:
    """Tell pictures that are there twice, above all in two splits: scores would flatter."""
    seen: dict[str, tuple[str, str]] = {}
    for name, split in prepared.items():
        for row, content in enumerate(split.index.contents):
            record_id = split.index[row].image_id
            first_split, first_id = seen.setdefault(content, (name, record_id))
            if (first_split, first_id) == (name, record_id):
                continue
            is_leak = first_split != name
            split.findings.append(
                Finding(
                    "warning",
                    "picture-in-two-splits" if is_leak else "same-picture-twice",
                    f"{name}: {record_id}",
                    f"the same file as {first_id} of {first_split}",
                    "kept; scores on it flatter" if is_leak else "kept",
                    image_id=record_id,
                )
            )


def _write_reports(splits: Mapping[str, Prepared], output: Path) -> None:
    qualities = {
        name: SplitQuality(
            counts=box_counts(split.index),
            findings=split.findings,
            draw=draw_finding(split.index),
        )
        for name, split in splits.items()
    }
    content, page = quality_report(qualities)
    output.mkdir(parents=True, exist_ok=True)
    for stale in output.glob("*.arrow"):
        stale.unlink()
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    (output / "quality.json").write_text(text, encoding="utf-8")
    (output / "quality.html").write_text(page, encoding="utf-8")


def _stop_at_errors(splits: Mapping[str, Prepared], output: Path) -> None:
    errors: Sequence[tuple[str, Finding]] = [
        (name, finding)
        for name, split in splits.items()
        for finding in split.findings
        if finding.severity == "error"
    ]
    if not errors:
        return
    name, first = errors[0]
    count = sum(finding.count for _, finding in errors)
    more = f" (and {count - 1} more errors)" if count > 1 else ""
    raise DatasetError(
        f"{name}: {first.where}: {first.message}{more}; see {output / 'quality.html'}"
    )
