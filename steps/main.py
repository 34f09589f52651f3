"""The main entry point: prepare, train, evaluate and register as one pipeline of child runs."""

from __future__ import annotations

import click

from steps.experiment import load
from steps.options import config_option, device_option, set_option, show_option, step_command


@step_command()
@config_option
@set_option
@device_option
@show_option
def main(config: str | None, overrides: str, device: str) -> None:
    """Take an experiment from pictures and labels to a registered model.

    Runs prepare, train, evaluate and register as child runs; promotes when `register.promote` is
    true. Ends at the first step that fails, with its reason.
    """
    load(config, overrides)  # a wrong file is told before the slow imports
    from steps.pipeline import run_pipeline

    click.echo(run_pipeline(config, overrides, device=device))


if __name__ == "__main__":
    main()
