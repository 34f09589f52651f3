"""From a model's name and a path to a folder of predictions; the work behind the predict step."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from steps.devices import find_device
from steps.joined_run import joined_run
from steps.options import working_folder
from steps.prediction_loop import InputError, Outcome, Setting, predict_all
from steps.prediction_source import open_source
from steps.predictions import DRAWN_FOLDER, JSON_LINES, TABLE, PredictionFiles, claim_folder

if TYPE_CHECKING:
    from steps.run_handle import RunHandle

# a run's page is no picture store
MOST_DRAWN_ON_RUN = 50
_MOST_TOLD = 10


@dataclass(frozen=True)
class Request:
    """What the user asked for; see the options of the predict step."""

    source: str
    input_path: str
    output: str
    config: str
    score_threshold: float
    batch_size: int
    device: str


def predict(request: Request) -> str:
    """Predict, write the results, and return what there is to say about them.

    Raises:
        InputError: if there is nothing to predict on, or nothing of it could be read.
        OutputError: if the output folder holds predictions already.
        UnknownModelError, ModelError: if the model cannot be used.
        VideoError: if a video cannot be decoded.
    """
    # `mlflow run` works in the project's folder: messages say where a relative path led
    source = Path(request.input_path).expanduser().absolute()
    given = Path(request.output).expanduser().absolute() if request.output else None
    with joined_run("predict") as run:
        # before the model is loaded: these mistakes should be told at once
        if not source.exists():
            raise InputError(f"{source}: no such picture, folder or video")
        folder = claim_folder(given or _new_folder(request))
        setting = _setting(request)
        with PredictionFiles(folder, setting.predictor) as files:
            outcome = predict_all(source, files, setting=setting)
            if outcome.num_pictures == 0:
                raise InputError(f"no picture could be read:\n{_listed(outcome.unreadable)}")
        summary = _summary(outcome, files, unit=setting.predictor.unit)
        if run is not None:
            _leave_on_run(run, outcome, files, summary)
    return summary


def _new_folder(request: Request) -> Path:
    """Return a folder that is not there yet, named by model and time."""
    path = Path(request.source)
    source = path.stem if path.exists() else request.source.removeprefix("models:/")
    name = re.sub(r"[^A-Za-z0-9.@-]+", "-", source)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    wanted = working_folder() / "predictions" / f"{name.strip('-')[-40:]}-{stamp}"
    folder, number = wanted, 1
    while folder.exists():
        folder, number = wanted.with_name(f"{wanted.name}-{number}"), number + 1
    return folder


def _setting(request: Request) -> Setting:
    return Setting(
        predictor=open_source(
            request.source, config=request.config, device=find_device(request.device)
        ),
        score_threshold=request.score_threshold,
        batch_size=request.batch_size,
    )


def _summary(outcome: Outcome, files: PredictionFiles, *, unit: str) -> str:
    beside = ", ".join([TABLE, *files.further, f"{DRAWN_FOLDER}/"])
    lines = [
        f"{files.num_found} {unit} in {outcome.num_pictures} pictures: "
        f"{files.folder / JSON_LINES}, {beside}"
    ]
    if outcome.num_skipped:
        lines.append(f"{outcome.num_skipped} other files in the folder were left out")
    if outcome.unreadable:
        lines.append(
            f"warning: {len(outcome.unreadable)} pictures could not be read:\n"
            f"{_listed(outcome.unreadable)}"
        )
    return "\n".join(lines)


def _listed(reasons: list[str]) -> str:
    shown = [f"  {reason}" for reason in reasons[:_MOST_TOLD]]
    rest = len(reasons) - len(shown)
    return "\n".join([*shown, f"  and {rest} more"] if rest else shown)


def _leave_on_run(run: RunHandle, outcome: Outcome, files: PredictionFiles, summary: str) -> None:
    for shared in files.shared:
        run.artifact(shared)
    for path in outcome.drawn[:MOST_DRAWN_ON_RUN]:
        folder = path.parent.relative_to(files.folder).as_posix()
        run.artifact(path, folder)
    run.describe(summary.splitlines()[0], more=summary)
