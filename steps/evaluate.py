"""The evaluate entry point: official metrics of a trained network on a split."""

from __future__ import annotations

import click

from steps.experiment import load
from steps.options import config_option, device_option, set_option, show_option, step_command


@step_command()
@config_option
@set_option
@device_option
@click.option(
    "--train-run",
    default="",
    metavar="RUN_ID",
    help="Train run whose best weights are scored; its experiment is used without --config.",
)
@click.option(
    "--checkpoint",
    default="",
    metavar="FILE",
    help="Weights to score in place of a train run's: ours, or a state dict of the same network.",
)
@click.option(
    "--results",
    default="",
    metavar="FOLDER",
    help="Lanes that any program found, scored in place of a network's; --config is needed.",
)
@show_option
def main(
    config: str | None, overrides: str, device: str, train_run: str, checkpoint: str, results: str
) -> None:
    """Score a trained network, or another program's results, on the experiment's split.

    Leaves the scores, a table with a row per picture, plots and the worst pictures on the run.
    """
    if config or not train_run:
        load(config, overrides)  # a wrong file is told before the slow imports
    from steps.evaluating import evaluate

    outcome = evaluate(
        config,
        overrides,
        device=device,
        train_run=train_run,
        checkpoint=checkpoint,
        results=results,
    )
    click.echo(outcome)


if __name__ == "__main__":
    main()
