"""The doctor entry point: what this machine lacks, before MLflow's own traceback tells."""

from __future__ import annotations

import click

from steps.checks import Check, machine_checks
from steps.options import FAILED, step_command

_COLOURS = {"ok": "green", "warn": "yellow", "FAIL": "red"}


@step_command()
@click.option(
    "--close",
    type=click.Choice(["false", "true", "all"]),
    default="false",
    show_default=True,
    help="End runs of this machine that say RUNNING although their process is gone, as FAILED; "
    "all: also those that are older than a day and never had one.",
)
@click.option(
    "--init",
    type=click.BOOL,
    default=False,
    metavar="true|false",
    show_default=True,
    help="Make the embedded tracking database now; do so before starting several runs at once.",
)
def main(close: str, init: bool) -> None:
    """Say what this machine lacks, one line a thing, and what to do about it.

    Exit code 1 if something that is needed is missing.
    """
    has_failed = False
    for check in machine_checks():
        _show(check)
        has_failed |= check.verdict == "FAIL"
    if has_failed:
        # the tracking store is looked at by means of the libraries
        click.get_current_context().exit(FAILED)
    check = _check_store(init=init)
    _show(check)
    if check.verdict == "FAIL":
        click.get_current_context().exit(FAILED)
    _look_for_orphans(close=close)
    _look_for_spools()


def _check_store(*, init: bool) -> Check:
    from steps.store_check import check_store
    from steps.tracking_store import init_store, use_tracking_store

    if init:
        init_store(use_tracking_store())
    return check_store()


def _look_for_orphans(*, close: str) -> None:
    from steps.orphans import close_orphan, find_orphans
    from steps.tracking_store import database_file, open_client, use_tracking_store

    uri = use_tracking_store()
    path = database_file(uri)
    if path is not None and not path.exists():
        return
    client = open_client(uri)
    num_left = 0
    for orphan in find_orphans(client):
        if close == "all" or (close == "true" and orphan.is_certain):
            close_orphan(client, orphan)
            _show(Check("run", "ok", f"{orphan.name} ({orphan.run_id}) closed: {orphan.reason}"))
            continue
        num_left += 1
        finding = f"{orphan.name} ({orphan.run_id}) says RUNNING: {orphan.reason}"
        advice = (
            f"close it: python -m steps.doctor --close {'true' if orphan.is_certain else 'all'}"
        )
        _show(Check("run", "warn", finding, advice))
    if not num_left:
        _show(Check("runs", "ok", "none says RUNNING without a process"))


def _look_for_spools() -> None:
    from steps.options import working_folder
    from steps.sync import ALL_RUNS, find_spools

    spools = list(find_spools(working_folder() / "runs", ALL_RUNS))
    if spools:
        finding = f"{len(spools)} runs hold points or files that were not sent"
        _show(Check("spools", "warn", finding, "send them: python -m steps.sync"))


def _show(check: Check) -> None:
    verdict = click.style(f"{check.verdict:4}", fg=_COLOURS[check.verdict])
    click.echo(f"{verdict}  {check.name:15} {check.finding}")
    if check.advice:
        click.echo(f"      {'':15} -> {check.advice}")


if __name__ == "__main__":
    main()
