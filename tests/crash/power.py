"""What a power cut leaves of a folder of checkpoints, and a bad disk of its newest file."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

from engine.checkpoint import CheckpointStore

DAMAGES = ("torn", "empty", "flipped", "unrenamed")


def damage_newest(folder: Path, rng: random.Random, *, how: str) -> Path | None:
    """Damage the newest checkpoint of a folder; return what it was called, or None.

    Args:
        folder: of the checkpoints.
        rng: draws where, and whether the files that share its bytes are damaged with it.
        how: `torn` (the end is missing), `empty`, `flipped` (bits) or `unrenamed` (the last rename
            did not get to the disk).
    """
    path = CheckpointStore(folder).newest_path()
    if path is None:
        return None
    if how == "unrenamed":
        path.rename(path.with_name(f".writing-{path.stem}"))
        return path
    if rng.random() < 0.5:
        _part(path)
    size = path.stat().st_size
    with path.open("r+b") as file:
        if how == "flipped":
            for place in rng.sample(range(size), 3):
                file.seek(place)
                byte = file.read(1)[0]
                file.seek(place)
                file.write(bytes([byte ^ (1 << rng.randrange(8))]))
        else:
            file.truncate(0 if how == "empty" else rng.randrange(1, size))
    return path


def cut_power(folder: Path, kept: Path, rng: random.Random) -> None:
    """Make of a folder what a power cut may leave of it, at worst.

    Of what was not synchronised, anything may be on the disk or not: bytes are cut anywhere, names
    are there or not, removed files are back.

    Args:
        folder: of the checkpoints.
        kept: what `tests.crash.ending.DurableFolder` noted.
        rng: draws what got to the disk.
    """
    noted = kept / "durable.json"
    durable = json.loads(noted.read_text()) if noted.exists() else {"names": {}, "synced": []}
    now = {p.name: p.stat().st_ino for p in folder.iterdir()} if folder.is_dir() else {}
    chosen = {}
    for name in sorted({*now, *durable["names"]}):
        inode = rng.choice([now.get(name), durable["names"].get(name)])
        if inode is not None:
            chosen[name] = inode
    rebuilt = folder.with_name("after-the-cut")
    rebuilt.mkdir()
    for name, inode in chosen.items():
        source = folder / name if now.get(name) == inode else kept / str(inode)
        os.link(source, rebuilt / name)
        if inode not in durable["synced"]:
            _part(rebuilt / name)
            os.truncate(rebuilt / name, rng.randrange(source.stat().st_size + 1))
    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(kept)
    rebuilt.rename(folder)


def _part(path: Path) -> None:
    """Make a file one of its own, whose bytes no other name shares."""
    copy = path.with_name("copy")
    shutil.copyfile(path, copy)
    copy.replace(path)
