"""Experiments: layers, `--set`, messages, and what `load` hands on."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steps.experiment import DEFAULT_CONFIG, PROJECT_FOLDER, ConfigError, Loaded, load

CONFIGS = sorted((PROJECT_FOLDER / "configs").rglob("*.yaml"))
ENVIRON = {"DATA": "/data", "WEIGHTS": "/weights"}

SMALL = """\
name: small
task: detection
data:
  train: {format: coco, images: pictures, annotations: labels/train.json}
  val: {format: coco, images: pictures, annotations: labels/val.json}
model:
  name: fasterrcnn
  backbone: {name: slim_resnet}
train:
  epochs: 4
  batch_size: 2
  optimizer:
    name: sgd
    lr: 0.1
    momentum: 0.5
evaluate: {split: val}
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    def write_file(text: str, name: str = "e.yaml") -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return name

    return write_file


def complaints(config: str, overrides: str = "", environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(config, overrides, environ or {})
    assert caught.value.exit_code == 2
    return str(caught.value)


def changed(old: str, new: str) -> str:
    assert old in SMALL
    return SMALL.replace(old, new)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_shipped_config_loads(path: Path) -> None:
    assert load(path, environ=ENVIRON).experiment.task in path.parent.name


@pytest.mark.parametrize("nothing", [None, ""])
def test_without_a_file_the_embedded_default_is_loaded(nothing: str | None) -> None:
    assert load(nothing).path == DEFAULT_CONFIG


def test_a_relative_file_is_found_in_the_project_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load("configs/detection/quickstart.yaml").path == DEFAULT_CONFIG


def test_a_file_that_is_not_there_is_told_with_the_nearest_name(write) -> None:
    write(SMALL, "quickstart.yaml")
    said = complaints("quikstart.yaml")
    assert said == (
        f"quikstart.yaml does not exist; did you mean quickstart.yaml? (looked for in {Path.cwd()})"
    )


def test_all_problems_of_a_file_are_told_at_once_with_their_lines(write) -> None:
    text = changed("lr: 0.1", "lr: -0.1").replace("epochs: 4", "epoch: 4") + "sede: 1\n"
    assert complaints(write(text)).splitlines() == [
        "e.yaml:9: train: missing key 'epochs' (Passes over the training split)",
        "e.yaml:10: train: unknown key 'epoch'; did you mean 'epochs'?",
        "e.yaml:14: train.optimizer.lr: -0.1 is not allowed: must be greater than 0",
        "e.yaml:17: unknown key 'sede'; did you mean 'seed'?",
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "epochs: 4",
            "epochs: 4.5",
            "e.yaml:10: train.epochs: 4.5 is not allowed: must be a whole",
        ),
        ("epochs: 4", "epochs: true", "train.epochs: true is not allowed: must be a whole number"),
        ("epochs: 4", "epochs: '4'", "must be a whole number, without quotes"),
        ("epochs: 4", "epochs:", "train.epochs: null is not allowed: must be a whole number"),
        ("name: sgd", "name: sdg", "'sdg' is not allowed: must be one of sgd, adam, adamw; did"),
        ("name: sgd", "nam: sgd", "e.yaml:12: train.optimizer: missing key 'name': one of sgd"),
        ("{name: slim_resnet}", "{name: resnet}", "model.backbone.name: 'resnet' is not allowed"),
        ("{name: slim_resnet}", "slim_resnet", "write {name: slim_resnet, ...}"),
        ("{name: slim_resnet}", "", "model.backbone: is empty: must be a section with the key"),
        ("name: small", "name: 7", "e.yaml:1: name: 7 is not allowed: must be text; write it in q"),
        ("name: small", "name: -x", "must match ^[A-Za-z0-9][A-Za-z0-9_.-]*$ (Name of the exp"),
        ("name: small", f"name: {'x' * 61}", "must have at most 60 characters"),
        ("task: detection", "task: detecton", "e.yaml:2: task: 'detecton' is not allowed: must be"),
        ("task: detection", "", "e.yaml:1: missing key 'task': one of detection, lanes"),
        ("train:\n", "train:\n  compile: on\n", "'on' is not allowed: must be true or false"),
        ("train:\n", "train:\n  lr: 1\n", "unknown key 'lr'; did you mean train.optimizer.lr?"),
        ("task: detection", "task: detection\ntrain.epochs: 3", "nested: write it below `train:`"),
        ("train:\n", "train:\n  ema: 0.9\n", "train.ema: 0.9 is not allowed: must be a section"),
        ("name: small", f"name: small\nseed: {2**63}", "seed: 9223372036854775808 is not allowed"),
        ("lr: 0.1", "lr: .inf", "e.yaml:14: train.optimizer.lr: .inf is not allowed: must be a f"),
        (
            "{name: slim_resnet}",
            "{name: slim_resnet, widths: [1, 2]}",
            "model.backbone.widths: [1, 2] is not allowed: must have more entries, has 2",
        ),
        (
            "{name: slim_resnet}",
            "{name: slim_resnet, widths: [1, 2, x, 4]}",
            "model.backbone.widths.2: 'x' is not allowed: must be a whole number",
        ),
        (
            "{split: val}",
            "{split: val, headline: mAP_05}",
            "must be one of mAP_50, mAP_75",
        ),
        (
            "momentum: 0.5",
            "momentum: 0\n    nesterov: true",
            "e.yaml:12: train.optimizer: nesterov needs a momentum above 0",
        ),
        (
            "format: coco, images: pictures, annotations: labels/val.json",
            "format: yolo, path: x, names: [a, 1]",
            "data.val.names.1: 1 is not allowed: must be text",
        ),
        (
            "format: coco, images: pictures, annotations: labels/val.json",
            "format: yolo, path: x, names: 3",
            'data.val.names: 3 is not allowed: must be text; write it in quotes: "3" or must be',
        ),
    ],
)
def test_a_faulty_value_is_told_with_place_key_and_what_is_right(
    write, old: str, new: str, said: str
) -> None:
    lines = complaints(write(changed(old, new))).splitlines()
    assert any(said in line for line in lines)


