"""Completed records of a source, kept by the content of all that they come from.

Files are named by their content, so that none goes stale; old ones may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import joblib

from readers.culane import label_path
from readers.lane_index import ImageLanesIndex
from readers.lane_records import ImageLanes
from readers.records import DatasetError, Finding
from tasks.lanes.completion import Completion

# changes whenever the same records give other slots, grids or findings
COMPLETION = 1

Box = tuple[float, float, float, float]
Kept = tuple[ImageLanesIndex, list[Finding]]


def kept(folder: Path, key: str, make: Callable[[], Kept]) -> Kept:
    """Return what is kept under a key, else what `make` returns, which is then kept.

    Both files are put in place whole. Those that are broken are ignored and written anew.

    Args:
        folder: where `<key>.arrow`, the index, and `<key>.json`, the findings, lie.
        key: see `key_of`.
        make: returns index and findings.
    """
    found = _opened(folder / f"{key}.arrow", folder / f"{key}.json")
    if found is not None:
        return found
    index, findings = make()
    index = index.save(folder / f"{key}.arrow")
    listed = [asdict(finding) for finding in findings]
    content = {"sha256": _seal(folder / f"{key}.arrow", listed), "findings": listed}
    _write(folder / f"{key}.json", json.dumps(content, ensure_ascii=False))
    return index, findings


def key_of(
    records: Sequence[ImageLanes],
    completion: Completion,
    *,
    source: str,
    scenes: Sequence[str],
    jobs: int,
) -> str:
    """Return the SHA-256, hex, of everything that decides completed records and their findings.

    Args:
        records: as the reader gives them.
        completion: how they are completed.
        source: what findings of the whole say.
        scenes: names of all scenes of the records.
        jobs: threads that read masks and labels; -1: one per CPU.
    """
    settings = [
        COMPLETION,
        ImageLanesIndex.FORMAT,
        source,
        list(scenes),
        completion.layout,
        completion.rule,
        completion.shortest,
        completion.num_slots,
        list(completion.frame),
        completion.heights.tolist(),
    ]
    digest = hashlib.sha256(json.dumps(settings).encode())
    files = joblib.Parallel(n_jobs=jobs, prefer="threads", batch_size=64)(
        joblib.delayed(_files_of)(record, completion) for record in records
    )
    for record, contents in zip(records, files, strict=True):
        digest.update(json.dumps([*_fields_of(record), contents]).encode())
        for values in (*record.lanes, record.h_samples):
            digest.update(values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes())
    return digest.hexdigest()


def _fields_of(record: ImageLanes) -> list[Any]:
    return [
        record.image_id,
        str(record.path),
        record.width,
        record.height,
        record.turn,
        record.content,
        record.scenes,
        str(record.mask),
        [len(lane) for lane in record.lanes],
        len(record.h_samples),
    ]


def _files_of(record: ImageLanes, completion: Completion) -> list[str]:
    """Return the contents of further files that are read: the mask, and labels for line numbers."""
    mask = record.mask if completion.rule == "mask" else None
    labels = label_path(record.path) if completion.layout == "culane" else None
    return [_content_of(path) if path else "" for path in (mask, labels)]


def _content_of(path: Path) -> str:
    """Return the SHA-256 of a file, hex; empty where it cannot be read, which its reader tells."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def _opened(index: Path, findings: Path) -> Kept | None:
    try:
        content = json.loads(findings.read_bytes())
        # a mapped file is only looked into later: broken ones are told by their content
        if content["sha256"] != _seal(index, content["findings"]):
            return None
        return ImageLanesIndex.open(index), [_finding(**each) for each in content["findings"]]
    except (OSError, ValueError, TypeError, KeyError, DatasetError):
        return None


def _seal(index: Path, findings: Sequence[Any]) -> str:
    return hashlib.sha256((_content_of(index) + json.dumps(findings)).encode()).hexdigest()


def _finding(*, box_xyxy: Box | None, **values: Any) -> Finding:
    return Finding(**values, box_xyxy=box_xyxy and (*box_xyxy,))


def _write(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
