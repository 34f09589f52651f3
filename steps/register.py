"""The register step: a gate on logged scores, then a model version with the alias candidate."""

from __future__ import annotations

import click

from steps.options import config_option, set_option, show_option, step_command


@step_command()
@config_option
@set_option
@click.option(
    "--evaluate-run",
    default="",
    metavar="RUN_ID",
    help="Evaluate run whose model is registered, if its scores pass; its own experiment is used "
    "unless --config is given.",
)
@show_option
def main(config: str | None, overrides: str, evaluate_run: str) -> None:
    """Register the model of an evaluate run if its scores pass the experiment's gate.

    Leaves the gate's report on the run, and a model version with the alias candidate. A model that
    is registered already keeps its version. A gate that is not met ends with exit code 3 and no
    version, unless `register.allow_failed` asks for one without an alias.
    """
    from steps.registering import register

    if not evaluate_run:
        raise click.UsageError("--evaluate-run is missing: the id of a finished evaluate run")
    click.echo(register(config, overrides, evaluate_run=evaluate_run).summary)


if __name__ == "__main__":
    main()
