"""From `--device` to a torch device."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class DeviceError(Exception):
    """A device that this machine does not have; one sentence."""

    exit_code = 2


def find_device(name: str) -> torch.device:
    """Return the device of a name: auto (CUDA where there is one), cpu, cuda or cuda:N.

    Raises:
        DeviceError: if the machine has no such device.
    """
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda":
        count = torch.cuda.device_count()
        if count == 0:
            raise DeviceError(
                f"--device {name}: torch {torch.__version__} sees no CUDA device here"
            )
        if (device.index or 0) >= count:
            raise DeviceError(f"--device {name}: there are {count} CUDA devices, counted from 0")
    return device
