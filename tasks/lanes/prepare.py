"""From data sources to checked indexes: what the `prepare` step does for lanes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypeVar, assert_never

import joblib
import numpy as np

from readers.config import (
    CulaneSource,
    CurvelanesSource,
    CvatSource,
    LabelmeSource,
    TusimpleSource,
)
from readers.culane import read_culane
from readers.curvelanes import read_curvelanes
from readers.cvat import read_cvat
from readers.findings import FindingLog
from readers.labelme import read_labelme
from readers.lane_index import ImageLanesIndex, build_lane_index
from readers.lane_records import ImageLanes, ImageLanesSet
from readers.records import DatasetError, Finding
from readers.tusimple import read_tusimple
from tasks.lanes.completion import MASK_FAULTS, Completed, Completion, Rule
from tasks.lanes.config import LaneDataConfig, LaneSource, RoadsSource
from tasks.lanes.findings import (
    LEGEND,
    draw_finding,
    lane_counts,
    note_lanes,
    note_sizes,
    note_slots,
)
from tasks.lanes.grid import grid_heights
from tasks.lanes.kept import kept, key_of
from tasks.lanes.masks import made_mask
from tasks.lanes.synthetic import DRAWING, LABELS, SCENES_FOLDER, TRAIN_LIST, write_roads
from tasks.quality import SplitQuality
from tasks.splits import Prepared, read_splits, save_splits

# The rules of the benchmarks; labels of other formats get slots by angle.
RULES: dict[str, Rule] = {"culane": "mask", "curvelanes": "outermost"}

PreparedLanes: TypeAlias = Prepared[ImageLanesIndex]
Item = TypeVar("Item")
Result = TypeVar("Result")


def prepare_data(  # noqa: PLR0913 (the steps' paths, and what the model asks of the data)
    config: LaneDataConfig,
    *,
    num_lanes: int,
    wants_masks: bool,
    base: Path,
    working: Path,
    output: Path,
    jobs: int = 1,
) -> dict[str, PreparedLanes]:
    """Read and check all splits; write `<split>.arrow`, `quality.json` and `quality.html`.

    Args:
        config: where the data are, and how lanes get slots and heights.
        num_lanes: slots of the model.
        wants_masks: whether the model is trained with masks; those that are missing are drawn.
        base: folder that relative paths count from.
        working: folder for drawn pictures, masks and completed labels, kept from run to run.
        output: folder to write to.
        jobs: threads that work on pictures; 0 takes one per CPU.

    Returns:
        Split name -> what was prepared.

    Raises:
        DatasetError: if the grid lies outside the frame, a source cannot be read, or a finding is
            an error; in the last case the reports are there, the indexes are not.
    """
    jobs = jobs or -1
    heights = _heights(config)
    prepare_one = partial(
        prepare_split,
        data=config,
        heights=heights,
        num_lanes=num_lanes,
        folders=(base, working),
        jobs=jobs,
    )
    prepared, whole = read_splits(config, prepare_one)
    for name, split in prepared.items():
        findings = split.findings if name == "train" else _softened(split.findings)
        note_lanes(name, split.index, findings)
        if name == "train":
            note_slots(split.index, findings)
        prepared[name] = Prepared(split.index, findings)
    if wants_masks:
        index = with_masks(prepared["train"].index, folder=working / "masks", jobs=jobs)
        prepared["train"] = Prepared(index, prepared["train"].findings)
    return save_splits(prepared, whole, output=output, quality=_quality, legend=LEGEND)


def prepare_split(
    source: LaneSource,
    *,
    data: LaneDataConfig,
    heights: np.ndarray,
    num_lanes: int,
    folders: tuple[Path, Path],
    jobs: int = 1,
) -> PreparedLanes:
    """Read and check one source, give its lanes slots and take them at the grid's heights.

    What comes of the last two is kept in the folder for drawn pictures; see `kept`.

    Args:
        source: format and paths.
        data: frame and slots.
        heights: (G,) float32, px of the frame.
        num_lanes: slots.
        folders: the folder that relative paths count from, and that for drawn pictures.
        jobs: threads that work on pictures.

    Raises:
        DatasetError: if it cannot be read at all.
    """
    found = read_source(source, base=folders[0], working=folders[1], jobs=jobs)
    layout = layout_of(source)
    completion = Completion(
        layout=layout,
        rule=RULES.get(layout, "angle") if data.slots.rule == "by_format" else data.slots.rule,
        shortest=data.slots.shortest,
        num_slots=num_lanes,
        frame=data.frame,
        heights=heights,
    )
    records, name = list(found.records), found.source.name
    key = key_of(records, completion, source=name, scenes=found.scenes, jobs=jobs)
    make = partial(_completed, records, completion, source=name, scenes=found.scenes, jobs=jobs)
    index, findings = kept(folders[1] / "lanes", key, make)
    return Prepared(index, [*found.findings, *findings])


def read_source(source: LaneSource, *, base: Path, working: Path, jobs: int) -> ImageLanesSet:
    """Return the reader's records of a source; drawn roads are drawn first.

    Args:
        source: format and paths.
        base: folder that relative paths count from.
        working: folder for drawn pictures.
        jobs: threads that read picture files.
    """
    match source:
        case TusimpleSource():
            return read_tusimple(base / source.root, source.labels, jobs=jobs)
        case CulaneSource():
            return read_culane(base / source.root, source.list, scenes=source.scenes, jobs=jobs)
        case CurvelanesSource():
            return read_curvelanes(base / source.root, source.split, jobs=jobs)
        case LabelmeSource():
            return read_labelme(base / source.root, labels=source.labels, jobs=jobs)
        case CvatSource():
            return read_cvat(
                base / source.annotations, base / source.images, labels=source.labels, jobs=jobs
            )
        case RoadsSource():
            folder = working / "synthetic" / _folder_of(source)
            write_roads(folder, source)
            if source.layout == "tusimple":
                return read_tusimple(folder, [LABELS], jobs=jobs)
            return read_culane(folder, TRAIN_LIST, scenes=SCENES_FOLDER, jobs=jobs)
        case _:
            assert_never(source)


def layout_of(source: LaneSource) -> str:
    """Return the format of a source's labels; of drawn roads the one they are written in."""
    return source.layout if isinstance(source, RoadsSource) else source.format


