"""The rollback step: makes the previous champion the champion again."""

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
@click.option("--reason", default="", metavar="TEXT", help="Why; goes into the version's history.")
def main(model_name: str, reason: str) -> None:
    """Swap the aliases champion and previous.

    Run twice, it is back where it was. Who, when and why are written into the descriptions of both
    versions. Nothing is deleted.
    """
    from steps.joined_run import joined_run
    from steps.promotion import roll_back
    from steps.registry import model_name_or_only, registry_lock
    from steps.tracking_store import open_client, use_tracking_store

    with joined_run("rollback") as run:
        client = open_client(use_tracking_store())
        name = model_name_or_only(client, model_name)
        with registry_lock(working_folder()):
            done = roll_back(client, name, reason=reason)
        if run is not None:
            run.describe(done.summary)
            run.tag("model_version", f"{name}/{done.champion}")
    click.echo(done.summary)


if __name__ == "__main__":
    main()
