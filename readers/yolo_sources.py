"""Which pictures and classes a YOLO data set has: data.yaml, list files and folders."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from readers.images import IMAGE_ENDINGS
from readers.plain_yaml import load_plain_yaml
from readers.records import DatasetError
from readers.regular_files import read_regular_text

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class YoloPictures:
    """The pictures of one split.

    Args:
        paths: absolute path of each, and where it is named (file and line, or folder).
        class_names: index -> name.
        root: folder that image ids count from.
        is_complete: the pictures are all of their folders, so that a label file without a
            picture is a mistake; a list may name a part.
        remarks: where and what, about the class list.
    """

    paths: Sequence[tuple[Path, str]]
    class_names: Sequence[str]
    root: Path
    is_complete: bool
    remarks: Sequence[tuple[str, str]] = ()


def find_pictures(
    path: Path, *, split: str | None, names: str | Sequence[str] | None
) -> YoloPictures:
    """Return the pictures and class names that a path stands for.

    Args:
        path: absolute; a data.yaml, a list file or a folder.
        split: as for `read_yolo`.
        names: as for `read_yolo`; a file name counts from the folder of `path`.

    Raises:
        DatasetError: if something is missing or contradicts.
    """
    base = path if path.is_dir() else path.parent
    given = _given_names(names, base)
    if path.suffix.lower() in (".yaml", ".yml"):
        return _from_yaml(path, split=split, given=given)
    if split is not None:
        raise DatasetError(f"{path}: `split: {split}` needs a data.yaml")
    if given is None:
        raise DatasetError(f"{path}: a list or folder tells no classes; give `names`")
    if path.is_dir():
        return YoloPictures(list(_of_folder(path)), given, path, is_complete=True)
    return YoloPictures(list(_of_list(path, path.parent)), given, path.parent, is_complete=False)


def label_path(picture: Path) -> Path:
    """Return where a picture's labels lie.

    The last folder called `images` becomes `labels`; without one they lie beside the picture.
    """
    parts = list(picture.parts)
    folders = [number for number, part in enumerate(parts[:-1]) if part == "images"]
    if folders:
        parts[folders[-1]] = "labels"
    return Path(*parts).with_suffix(".txt")


def _from_yaml(path: Path, *, split: str | None, given: list[str] | None) -> YoloPictures:
    content = _load(path)
    if split is None:
        known = [name for name in SPLITS if content.get(name)]
        raise DatasetError(f"{path}: say which `split` is meant: {', '.join(known) or 'none'}")
    entry = content.get(split)
    if not entry:
        known = [name for name in SPLITS if content.get(name)]
        raise DatasetError(f"{path}: no entry `{split}`; it has {', '.join(known) or 'none'}")
    root = _root(path, content)
    sources = [_resolve(str(item), path, root) for item in _as_list(entry)]
    paths: list[tuple[Path, str]] = []
    for source in sources:
        paths += _of_folder(source) if source.is_dir() else _of_list(source, root)
    class_names, remarks = _class_names(content, path, given)
    return YoloPictures(
        paths=paths,
        class_names=class_names,
        root=root,
        is_complete=all(source.is_dir() for source in sources),
        remarks=remarks,
    )


def _load(path: Path) -> Mapping[str, Any]:
    try:
        content = load_plain_yaml(read_regular_text(path))
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path}: not UTF-8 text ({error.reason})") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or "cannot be parsed"
        raise DatasetError(f"{path}{line}: not YAML: {problem}") from error
    except RecursionError as error:
        raise DatasetError(f"{path}: is nested too deeply for a data.yaml") from error
    if not isinstance(content, dict):
        raise DatasetError(f"{path}: not a data.yaml; keys train, val and names are needed")
    return content


def _root(path: Path, content: Mapping[str, Any]) -> Path:
    """Return the folder that entries count from; `path` in the file counts from the file."""
    given = content.get("path")
    folder = (path.parent / str(given)).absolute() if given else path.parent
    # Published files say where the set lay on their author's machine.
    return folder if folder.is_dir() else path.parent


def _resolve(entry: str, path: Path, root: Path) -> Path:
    # Some exporters write `../train/images` for a folder that lies beside the file.
    places = [root / entry, path.parent / entry, path.parent / entry.removeprefix("../")]
    for place in places:
        if place.exists():
            return _checked_source(place.absolute(), entry, path)
    raise DatasetError(f"{path}: `{entry}` is neither a folder nor a list file ({places[0]})")


def _checked_source(source: Path, entry: str, path: Path) -> Path:
    """Return a folder or list file; one that is called otherwise is none.

    Names of pictures that are missing are quoted in the report, so that a set from elsewhere could
    have any file of this machine (`/etc/passwd`, a link to a key) told there.
    """
    if not source.is_dir() and source.resolve().suffix.lower() != ".txt":
        raise DatasetError(f"{path}: `{entry}` is no folder, and a list file ends in .txt")
    return source


def _as_list(entry: Any) -> list[Any]:
    return entry if isinstance(entry, list) else [entry]


def _of_folder(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield all pictures of a folder and those below it, by name."""
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in IMAGE_ENDINGS and not path.name.startswith("."):
            yield path, str(path.relative_to(folder))


