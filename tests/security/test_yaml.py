"""YAML makes plain values, and never more of them than its text holds."""

import pytest
import yaml

from readers.plain_yaml import load_plain_yaml
from readers.records import DatasetError
from readers.yolo import read_yolo
from steps.experiment import ConfigError, load

TAGS = {
    "apply": "!!python/object/apply:os.system ['touch {trace}']",
    "new": "!!python/object/new:os.system ['touch {trace}']",
    "name": "!!python/name:os.system",
    "module": "!!python/module:os",
    "own": "!command 'touch {trace}'",
}


def bomb(key: str) -> str:
    """Nine lists of nine aliases each, the last one a billion entries long."""
    lines = ["l0: &l0 [a, a, a, a, a, a, a, a, a]"]
    lines += [
        f"l{depth}: &l{depth} [{', '.join([f'*l{depth - 1}'] * 9)}]" for depth in range(1, 10)
    ]
    return "\n".join([*lines, f"{key}: *l9", ""])


@pytest.mark.parametrize("tag", TAGS.values(), ids=TAGS)
def test_a_tag_in_a_configuration_makes_nothing(tmp_path, trace, tag):
    path = tmp_path / "evil.yaml"
    path.write_text(f"task: detection\nname: {tag.format(trace=trace)}\n")
    with pytest.raises(ConfigError, match=r"evil\.yaml:2: name: the tag .* is not allowed"):
        load(path)


@pytest.mark.parametrize("tag", TAGS.values(), ids=TAGS)
def test_a_tag_in_an_assignment_makes_nothing(trace, tag):
    value = tag.format(trace=trace).replace("'", "")
    with pytest.raises(ConfigError, match="is not allowed"):
        load(None, f'"name={value}"')


@pytest.mark.parametrize("tag", TAGS.values(), ids=TAGS)
def test_a_tag_in_a_data_yaml_makes_nothing(tmp_path, trace, tag):
    path = tmp_path / "data.yaml"
    path.write_text(f"train: images\nnames: {tag.format(trace=trace)}\n")
    with pytest.raises(DatasetError, match=r"data\.yaml:2: not YAML: could not determine a constr"):
        read_yolo(path, split="train", names=None)


def test_aliases_that_multiply_are_refused_in_a_configuration(tmp_path):
    path = tmp_path / "bomb.yaml"
    path.write_text("task: detection\n" + bomb("name"))
    with pytest.raises(ConfigError, match="aliases multiply beyond measure"):
        load(path)


def test_aliases_that_multiply_are_refused_in_a_data_yaml(tmp_path):
    path = tmp_path / "data.yaml"
    path.write_text("train: images\n" + bomb("names"))
    with pytest.raises(DatasetError, match=r"data\.yaml:3: not YAML: the alias \*l0 repeats"):
        read_yolo(path, split="train", names=None)


def test_an_alias_of_a_word_is_fine():
    assert load_plain_yaml("train: &t images\nval: *t\n") == {"train": "images", "val": "images"}


def test_an_alias_of_nothing_is_refused():
    with pytest.raises(yaml.YAMLError, match=r"\*no"):
        load_plain_yaml("val: *no\n")


def test_nesting_without_end_is_refused(tmp_path):
    for name in ("deep.yaml", "data.yaml"):
        (tmp_path / name).write_text("name: " + "[" * 100_000)
    with pytest.raises(ConfigError, match="nested too deeply"):
        load(tmp_path / "deep.yaml")
    with pytest.raises(DatasetError, match="nested too deeply"):
        read_yolo(tmp_path / "data.yaml", split="train", names=None)


@pytest.mark.filterwarnings("ignore:.*type hint is inferred as AnyType:UserWarning")
def test_the_configuration_in_a_model_package_is_plain_too(tmp_path, trace):
    from steps.serving import read_experiment
    from tasks.predictor import ModelError

    path = tmp_path / "config.yaml"
    for text in (bomb("model"), f"model: {TAGS['apply'].format(trace=trace)}\n"):
        path.write_text("task: detection\n" + text)
        with pytest.raises(ModelError, match=r"config\.yaml: not the YAML of an experiment"):
            read_experiment(path)
