"""The train entry point: an experiment's network is trained, its best weights become a model."""

from __future__ import annotations

import click

from steps.experiment import load
from steps.options import config_option, device_option, set_option, show_option, step_command


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
    "--resume",
    default="",
    metavar="RUN_ID|auto|FILE[@EPOCH]",
    help="Go on from the newest checkpoint of a train run; auto: of the newest run of this "
    "experiment that did not finish; FILE: from a checkpoint, also one of another program.",
)
@show_option
def main(config: str | None, overrides: str, device: str, prepare_run: str, resume: str) -> None:
    """Train the network of an experiment.

    Leaves curves, checkpoints, pictures and the deployable model of the best weights on the run.
    """
    if config or not resume:
        load(config, overrides)  # a wrong file is told before the slow imports
    from steps.training import train

    outcome = train(config, overrides, device=device, prepare_run=prepare_run, resume=resume)
    click.echo(outcome.summary())


if __name__ == "__main__":
    main()