def _of_list(path: Path, root: Path) -> Iterator[tuple[Path, str]]:
    """Yield the pictures that a text file lists; names count from its folder, else from root."""
    try:
        lines = read_regular_text(path).split("\n")
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path}: not a list of pictures ({error.reason})") from error
    for number, line in enumerate(lines, start=1):
        name = line.strip().removeprefix("./")
        if not name:
            continue
        places = [path.parent / name, root / name]
        # os.path: False for a name that cannot be, where the file is no list
        found = next((place for place in places if os.path.exists(place)), places[0])  # noqa: PTH110
        yield found, f"{path.name}:{number}"


def _given_names(names: str | Sequence[str] | None, base: Path) -> list[str] | None:
    if names is None or not isinstance(names, str):
        return None if names is None else list(names)
    path = base / names
    try:
        lines = read_regular_text(path).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path}: class names cannot be read: {error}") from error
    listed = [line.strip() for line in lines if line.strip()]
    if not listed:
        raise DatasetError(f"{path}: holds no class name")
    return listed


def _class_names(
    content: Mapping[str, Any], path: Path, given: list[str] | None
) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the class names, and remarks where the file contradicts itself."""
    names, count = content.get("names"), content.get("nc")
    if given is not None:
        listed = given
    elif isinstance(names, dict):
        listed = _names_by_number(names, path)
    elif isinstance(names, list) and names:
        listed = [_name(name, path) for name in names]
    elif isinstance(count, int) and count > 0:
        listed = [f"class_{number}" for number in range(count)]
    else:
        raise DatasetError(f"{path}: no `names`; give them there or in the experiment")
    repeated = sorted({name for name in listed if listed.count(name) > 1})
    if repeated:
        raise DatasetError(f"{path}: class name {repeated[0]!r} comes twice in `names`")
    if isinstance(count, int) and count != len(listed):
        return listed, [(path.name, f"`nc` is {count}, but there are {len(listed)} `names`")]
    return listed, []


def _names_by_number(names: Mapping[Any, Any], path: Path) -> list[str]:
    try:
        by_number = {int(key): _name(name, path) for key, name in names.items()}
    except (TypeError, ValueError, OverflowError):
        raise DatasetError(f"{path}: keys of `names` must be class numbers: {names}") from None
    if sorted(by_number) != list(range(len(by_number))):
        keys = ", ".join(map(str, sorted(by_number)))
        raise DatasetError(f"{path}: `names` must be numbered 0 to n-1 without a gap, not {keys}")
    return [by_number[number] for number in range(len(by_number))]


def _name(name: Any, path: Path) -> str:
    if name is None or not str(name).strip():
        raise DatasetError(f"{path}: a class in `names` has no name")
    return str(name)
