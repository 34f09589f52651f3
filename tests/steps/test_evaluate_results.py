"""`evaluate --results`: files of any program are scored in a run without a model."""

import logging
import shutil

import pytest
from click.testing import CliRunner

from steps.evaluate import main
from steps.scores import ScoresError, scored_run

CONFIG = "configs/lanes/quickstart.yaml"
TINY = (
    "data.train.roads=2 data.val.roads=2 data.test.roads=3 evaluate.jobs=1 evaluate.pictures=1 "
    "evaluate.worst=1"
)


def evaluated(*arguments, config=CONFIG):
    options = ["--config", config] if config else []
    return CliRunner().invoke(main, [*options, *arguments], catch_exceptions=False)


@pytest.fixture
def lines(tmp_path):
    """The test roads' own labels, as another program's results."""
    from steps.experiment import load
    from tasks.lanes.prepare import read_source

    source = load(CONFIG, TINY).experiment.data.test
    drawn = read_source(source, base=tmp_path, working=tmp_path / "drawn", jobs=1).source.parents[1]
    shutil.copytree(drawn, tmp_path / "lines", ignore=shutil.ignore_patterns("*.jpg", "*.png"))
    return tmp_path / "lines"


def test_results_are_scored_in_a_run_without_a_model(client, lines, caplog):
    next(lines.rglob("*.lines.txt")).unlink()
    with caplog.at_level(logging.WARNING):
        done = evaluated("--set", TINY, "--results", str(lines))
    assert done.exit_code == 0, done.output
    assert "1 of 3 pictures have no result" in caplog.text
    (run,) = client.search_runs([e.experiment_id for e in client.search_experiments()])
    assert run.data.metrics["test/precision"] == 1
    assert 0 < run.data.metrics["test/F1"] < 1
    assert run.data.tags["results"] == str(lines)
    assert not run.data.tags.get("model_id")
    with pytest.raises(ScoresError, match=r"lacks tag model_id\); give an evaluate run of a train"):
        scored_run(client, run.info.run_id)


def test_a_broken_file_is_told_in_one_sentence(store, lines):
    path = next(lines.rglob("*.lines.txt"))
    path.write_text("1 2 3\n")
    done = evaluated("--set", TINY, "--results", str(lines))
    assert done.exit_code == 1
    assert f"{path.name}:1: 3 numbers, an odd count" in done.output


@pytest.mark.parametrize(
    ("arguments", "config", "message"),
    [
        (["--results", "."], "", "--results needs --config"),
        (["--results", "."], "configs/detection/quickstart.yaml", "detection reads no result file"),
        (["--results", "not-there"], CONFIG, "not-there: no such folder or file"),
        (["--results", ".", "--checkpoint", "a.pt"], CONFIG, "give one of --train-run"),
        (["--results", ".", "--train-run", "a"], CONFIG, "give one of --train-run"),
        ([], CONFIG, "give one of --train-run"),
    ],
)
def test_what_cannot_be_asked_is_a_usage_error(store, arguments, config, message):
    done = evaluated(*arguments, config=config)
    assert done.exit_code == 2
    assert message in done.output
