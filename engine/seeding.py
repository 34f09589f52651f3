"""Where every random draw of a run comes from: the run's seed, and nothing else.

A sample draws from its own pair of generators, an epoch's order from another, and what networks
draw (dropout, proposal sampling) from the global generators, which are seeded anew for each batch.
So no draw depends on the number of workers, on where a run was resumed, or on an evaluation in
between.
"""

from __future__ import annotations

import hashlib
import os
import random
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from engine.contract import Draws

_SAMPLE, _ORDER, _BATCH = 0, 1, 2


def sample_generators(
    draws: Draws, *, epoch: int, index: int
) -> tuple[random.Random, np.random.RandomState]:
    """Return the two generators that one sample of one epoch draws from.

    Args:
        draws: what the run is seeded from.
        epoch: counted from 0.
        index: the sample's index in the training split, >= 0.

    Returns:
        Python's and numpy's generator (the references' draws need both), independent of each other
        and of those of any other sample, epoch, seed or restart.
    """
    digest = _digest(draws, _SAMPLE, epoch, index)
    return (
        random.Random(int.from_bytes(digest[:16], "little")),
        _random_state(digest[16:]),
    )


def epoch_order(draws: Draws, *, epoch: int, size: int) -> np.ndarray:
    """Return the order in which an epoch visits `size` samples: (size,) int64, a permutation."""
    digest = _digest(draws, _ORDER, epoch, size)
    return _random_state(digest).permutation(size).astype(np.int64, copy=False)


def seed_batch(draws: Draws, *, epoch: int, iteration: int, rank: int) -> None:
    """Seed the global generators of Python, numpy and torch for one batch on one rank."""
    digest = _digest(draws, _BATCH, epoch, iteration, rank)
    random.seed(int.from_bytes(digest[:8], "little"))
    np.random.seed(int.from_bytes(digest[8:12], "little"))
    seed = int.from_bytes(digest[16:24], "little") >> 1
    # torch.manual_seed would ask every kind of device for its seed, which takes 0.2 ms
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)


def seed_everything(draws: Draws, determinism: str) -> None:
    """Seed the global generators and choose between fast and repeatable kernels.

    Args:
        draws: what the run is seeded from.
        determinism: `off` lets cuDNN pick the fastest kernels by trial; `seeded` does not, so that
            draws and kernels stay the same; `strict` also refuses operations without a
            deterministic kernel.

    `strict` sets `CUBLAS_WORKSPACE_CONFIG` if the environment does not, which only has an effect
    before the first CUDA operation.
    """
    seed_batch(draws, epoch=0, iteration=0, rank=0)
    torch.manual_seed(draws.seed)  # a CUDA context that is yet to come, too
    is_strict = determinism == "strict"
    if is_strict:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        # filling fresh memory costs time and changes no result of correct code
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(is_strict)
    torch.backends.cudnn.deterministic = is_strict
    torch.backends.cudnn.benchmark = determinism == "off"


def _random_state(seed: bytes) -> np.random.RandomState:
    """Return a generator of the old interface over PCG64, which starts ten times faster."""
    return np.random.RandomState(np.random.PCG64(int.from_bytes(seed, "little")))


def _digest(draws: Draws, purpose: int, *numbers: int) -> bytes:
    """Return 32 bytes that depend on every argument."""
    values = (draws.seed, draws.restarts, purpose, *numbers)
    return hashlib.blake2b(struct.pack(f"<{len(values)}q", *values), digest_size=32).digest()


def rng_state() -> dict[str, Any]:
    """Return the states of the global generators as tensors and plain values."""
    version, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": [version, torch.tensor(words, dtype=torch.int64), gauss],
        "numpy": [
            str(name),
            torch.tensor(np.asarray(keys, dtype=np.int64)),
            position,
            has_gauss,
            cached,
        ],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def set_rng_state(state: Mapping[str, Any]) -> None:
    """Put the global generators into a state that `rng_state` returned."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words.tolist()), gauss))
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
