"""The tracking store of the steps' tests, and files as someone with bad intentions writes them."""

import os
import pickle
from pathlib import Path

import pytest
import torch

from tests.steps.conftest import client, empty_database, store

__all__ = ["client", "empty_database", "store"]


class Reducer:
    """Unpickling this runs a command, which leaves a file behind."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self):
        return os.system, (f"touch '{self.trace}'",)


@pytest.fixture
def trace(tmp_path):
    """The file that is there as soon as hostile code was run; it must not be."""
    path = tmp_path / "code-was-run"
    yield path
    assert not path.exists()


def _as_weights(path, payload):
    torch.save({"network": {"weight": torch.zeros(2)}, "extra": payload}, path)


def _as_legacy(path, payload):
    torch.save({"weight": payload}, path, _use_new_zipfile_serialization=False)


def _as_pickle(path, payload):
    path.write_bytes(pickle.dumps({"weight": payload}, protocol=2))


KINDS = {"zip": _as_weights, "legacy": _as_legacy, "bare pickle": _as_pickle}


@pytest.fixture(params=KINDS)
def hostile_file(request, tmp_path, trace):
    """A `.pt` that runs a command when it is unpickled without care."""
    path = tmp_path / "ep001.pt"
    KINDS[request.param](path, Reducer(trace))
    return path
