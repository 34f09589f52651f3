"""The promote step: makes a version the champion, and keeps the one before as `previous`."""

from __future__ import annotations

import click

from steps.options import step_command, working_folder


@step_command()
@click.option(
    "--model-name",
    default="",
    metavar="NAME",
    help="Registered model. Default: the only one there is.",
)
@click.option(
    "--version",
    default="",
    metavar="N",
    help="Its version: a number or an alias. Default: the alias candidate.",
)
@click.option("--reason", default="", metavar="TEXT", help="Why; goes into the version's history.")
@click.option(
    "--force",
    type=click.BOOL,
    default=False,
    show_default=True,
    help="Also take a version that did not pass its gate; needs --reason.",
)
def main(model_name: str, version: str, reason: str, force: bool) -> None:
    """Move the alias champion to a version that passed its gate.

    The old champion gets the alias previous, so that `rollback` can go back to it. Who, when, why
    and the scores are written into the version's description. Nothing is deleted.
    """
    from steps.joined_run import joined_run
    from steps.promotion import promote
    from steps.registry import CANDIDATE, model_name_or_only, registry_lock
    from steps.tracking_store import open_client, use_tracking_store

    with joined_run("promote") as run:
        client = open_client(use_tracking_store())
        name = model_name_or_only(client, model_name)
        with registry_lock(working_folder()):
            done = promote(client, name, version=version or CANDIDATE, reason=reason, force=force)
        if run is not None:
            run.describe(done.summary)
            run.tag("model_version", f"{name}/{done.champion}")
    click.echo(done.summary)


if __name__ == "__main__":
    main()
