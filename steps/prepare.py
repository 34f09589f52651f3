"""The prepare entry point: data sets are read and checked, and their index is built."""

from __future__ import annotations

import click

from steps.experiment import load
from steps.options import config_option, set_option, show_option, step_command


@step_command()
@config_option
@set_option
@click.option(
    "--jobs",
    default=0,
    type=click.IntRange(min=0),
    metavar="N",
    help="Processes that read pictures. Default: one per core.",
)
@show_option
def main(config: str | None, overrides: str, jobs: int) -> None:
    """Check the data of an experiment and build its index.

    Leaves `index/*.arrow`, `quality.json` and `quality.html` on the run, and the data sets as
    inputs. An error in the data stops it with exit code 1, after the report is written.
    """
    load(config, overrides)  # a wrong file is told before the slow imports
    from steps.preparing import prepare

    click.echo(prepare(config, overrides, jobs=jobs))


if __name__ == "__main__":
    main()
