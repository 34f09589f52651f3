"""The toy's training is ended in every way there is, at random points; then it finishes."""

import json
import shutil

import pytest

from tests.crash.seeds import TOY_CASES, extent, generator, seed
from tests.crash.toy_cases import assert_as_unbroken, draw_case, run_case

CASES = [(number, draw_case(generator("toy", number), number)) for number in range(100)]


@pytest.fixture(scope="module")
def unbroken(toy_server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    assert toy_server.run(folder=folder)[0] == 0
    return folder


def _named(case):
    number, crashes = case
    kinds = "+".join(f"{crash.ending}@{crash.phase}" for crash in crashes)
    return f"seed{seed()}-{number}-{kinds}"


@pytest.mark.parametrize("case", CASES[: TOY_CASES[extent()]], ids=_named)
def test_the_same_command_finishes_and_nothing_reported_is_lost(
    case, toy_server, unbroken, tmp_path
):
    number, crashes = case
    counts = json.loads((unbroken / "counts.json").read_text())
    run_case(toy_server, crashes, tmp_path, counts=counts, rng=generator("power", number))
    assert_as_unbroken(tmp_path, unbroken, num_crashes=len(crashes))
    shutil.rmtree(tmp_path)
