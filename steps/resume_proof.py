"""The resume-proof entry point: a training that is killed and resumed is the same to the bit."""

from __future__ import annotations

import click

from steps.experiment import load
from steps.options import config_option, device_option, set_option, show_option, step_command


def _count_or_none(ctx: click.Context, parameter: click.Parameter, value: str) -> int | None:
    if value and not value.isdecimal():
        raise click.BadParameter(f"{value!r} is not a whole number of 0 or more")
    return int(value) if value else None


@step_command()
@config_option
@set_option
@device_option
@click.option(
    "--prepare-run",
    default="",
    metavar="RUN_ID",
    help="Prepare run whose index is used. Default: the data is prepared now.",
)
@click.option(
    "--before",
    default=3,
    show_default=True,
    type=click.IntRange(min=1),
    help="Updates on disk when the training is killed.",
)
@click.option(
    "--after",
    default=3,
    show_default=True,
    type=click.IntRange(min=1),
    help="Updates that are made after the resume.",
)
@click.option(
    "--workers",
    default="",
    metavar="COUNT",
    callback=_count_or_none,
    help="Loader processes of the trainings. Default: as configured.",
)
@click.option(
    "--batches",
    default=4,
    show_default=True,
    type=click.IntRange(min=0),
    help="Batches that are compared for 1, 2 and 4 ranks and 0, 1 and 4 workers; 0: a whole epoch.",
)
@show_option
def main(
    config: str | None,
    overrides: str,
    *,
    device: str,
    prepare_run: str,
    before: int,
    after: int,
    workers: int | None,
    batches: int,
) -> None:
    """Prove that a training of this experiment resumes to the bit.

    Trains some updates without a break, and the same ones with a SIGKILL in between; compares
    weights, averages, moments, generators and counts by SHA-256. Leaves resume_proof.json. Exit
    code 1 if anything differs.
    """
    load(config, overrides)  # a wrong file is told before the slow imports
    from steps.proving import Extent, prove

    extent = Extent(before=before, after=after, workers=workers, batches=batches or None)
    lines = prove(config, overrides, device=device, prepare_run=prepare_run, extent=extent)
    for line in lines:
        click.echo(line)


if __name__ == "__main__":
    main()
