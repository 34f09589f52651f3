"""What a machine needs to run the pipeline; one function a thing, used by `steps/doctor.py`.

Nothing here imports a large library: what is installed is read from its metadata.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from steps.options import PROJECT_FOLDER, working_folder

PYTHONS = ((3, 11), (3, 12))
# torch, its CUDA libraries and room for a first run
_ROOM_GIB = 2.0

Verdict = Literal["ok", "warn", "FAIL"]


@dataclass(frozen=True)
class Check:
    """What came of looking at one thing.

    Args:
        name: the thing.
        verdict: ok; warn: works, with a drawback; FAIL: does not work.
        finding: what was found.
        advice: what to do, or an empty text.
    """

    name: str
    verdict: Verdict
    finding: str
    advice: str = ""


def machine_checks() -> Iterator[Check]:
    """Yield the checks that need no tracking store."""
    yield check_python()
    yield check_libraries()
    yield check_opencv()
    yield check_env_manager()
    yield check_git()
    yield check_psutil()
    yield check_working_folder()
    yield check_room()
    yield check_threads()


def check_python() -> Check:
    """Look at the Python that runs this."""
    found = platform.python_version()
    if sys.version_info[:2] in PYTHONS:
        return Check("python", "ok", f"{found} ({sys.executable})")
    return Check("python", "FAIL", found, "use Python 3.11 or 3.12")


def check_libraries() -> Check:
    """Compare what is installed with the ranges of pyproject.toml."""
    if importlib.util.find_spec("packaging") is None:
        return Check("libraries", "FAIL", "packaging is missing", _install())
    from packaging.requirements import Requirement

    project = tomllib.loads((PROJECT_FOLDER / "pyproject.toml").read_text())["project"]
    problems = []
    for requirement in map(Requirement, project["dependencies"]):
        version = _version(requirement.name)
        if version is None:
            problems.append(f"{requirement.name} is missing")
        elif not requirement.specifier.contains(version, prereleases=True):
            problems.append(f"{requirement.name} is {version}, {requirement.specifier} is needed")
    if problems:
        return Check("libraries", "FAIL", "; ".join(problems), _install())
    return Check("libraries", "ok", f"{len(project['dependencies'])} in their ranges")


def _version(name: str) -> str | None:
    # the headless build is the same library without windows
    for candidate in (name, "opencv-python-headless") if name == "opencv-python" else (name,):
        try:
            return importlib.metadata.version(candidate)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _install() -> str:
    return f"{sys.executable} -m pip install -e {PROJECT_FOLDER}"


def check_opencv() -> Check:
    """Import OpenCV in a process of its own: it needs libraries that servers often lack."""
    if importlib.util.find_spec("cv2") is None:
        return Check("opencv", "FAIL", "cv2 is missing", _install())
    command = [sys.executable, "-c", "import cv2; print(cv2.__version__)"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode == 0:
        return Check("opencv", "ok", done.stdout.strip())
    error = (done.stderr.strip().splitlines() or ["cv2 cannot be imported"])[-1]
    return Check("opencv", "FAIL", error, _opencv_advice(error))


def _opencv_advice(error: str) -> str:
    if "libGL" not in error and "libgthread" not in error and "libX" not in error:
        return f"{sys.executable} -m pip install --force-reinstall opencv-python"
    pip = f"{sys.executable} -m pip"
    return (
        "this machine has no libraries for windows; either "
        f"`{pip} uninstall -y opencv-python && {pip} install opencv-python-headless`, or, as "
        "root, `apt-get install libgl1 libglib2.0-0`"
    )


def check_env_manager() -> Check:
    """Say with which `--env-manager` this machine can run the project."""
    conda = shutil.which("conda") or os.environ.get("MLFLOW_CONDA_HOME")
    pyenv = shutil.which("pyenv")
    uv = shutil.which("uv")
    usable = ["local (this environment)"]
    if conda:
        usable.append("conda (also plain `mlflow run .`)")
    if pyenv:
        usable.append("virtualenv" + _pyenv_remark(pyenv))
    if uv:
        usable.append("uv")
    finding = f"--env-manager: {', '.join(usable)}"
    if shutil.which("mlflow") is None:
        advice = f'put this environment first: PATH="{Path(sys.executable).parent}:$PATH"'
        return Check("mlflow run", "warn", f"mlflow is not on PATH; {finding}", advice)
    if conda:
        return Check("mlflow run", "ok", finding)
    advice = (
        "there is no conda, so plain `mlflow run .` cannot work: add --env-manager local"
        + (" or virtualenv" if pyenv else "")
        + (" or uv" if uv else "")
    )
    return Check("mlflow run", "ok", finding, advice)


def _pyenv_remark(pyenv: str) -> str:
    pinned = _pinned_python()
    command = [pyenv, "versions", "--bare"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0 or pinned in done.stdout.split():
        return ""
    return f" (builds Python {pinned} first: minutes, and needs a compiler; pyenv install {pinned})"


def _pinned_python() -> str:
    for line in (PROJECT_FOLDER / "conda.yaml").read_text().splitlines():
        name, _, version = line.strip("- \n").partition("=")
        if name.strip() == "python":
            return version.strip("= ")
    return "3.11"


def check_git() -> Check:
    """Git is what tells which code a run came from."""
    if shutil.which("git") is None:
        advice = "install git; without it runs do not say which commit they came from"
        return Check("git", "warn", "not on PATH", advice)
    return Check("git", "ok", str(shutil.which("git")))


def check_psutil() -> Check:
    """Without psutil train runs have no system metrics."""
    version = _version("psutil")
    if version is None:
        advice = f"{sys.executable} -m pip install psutil; without it there are no system metrics"
        return Check("psutil", "warn", "missing", advice)
    if _has_nvidia() and importlib.util.find_spec("pynvml") is None:
        advice = f"{sys.executable} -m pip install nvidia-ml-py for GPU use among the metrics"
        return Check("psutil", "ok", f"{version}, no nvidia-ml-py", advice)
    return Check("psutil", "ok", version)


def _has_nvidia() -> bool:
    return Path("/proc/driver/nvidia").exists() or shutil.which("nvidia-smi") is not None


def check_working_folder() -> Check:
    """Spools, checkpoints and indexes are written there."""
    folder = working_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        advice = "set SIGHTFLOW_HOME to a folder that can be written"
        return Check("working folder", "FAIL", f"{folder}: {error.strerror}", advice)
    return Check("working folder", "ok", str(folder))


def check_room() -> Check:
    """Look at the free room where checkpoints go."""
    folder = working_folder()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free / 1024**3
    finding = f"{free:.1f} GiB free in {folder}"
    if free < _ROOM_GIB:
        return Check("disk", "warn", finding, "make room or set SIGHTFLOW_HOME to another disk")
    return Check("disk", "ok", finding)


def check_threads() -> Check:
    """More threads than cores make training several times slower."""
    cores = _usable_cores()
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if not asked:
        return Check("threads", "ok", f"{cores} cores, OMP_NUM_THREADS not set (one each)")
    if not asked.isdigit() or int(asked) == 0:
        return Check("threads", "warn", f"OMP_NUM_THREADS={asked}", "set it to a whole number")
    if int(asked) > cores:
        advice = f"set it to {cores} or less"
        return Check("threads", "warn", f"OMP_NUM_THREADS={asked} for {cores} cores", advice)
    return Check("threads", "ok", f"{cores} cores, OMP_NUM_THREADS={asked}")


def _usable_cores() -> int:
    affinity: Any = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
