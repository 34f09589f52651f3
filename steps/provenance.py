"""What a run came from: the code as it was, the machine, the libraries."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from steps.options import PROJECT_FOLDER

if TYPE_CHECKING:
    from steps.experiment import Loaded

_LARGEST_DIFF = 1024**2
# nothing else of the environment is written down: it may hold secrets
_TOLD_VARIABLES = (
    "PYTHONHASHSEED",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
    "CUBLAS_WORKSPACE_CONFIG",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
)


@dataclass(frozen=True)
class GitState:
    """The state of the project's code.

    Args:
        commit: hex digest of HEAD.
        diff: what differs from HEAD, with the untracked files listed; empty if nothing does.
    """

    commit: str
    diff: str

    @property
    def is_dirty(self) -> bool:
        """Whether the code differs from the commit."""
        return bool(self.diff)


def git_state(folder: Path = PROJECT_FOLDER) -> GitState | None:
    """Return the state of the code in a folder, or None if Git does not keep that code."""
    if (
        shutil.which("git") is None
        or _git(folder, "ls-files", "--error-unmatch", "MLproject") is None
    ):
        return None
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    diff = _git(folder, "diff", "HEAD", "--no-color", "--no-ext-diff", "--", ".") or ""
    untracked = _git(folder, "ls-files", "--others", "--exclude-standard", "--", ".") or ""
    if len(diff) > _LARGEST_DIFF:
        diff = f"{diff[:_LARGEST_DIFF]}\n... cut, {len(diff)} characters in all\n"
    if untracked.strip():
        diff += f"\nUntracked files (content not shown):\n{untracked}"
    return GitState(commit.strip(), diff)


def _git(folder: Path, *arguments: str) -> str | None:
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def process_tags() -> dict[str, str]:
    """Return the tags by which `doctor` finds out whether a run's process still lives."""
    tags = {"host": socket.gethostname(), "pid": str(os.getpid())}
    if (started := process_start(os.getpid())) is not None:
        tags["pid.started"] = started
    return tags


def process_start(pid: int) -> str | None:
    """Return when a living process started, in a form that is only good for comparing.

    None if there is no such process, or no way to tell.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    # field 22 of proc(5): clock ticks between boot and start
    return f"{boot[:8]}+{fields[19]}"


def is_process_alive(pid: int, started: str | None) -> bool:
    """Return whether the process of that number, started at that time, is still there."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    now = process_start(pid)
    return started is None or now is None or now == started


def environment_text(loaded: Loaded | None) -> str:
    """Return the machine, the settings and every installed library, one a line."""
    lines = [
        f"python {platform.python_version()} ({sys.executable})",
        f"platform {platform.platform()}",
        f"cpu {_cpu_name()}, {os.cpu_count()} logical cores",
        f"memory {_memory_gib()}",
        *(f"{name}={os.environ.get(name, '(not set)')}" for name in _TOLD_VARIABLES),
    ]
    if loaded is not None:
        lines += _torch_lines()
        lines.append(f"train.determinism {loaded.flat.get('train.determinism', '?')}")
        lines.append(f"seed {loaded.flat.get('seed', '?')}")
    return "\n".join([*lines, "", "installed:", *_installed(), ""])


def _installed() -> list[str]:
    found = {
        (distribution.metadata["Name"] or "?").lower(): distribution.version
        for distribution in importlib.metadata.distributions()
    }
    return [f"{name}=={version}" for name, version in sorted(found.items())]


def _torch_lines() -> list[str]:
    import torch

    lines = [
        f"torch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {_cudnn_version()}",
        f"torch threads {torch.get_num_threads()}, inter-op {torch.get_num_interop_threads()}",
    ]
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        lines.append(f"gpus {', '.join(names)}")
    return lines


def _cudnn_version() -> str:
    import torch

    return str(torch.backends.cudnn.version()) if torch.cuda.is_available() else "None"  # type: ignore[no-untyped-call]


def _cpu_name() -> str:
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory_gib() -> str:
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return "unknown"
    return f"{size / 1024**3:.1f} GiB"