@pytest.mark.parametrize(
    ("addition", "said"),
    [
        (
            "register: {name: m, gate: {thresholds: {mAP50: 1}}}\n",
            "e.yaml:17: register.gate.thresholds.mAP50: 'mAP50' is not a score of this task: "
            "must be one of mAP_50,",
        ),
        (
            "register: {name: m, gate: {thresholds: {test/mAP: 1}}}\n",
            "write 'mAP', without the split before it",
        ),
        (
            "register: {name: m, gate: {champion: {metric: loss}}}\n",
            "register.gate.champion.metric: 'loss' is not a score of this task",
        ),
    ],
)
def test_a_gate_names_scores_of_the_task(write, addition: str, said: str) -> None:
    assert said in complaints(write(SMALL + addition))


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            "train.schedule={name: multistep, milestones: [2, 4]}",
            "train.schedule.milestones: milestone 4 never comes",
        ),
        (
            "train.warmup={name: stepped, epochs: 4, start_factor: 0.1}",
            "train.warmup.epochs: 4 is not allowed: the warm-up must be shorter",
        ),
        ("train.optimizer={name: adam, lr: 1, betas: [0.9, 1]}", "train.optimizer.betas.1: 1.0 is"),
        ("evaluate.split=test", "evaluate.split: test needs data.test"),
        ("evaluate.split=val+test", "evaluate.split: val+test needs data.test"),
        ("model.max_size=300", "model.min_size: 800 is not allowed: must be at most"),
        ("model.weights=COCO_V1", "model.weights: 'COCO_V1' is not allowed: torchvision has no"),
        (
            "model.backbone={name: resnet18, weights: IMAGENET1K_V2}",
            "'IMAGENET1K_V2' is not allowed: must be the path of a file or one of "
            "ResNet18_Weights.IMAGENET1K_V1, none",
        ),
        (
            "model={name: ssd300_vgg16, backbone_weights: VGG19_Weights.IMAGENET1K_FEATURES}",
            "did you mean 'VGG16_Weights.IMAGENET1K_FEATURES'?",
        ),
        ("data.augment={preset: jitter, scale: [2, 1]}", "data.augment.scale: [2.0, 1.0] is not"),
    ],
)
def test_values_that_contradict_each_other_are_refused(write, overrides: str, said: str) -> None:
    path = write(SMALL)
    assert said in complaints(path, f"'{overrides}'")


def test_a_split_without_a_share_is_not_evaluated(write) -> None:
    data = SMALL[SMALL.index("data:") : SMALL.index("model:")]
    source = "{format: synthetic, images: 9, seed: 0}"
    splits = f"data:\n  splits:\n    source: {source}\n    fractions: [0.8, 0.2, 0]\n"
    text = SMALL.replace(data, splits).replace("{split: val}", "{split: test}")
    assert "needs a test split" in complaints(write(text))


def test_weights_by_enum_or_path_are_taken(write) -> None:
    path = write(SMALL)
    for weights in ("none", "IMAGENET1K_V1", "ResNet18_Weights.DEFAULT"):
        experiment = load(
            path, f"'model.backbone={{name: resnet18, weights: {weights}}}'"
        ).experiment
        assert experiment.model.backbone.weights == weights  # type: ignore[union-attr]


