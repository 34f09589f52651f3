"""The predict step: pictures, a folder or a video in; JSON Lines, a table and drawings out."""

from __future__ import annotations

import click

from steps.options import device_option, step_command


@step_command()
@click.option(
    "--source",
    default="",
    metavar="MODEL",
    help="Model: models:/NAME@champion, models:/NAME/3, models:/m-..., a run's id, a model's "
    "folder, or the path of a checkpoint.",
)
@click.option("--input", "input_path", default="", metavar="PATH", help="Picture, folder or video.")
@click.option(
    "--output",
    default="",
    metavar="FOLDER",
    help="Where the predictions go; must not hold some already. Default: a new folder in "
    ".sightflow/predictions.",
)
@click.option(
    "--config",
    default="",
    metavar="FILE",
    help="Experiment of a checkpoint. Default: config.yaml beside the checkpoint.",
)
@click.option(
    "--score-threshold",
    type=click.FloatRange(0, 1),
    default=0.5,
    show_default=True,
    help="Lowest score that is reported; below the model's own threshold it has no effect.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Pictures per forward pass.",
)
@device_option
def main(
    source: str,
    input_path: str,
    output: str,
    config: str,
    score_threshold: float,
    batch_size: int,
    device: str,
) -> None:
    """Predict with a registered model, a run's model or a checkpoint.

    Writes predictions.jsonl (one picture or frame a line), predictions.csv (one box, or one point
    of a lane, a row) and drawn pictures, or a drawn video. Pictures that cannot be read are listed
    and left out; the exit code is 1 only if none could be read.
    """
    from steps.predicting import Request, predict

    if not source:
        raise click.UsageError("--source is missing: which model, e.g. models:/NAME@champion")
    if not input_path:
        raise click.UsageError("--input is missing: a picture, a folder of pictures or a video")
    request = Request(
        source=source,
        input_path=input_path,
        output=output,
        config=config,
        score_threshold=score_threshold,
        batch_size=batch_size,
        device=device,
    )
    click.echo(predict(request))


if __name__ == "__main__":
    main()
