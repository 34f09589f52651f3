"""The replay entry point: an update that went wrong is made once more, and its cause told."""

from __future__ import annotations

import click

from steps.options import device_option, step_command


@step_command()
@click.option(
    "--capsule",
    default="",
    metavar="FOLDER|RUN_ID",
    help="Capsule to replay: its folder, or the train run that left it (its last one; "
    "RUN_ID/update-00000123 for another).",
)
@click.option(
    "--prepare-run",
    default="",
    metavar="RUN_ID",
    help="Prepare run whose index is used. Default: the train run's, else the data is prepared.",
)
@device_option
def main(capsule: str, prepare_run: str, device: str) -> None:
    """Make an update that went wrong once more, and say why it did.

    The last line is the verdict: label, learning rate, precision, operator or not reproduced.
    Nothing is trained.
    """
    if not capsule:
        raise click.UsageError(
            "give --capsule: a capsule's folder, or the id of the train run that left one"
        )
    from steps.replaying import replay

    for line in replay(capsule, prepare_run=prepare_run, device=device):
        click.echo(line)


if __name__ == "__main__":
    main()