def test_set_changes_values_and_tells_its_own_text_in_errors(write) -> None:
    path = write(SMALL)
    experiment = load(path, "train.epochs=9  train.optimizer.lr=1e-3 name='a-b'").experiment
    assert (experiment.train.epochs, experiment.train.optimizer.lr) == (9, 0.001)
    assert experiment.name == "a-b"
    assert complaints(path, "train.epochs=9 train.optimizer.lr=-1") == (
        "--set train.optimizer.lr=-1: train.optimizer.lr: -1 is not allowed: must be greater than 0"
    )


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ("trian.epochs=3", "--set trian.epochs=3: unknown key 'trian'; did you mean 'train'?"),
        ("train.lr=3", "--set train.lr=3: train: unknown key 'lr'; did you mean train.optimizer"),
        ("train.epochs", "--set train.epochs: must be key.path=value"),
        ("train..epochs=1", "must be key.path=value"),
        ("name='x", "cannot be split at blanks: No closing quotation"),
        ("train.freeze=[", "--set train.freeze=[: not readable as YAML"),
        ("train.freeze.0.prefix=x", "train.freeze.0.prefix=x: train.freeze"),
        ("extends=x.yaml", "unknown key 'extends'"),
        ("register.gate.thresholds.mAP=1", "--set register.gate.thresholds.mAP=1: register: miss"),
        ("train.epochs.x=1", "train.epochs: a section of keys is not allowed: must be a whole"),
    ],
)
def test_a_wrong_assignment_is_told(write, overrides: str, said: str) -> None:
    assert said in complaints(write(SMALL), overrides)


def test_set_reaches_into_lists_by_index(write) -> None:
    path = write(changed("  epochs: 4", "  freeze: [{prefix: a}, {prefix: b}]\n  epochs: 4"))
    freeze = load(path, "train.freeze.1.prefix=c train.freeze.1.norm_only=true").experiment.train
    assert [part.prefix for part in freeze.freeze] == ["a", "c"]
    assert "its entries are 0 to 1" in complaints(path, "train.freeze.2.prefix=c")


def test_set_with_an_empty_value_is_null(write) -> None:
    path = write(changed("  epochs: 4", "  clip_norm: 3\n  epochs: 4"))
    assert load(path, "train.clip_norm=").experiment.train.clip_norm is None


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_picking_another_kind_drops_the_keys_of_the_old_one(write, order) -> None:
    assignments = ["train.optimizer.name=adamw", "train.optimizer.lr=0.5"]
    overrides = " ".join(assignments[i] for i in order)
    optimizer = load(write(SMALL), overrides).experiment.train.optimizer
    assert (optimizer.name, optimizer.lr) == ("adamw", 0.5)
    said = complaints(write(SMALL), "train.optimizer.name=adamw")
    assert "train.optimizer: missing key 'lr'" in said


def test_extends_merges_sections_and_replaces_lists(write) -> None:
    write(changed("  epochs: 4", "  freeze: [{prefix: a}, {prefix: b}]\n  epochs: 4"), "base.yaml")
    child = "extends: base.yaml\nname: child\ntrain: {epochs: 7, freeze: [{prefix: c}]}\n"
    experiment = load(write(child)).experiment
    assert (experiment.name, experiment.train.epochs) == ("child", 7)
    assert experiment.train.batch_size == 2
    assert [part.prefix for part in experiment.train.freeze] == ["c"]


def test_extends_drops_what_belongs_to_another_kind(write) -> None:
    write(SMALL, "base.yaml")
    child = "extends: base.yaml\ntrain: {optimizer: {name: adamw, lr: 0.5}}\n"
    assert load(write(child)).experiment.train.optimizer.name == "adamw"


def test_a_value_remembers_its_file_through_extends(write) -> None:
    write(changed("lr: 0.1", "lr: -1"), "base.yaml")
    said = complaints(write("extends: base.yaml\ntrain: {epochs: 0}\n"))
    assert said.splitlines() == [
        "base.yaml:14: train.optimizer.lr: -1 is not allowed: must be greater than 0",
        "e.yaml:2: train.epochs: 0 is not allowed: must be greater than 0",
    ]


@pytest.mark.parametrize(
    ("extends", "said"),
    [
        ("basis.yaml", "e.yaml:1: extends: basis.yaml does not exist; did you mean base.yaml?"),
        ("e.yaml", "e.yaml:1: extends: may not extend another file"),
        ("[a.yaml, b.yaml]", "extends: must be the path of one YAML file"),
        ("${NOWHERE}/a.yaml", "the environment variable NOWHERE is not set"),
    ],
)
def test_extends_takes_one_file_that_does_not_extend(write, extends: str, said: str) -> None:
    write(SMALL, "base.yaml")
    assert said in complaints(write(f"extends: {extends}\n"))


