"""The option `--fixtures FOLDER`, and the parity tests' cases: one per fixture file of a kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.parity.kinds import (
    ELSEWHERE,
    KINDS,
    fixture_files,
    fixture_folder,
    unknown_files,
)

PARITY_TESTS = Path(__file__).parent / "parity"
_TASKS = pytest.StashKey[set[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fixture-folder",
        metavar="FOLDER",
        help="parity fixture files to test with, default tests/fixtures/<task>; "
        "`TESTS --fixtures FOLDER` says the same",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Take `--fixtures FOLDER` as ours; without such a folder it stays pytest's own option.

    pytest has a flag of that name, which lists its fixtures, so that it reads the folder as tests.
    """
    folder = _folder_after_flag(list(map(str, config.invocation_params.args)))
    if folder is None:
        return
    config.option.showfixtures = False
    config.option.fixture_folder = folder
    config.args = [arg for arg in config.args if arg != folder] or [str(PARITY_TESTS)]


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_TASKS] = set()
    config.addinivalue_line(
        "markers", "fixture_kind(task, kind): run once per fixture file whose name begins so"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "fixture_file" not in metafunc.fixturenames:
        return
    (marker,) = metafunc.definition.iter_markers("fixture_kind")
    task, kind = marker.args
    metafunc.config.stash[_TASKS].add(task)
    files = fixture_files(metafunc.config, task, kind)
    if not files:
        folder = fixture_folder(metafunc.config, task)
        reason = f"FIXTURE MISSING: no {kind}* in {folder}"
        files = [pytest.param(None, marks=pytest.mark.skip(reason=reason), id=f"no-{kind}")]
    metafunc.parametrize("fixture_file", files, ids=lambda path: path.stem if path else None)


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    for task in sorted(config.stash[_TASKS]):
        for path in unknown_files(fixture_folder(config, task), KINDS[task] + ELSEWHERE):
            terminalreporter.write_line(f"fixture of unknown kind, not tested: {path}")


def _folder_after_flag(args: list[str]) -> str | None:
    if "--fixtures" not in args[:-1]:
        return None
    folder = args[args.index("--fixtures") + 1]
    if not Path(folder).is_dir() or any(Path(folder).rglob("test_*.py")):
        return None
    return folder
