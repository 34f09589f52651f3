"""What preparing data has in common for all tasks: splits are cut, compared, reported and saved."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from readers.arrow_index import ArrowIndex
from readers.records import DatasetError, Finding
from tasks.quality import SplitQuality, quality_report

SPLITS = ("train", "val", "test")
WHOLE = "all"  # what a source is called before it is cut

Index = TypeVar("Index", bound=ArrowIndex[Any])


@dataclass(frozen=True)
class Prepared(Generic[Index]):
    """A split that was read and checked.

    Args:
        index: its usable pictures and labels.
        findings: what is wrong with it.
    """

    index: Index
    findings: list[Finding]


@dataclass(frozen=True)
class SavedSplit:
    """What a run says of a prepared split.

    Args:
        digest: hex digest of the labels and pictures.
        items: number of pictures.
        source: file or folder that the labels came from.
    """

    digest: str
    items: int
    source: str


class Shares(Protocol):
    """The `data.splits` section, as far as all tasks have it."""

    @property
    def source(self) -> Any:
        """What is cut."""

    @property
    def fractions(self) -> tuple[float, float, float]:
        """Shares of train, val and test."""

    @property
    def seed(self) -> int:
        """Of `random.Random(seed).shuffle`."""


class Sources(Protocol):
    """The `data` section, as far as all tasks have it: one source to cut, or one per split."""

    @property
    def splits(self) -> Shares | None:
        """One source to cut; None where each split has its own."""

    @property
    def train(self) -> Any:
        """The training split's source, if it has one of its own; `val` and `test` likewise."""


def read_splits(
    config: Sources, prepare_split: Callable[[Any], Prepared[Index]]
) -> tuple[dict[str, Prepared[Index]], Prepared[Index] | None]:
    """Return the splits, and the source that they were cut from, if they were.

    Args:
        config: the `data` section.
        prepare_split: reads and checks one source.

    Raises:
        DatasetError: if a source cannot be read, or is too small to be cut.
    """
    if config.splits is not None:
        whole = prepare_split(config.splits.source)
        parts = cut(whole.index, config.splits)
        return {name: Prepared(index, []) for name, index in parts.items()}, whole
    sources = {name: getattr(config, name) for name in SPLITS}
    prepared = {
        name: prepare_split(source) for name, source in sources.items() if source is not None
    }
    return prepared, None


def save_splits(
    prepared: Mapping[str, Prepared[Index]],
    whole: Prepared[Index] | None,
    *,
    output: Path,
    quality: Callable[[Prepared[Index]], SplitQuality],
    legend: str = "",
) -> dict[str, Prepared[Index]]:
    """Write `<split>.arrow`, `quality.json` and `quality.html`; return the splits as saved.

    Args:
        prepared: the splits; pictures that are there twice are added to their findings.
        whole: the source that they were cut from, if they were.
        output: folder to write to.
        quality: returns what the report shows of a split.
        legend: what the colours of the report's pictures mean.

    Raises:
        DatasetError: if a finding is an error; the reports are there, the indexes are not.
    """
    note_same_pictures(prepared)
    reported = dict(prepared) if whole is None else {WHOLE: whole, **prepared}
    _write_reports(
        {name: quality(split) for name, split in reported.items()}, output, legend=legend
    )
    _stop_at_errors(reported, output)
    return {
        name: Prepared(split.index.save(output / f"{name}.arrow"), split.findings)
        for name, split in prepared.items()
    }


def open_splits(folder: Path, index: type[Index]) -> dict[str, Index]:
    """Return the indexes that `save_splits` wrote into a folder, by split.

    Raises:
        FileNotFoundError: if there is none.
    """
    files = {split: folder / f"{split}.arrow" for split in SPLITS}
    found = {split: index.open(path) for split, path in files.items() if path.exists()}
    if not found:
        raise FileNotFoundError(f"{folder}: holds no prepared split (train.arrow, val.arrow, ...)")
    return found


def cut(index: Index, splits: Shares) -> dict[str, Index]:
    """Return train, val and test: names sorted, shuffled, cut at the rounded running shares.

    Of 79 pictures, 60/20/20 gives 47, 16 and 16; a share of 0 gives no split.

    Args:
        index: all pictures.
        splits: shares and the seed of `random.Random(seed).shuffle`.

    Raises:
        DatasetError: if a share above 0 gets no picture.
    """
    names = [record.path.name for record in index]
    ids = index.image_ids
    order = sorted(range(len(index)), key=lambda row: (names[row], ids[row]))
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


def note_same_pictures(prepared: Mapping[str, Prepared[Index]]) -> None:
    """Tell pictures that are there twice, above all in two splits: scores would flatter."""
    seen: dict[str, tuple[str, str]] = {}
    for name, split in prepared.items():
        for record_id, content in zip(split.index.image_ids, split.index.contents, strict=True):
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


def _write_reports(splits: Mapping[str, SplitQuality], output: Path, *, legend: str) -> None:
    content, page = quality_report(splits, legend=legend)
    output.mkdir(parents=True, exist_ok=True)
    for stale in output.glob("*.arrow"):
        stale.unlink()
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    (output / "quality.json").write_text(text, encoding="utf-8")
    (output / "quality.html").write_text(page, encoding="utf-8")


def _stop_at_errors(splits: Mapping[str, Prepared[Index]], output: Path) -> None:
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