def with_masks(index: ImageLanesIndex, *, folder: Path, jobs: int = 1) -> ImageLanesIndex:
    """Return the index with a mask for each picture that has none, in memory.

    Args:
        index: records with slots.
        folder: where masks are kept, named by their content; those that are there are not drawn
            again.
        jobs: threads that draw.
    """

    def complete(record: ImageLanes) -> ImageLanes:
        if record.mask is not None:
            return record
        size = (record.width, record.height)
        mask = made_mask(folder, record.lanes, record.slots, size=size, content=record.content)
        return replace(record, mask=mask)

    return build_lane_index(
        _of_each(complete, list(index), jobs=jobs),
        num_lanes=index.num_lanes,
        frame=index.frame,
        grid_y=index.grid_y,
        scenes=index.scenes,
        jobs=jobs,
    )


def _folder_of(roads: RoadsSource) -> str:
    size, lanes = "x".join(map(str, roads.size)), "to".join(map(str, roads.lanes))
    what = f"{roads.layout}-{DRAWING}-{roads.roads}-of-{size}-with-{lanes}"
    return f"lanes-{what}-seed{roads.seed}"


def _heights(config: LaneDataConfig) -> np.ndarray:
    source = config.train if config.splits is None else config.splits.source
    assert source is not None  # the config demands one of them
    heights = grid_heights(config.grid, layout=layout_of(source), frame=config.frame)
    if heights[-1] > config.frame[1]:
        raise DatasetError(
            f"data.grid.last is {heights[-1]:g}, outside data.frame, which is {config.frame[1]} px "
            "high; labels are kept at heights inside the frame"
        )
    return heights


def _of_each(
    work: Callable[[Item], Result], items: Sequence[Item], *, jobs: int
) -> Sequence[Result]:
    """Return what a function makes of each item, in order; pictures are read side by side."""
    if jobs == 1:
        return [work(item) for item in items]
    calls = (joblib.delayed(work)(item) for item in items)
    return list(joblib.Parallel(n_jobs=jobs, prefer="threads", batch_size=32)(calls))


def _completed(
    records: Sequence[ImageLanes],
    completion: Completion,
    *,
    source: str,
    scenes: Sequence[str],
    jobs: int,
) -> tuple[ImageLanesIndex, list[Finding]]:
    """Return the records with slots and grids, and what is wrong with them; see `key_of`."""
    completed = _of_each(completion.complete, records, jobs=jobs)
    findings = FindingLog(source)
    _note_all(completed, findings)
    index = build_lane_index(
        (item.record for item in completed),
        num_lanes=completion.num_slots,
        frame=completion.frame,
        grid_y=completion.heights,
        scenes=scenes,
        jobs=jobs,
    )
    note_sizes(index, findings)
    findings.close()
    return index, list(findings)


def _note_all(completed: Iterable[Completed], findings: FindingLog) -> None:
    num_pictures = num_lacking = 0
    for item in completed:
        num_pictures += 1
        num_lacking += item.lacks_mask
        for one in item.findings:
            about = {"image_id": one.image_id, "box_xyxy": one.box_xyxy}
            if one.severity == "error":
                findings.fail(one.code, one.where, one.message, **about)
            else:
                findings.warn(one.code, one.where, one.message, action=one.action, **about)
    if num_lacking:
        message = f"{num_lacking} of {num_pictures} pictures have no mask that gives lanes slots"
        action = "their lanes get slots by angle"
        findings.warn("no-mask", findings.source, message, action=action, count=num_lacking)


def _softened(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings of a split that is only scored: masks are of no concern there."""
    action = "no slot: it is scored all the same"
    return [
        replace(finding, severity="warning", action=action)
        if finding.code in MASK_FAULTS
        else finding
        for finding in findings
    ]


def _quality(split: PreparedLanes) -> SplitQuality:
    return SplitQuality(
        counts=lane_counts(split.index), findings=split.findings, draw=draw_finding(split.index)
    )
