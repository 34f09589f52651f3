"""Which crash cases are run, and what they are drawn from.

`SIGHTFLOW_CRASH=all` runs the whole matrix, otherwise it is a sample. The seed is a fresh one each
time; `SIGHTFLOW_CRASH_SEED` repeats one.
"""

from __future__ import annotations

import os
import random
from functools import cache

TOY_CASES = {"sample": 10, "all": 100}
LOG_CASES = {"sample": 4, "all": 24}
CHAIN_CASES = {"sample": 1, "all": 10}


def extent() -> str:
    """Return `sample` or `all`."""
    return "all" if os.environ.get("SIGHTFLOW_CRASH") == "all" else "sample"


@cache
def seed() -> int:
    """Return the seed of this session."""
    given = os.environ.get("SIGHTFLOW_CRASH_SEED", "")
    return int(given) if given else random.SystemRandom().randrange(10**6)


def generator(kind: str, number: int) -> random.Random:
    """Return what the draws of one case come from."""
    return random.Random(f"{seed()}/{kind}/{number}")