def test_paths_count_from_the_file_that_holds_them(write, tmp_path: Path) -> None:
    write(SMALL, "deep/base.yaml")
    child = "extends: deep/base.yaml\ndata: {val: {images: ../other, annotations: /abs/a.json}}\n"
    data = load(write(child)).experiment.data
    assert data.train.images == str(tmp_path / "deep" / "pictures")
    assert data.val.images == str(tmp_path.parent / "other")
    assert data.val.annotations == "/abs/a.json"


def test_weights_count_as_paths_when_they_look_like_one(write, tmp_path: Path) -> None:
    path = write(SMALL)
    overrides = (
        "model.weights=w.pth train.initial_weights.path=first "
        "'model.backbone={name: resnet18, weights: ~/b.pt}'"
    )
    experiment = load(path, overrides).experiment
    assert experiment.model.weights == str(tmp_path / "w.pth")
    assert experiment.model.backbone.weights == str(Path("~/b.pt").expanduser())
    assert experiment.train.initial_weights.path == str(tmp_path / "first")


def test_variables_come_from_the_environment_and_all_unset_ones_are_told(write) -> None:
    text = changed("images: pictures", "images: ${ROOT}/p").replace("epochs: 4", "epochs: ${E:-6}")
    experiment = load(write(text), environ={"ROOT": "/r"}).experiment
    assert (experiment.data.train.images, experiment.train.epochs) == ("/r/p", 6)
    lines = complaints(write(text.replace("lr: 0.1", "lr: 0"))).splitlines()
    assert len(lines) == 3
    assert "ROOT is not set" in lines[0]
    assert "must be greater than 0" in lines[2]


def test_an_unset_number_is_told_once(write) -> None:
    said = complaints(write(changed("epochs: 4", "epochs: ${E}")))
    assert said.splitlines() == [
        "e.yaml:10: train.epochs: the environment variable E is not set; set it, or write "
        "${E:-default}"
    ]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_resolved_text_loads_to_the_same_experiment(path: Path, tmp_path: Path) -> None:
    first = load(path, environ=ENVIRON)
    resolved = tmp_path / "config.yaml"
    resolved.write_text(first.text, encoding="utf-8")
    second = load(resolved, environ={})
    assert second.experiment == first.experiment
    assert (second.text, second.digest, second.flat) == (first.text, first.digest, first.flat)


def test_the_digest_is_of_the_values_and_not_of_their_writing(write) -> None:
    first = load(write(SMALL))
    reordered = "evaluate: {split: val}\nseed: 0\n" + SMALL.replace("evaluate: {split: val}\n", "")
    assert load(write(reordered.replace("0.1", "1e-1"))).digest == first.digest
    assert load(write(SMALL), "seed=1").digest != first.digest
    assert len(first.digest) == 12


def test_flat_parameters_begin_with_the_telling_ones(write) -> None:
    flat = load(write(SMALL + "register: {name: m}\n"), "train.optimizer.lr=1e-4").flat
    assert list(flat)[:10] == [
        "name",
        "task",
        "seed",
        "model.name",
        "train.epochs",
        "train.batch_size",
        "train.optimizer.name",
        "train.optimizer.lr",
        "train.schedule.name",
        "model.backbone.name",
    ]
    assert flat["train.optimizer.lr"] == "0.0001"
    assert flat["model.backbone.widths"] == "[24, 48, 96, 160]"
    assert (flat["train.ema"], flat["train.compile"]) == ("null", "false")
    assert flat["register.name"] == "m"
    assert json.loads(flat["register.gate.thresholds"]) == {}


def test_the_word_off_is_text_where_text_is_wanted(write) -> None:
    path = write(changed("  epochs: 4", "  determinism: off\n  epochs: 4"))
    assert load(path).experiment.train.determinism == "off"


def loaded_small(tmp_path: Path, overrides: str) -> Loaded:
    path = tmp_path / "hypothesis.yaml"
    path.write_text(SMALL)
    return load(path, overrides, {})


@settings(deadline=None, max_examples=40)
@given(
    lr=st.floats(1e-12, 1e3),
    epochs=st.integers(1, 10**6),
    prefix=st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), min_size=1, max_size=9),
)
def test_set_takes_any_number_and_any_quoted_text(
    tmp_path_factory: pytest.TempPathFactory, lr: float, epochs: int, prefix: str
) -> None:
    freeze = shlex.quote("train.freeze=[{prefix: " + json.dumps(prefix.replace("${", "{")) + "}]")
    overrides = f"train.optimizer.lr={lr!r} {freeze} train.epochs={epochs}"
    first = loaded_small(tmp_path_factory.getbasetemp(), overrides)
    train = first.experiment.train
    assert (train.optimizer.lr, train.epochs) == (lr, epochs)
    assert train.freeze[0].prefix == prefix.replace("${", "{")
    path = tmp_path_factory.getbasetemp() / "resolved.yaml"
    path.write_text(first.text, encoding="utf-8")
    assert load(path, environ={}).experiment == first.experiment
