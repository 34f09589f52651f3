"""Where tests find the real data that is not part of the repository."""

from __future__ import annotations

from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
SHARED_DATA = REPOSITORY.parent / "shared" / "data"


def shared_data(relative: str) -> Path:
    """Return a folder or file of the shared data, or skip the test with a loud reason."""
    path = SHARED_DATA / relative
    if not path.exists():
        pytest.skip(f"REAL DATA MISSING: ../shared/data/{relative} is not beside the repository")
    return path
