"""Lane experiments: what their sections contradict, told with the key and what is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from steps.experiment import ConfigError, load

SMALL = """\
name: roads
task: lanes
data:
  frame: [800, 320]
  train: {format: tusimple, root: t, labels: [a.json]}
  val: {format: tusimple, root: t, labels: [b.json]}
  test: {format: culane, root: c, list: list/test.txt}
model:
  name: ufldv2
  backbone: {name: resnet18}
  input: [320, 128]
  rows: {anchors: 20, cells: 50}
  columns: {anchors: 10, cells: 25}
train:
  epochs: 4
  batch_size: 2
  optimizer: {name: sgd, lr: 0.1}
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "e.yaml").write_text(SMALL, encoding="utf-8")
    return "e.yaml"


def complaints(config: str, overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(config, overrides, {})
    return str(caught.value)


def test_a_lane_experiment_loads_with_its_defaults(config: str) -> None:
    loaded = load(config)
    assert loaded.experiment.task == "lanes"
    assert loaded.experiment.evaluate.metric.name == "f1"
    assert list(loaded.flat)[3:10] == [
        "model.name",
        "train.epochs",
        "train.batch_size",
        "train.optimizer.name",
        "train.optimizer.lr",
        "train.schedule.name",
        "model.backbone.name",
    ]
    keys = [line.partition(":")[0] for line in loaded.text.splitlines() if line[0] != " "]
    assert keys[4:] == ["data", "model", "loss", "decode", "train", "evaluate", "register"]


def test_an_extending_file_need_not_say_the_task_again(config: str, tmp_path: Path) -> None:
    (tmp_path / "child.yaml").write_text("extends: e.yaml\ndecode: {mode: rows}\n")
    assert load("child.yaml", "decode.window=3").experiment.decode.window == 3  # type: ignore[union-attr]


def test_all_is_every_defect_by_name(config: str) -> None:
    kept = {"lr_curve", "measures", "tta_shift", "file_centre"}
    assert load(config, "compat=[all]").experiment.defects == kept
    assert load(config, "compat=[measures]").experiment.defects == {"measures"}
    assert load(config).experiment.defects == frozenset()


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ("loss.segmentaton=1", "--set loss.segmentaton=1: loss: unknown key 'segmentaton'; did"),
        ("data.frame=[800]", "data.frame: [800] is not allowed: must have more entries, has 1"),
        ("data.train.format=coco", "'coco' is not allowed: must be one of cvat, culane,"),
        ("model.input=[300,128]", "model: input must be multiples of 32, not [300, 128]"),
        ("data.splits={}", "data.splits: missing key 'source'"),
        ("evaluate.metric.name=f2", "evaluate.metric.name: 'f2' is not allowed: must be one of f1"),
        ("compat=[all,warmup_cap]", "compat.1: 'warmup_cap' is not allowed: must be one of"),
        ("data.splits.fractions=[1,0,0]", "data.splits: missing key 'source'"),
        ("evaluate.batch_size=0", "evaluate.batch_size: 0 is not allowed: must be greater than 0"),
    ],
)
def test_a_faulty_value_is_told_with_what_is_right(config: str, overrides: str, said: str) -> None:
    assert said in complaints(config, f"'{overrides}'")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            "'data.grid={first: 100, last: 330}'",
            "data.grid.last: 330 is not allowed: lies below the frame, whose height is 320 px",
        ),
        (
            "'data.augment={scale: [0, 1]}'",
            "data.augment.scale: [0.0, 1.0] is not allowed: must be [least, largest], both above 0",
        ),
        (
            "data.slots.rule=mask",
            "data.slots.rule: mask is not allowed: only CULane has masks with the lanes' numbers, "
            "and data.train has the format tusimple; write by_format",
        ),
        (
            "'model.rows={anchors: 20, cells: 50, unit: px, range: [100, 321]}'",
            "model.rows.range.1: 321 is not allowed: lies beyond the frame, whose height is 320 px",
        ),
        (
            "'model.columns={anchors: 9, cells: 50, unit: px, range: [0, 801]}'",
            "model.columns.range.1: 801 is not allowed: lies beyond the frame, whose width is 800",
        ),
        (
            "model.crop=0.6",
            "model.rows.range.0: 0 is not allowed: the network sees the lowest 60% of the frame "
            "(model.crop), so must be 0.4 or more",
        ),
        (
            "model.crop=0.6 'model.rows={anchors: 20, cells: 50, unit: px, range: [100, 320]}'",
            "100 is not allowed: the network sees the lowest 60% of the frame (model.crop), so "
            "must be 128 px or more",
        ),
        (
            "model.aux.classes=4",
            "model.aux.classes: 4 is not allowed: the ground and 4 slots (model.lanes) need 5 or",
        ),
    ],
)
def test_sizes_must_fit_frame_and_slots(config: str, overrides: str, said: str) -> None:
    assert said in complaints(config, overrides)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ("model.weights=IMAGENET1K_V1", "torchvision has no weights of lane networks, only of"),
        (
            "model.backbone.weights=IMAGENET1K_V2",
            "'IMAGENET1K_V2' is not allowed: must be the path of a file or one of "
            "ResNet18_Weights.IMAGENET1K_V1, none",
        ),
        (
            "model.backbone.name=resnet34fca model.backbone.weights=DEFAULT",
            "'DEFAULT' is not allowed: torchvision has no weights of this backbone; must be none",
        ),
        (
            "loss.segmentation_weights=[1,1]",
            "loss.segmentation_weights: has no effect without model.aux; leave it out",
        ),
        (
            "loss.segmentation_weights=[1,1] model.aux={}",
            "must have one entry per class of the auxiliary head, 5 (model.lanes + 1), has 2",
        ),
        (
            "loss.segmentation_weights=[1,1,1,1,1] model.aux.classes=9",
            "must have one entry per class of the auxiliary head, 9 (model.aux.classes), has 5",
        ),
        (
            "'loss={row: 0, column: 0, row_existence: 0, column_existence: 0, mean: 0}'",
            "loss: has no term: one of row, column, row_existence, column_existence, mean, "
            "distance, similarity, shape must be above 0",
        ),
    ],
)
def test_weights_are_of_known_names_and_lengths(config: str, overrides: str, said: str) -> None:
    assert said in complaints(config, overrides)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            "decode.column_slots=[0,4]",
            "decode.column_slots.1: 4 is not allowed: slots count from 0 and there are 4 "
            "(model.lanes), so must be 0 to 3",
        ),
        ("decode.column_slots=[1,1]", "decode.column_slots: [1, 1] is not allowed: names a slot"),
        (
            "decode.column_slots=[0,3] decode.mode=rows",
            "decode.column_slots: has no effect with decode.mode rows; leave it out",
        ),
        (
            "decode.tta=true model.head=group_instance",
            "decode.tta: true is not allowed with model.head group_instance",
        ),
        ("decode.row_share=1", "decode.row_share: 1 is not allowed: a lane needs more than this"),
        (
            "decode.least_anchors=20",
            "decode.least_anchors: 20 is not allowed: a lane needs more anchors than this and has "
            "at most 20",
        ),
    ],
)
def test_decoding_must_be_able_to_find_lanes(config: str, overrides: str, said: str) -> None:
    assert said in complaints(config, overrides)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ("evaluate.headline=accuracy", "evaluate.headline: accuracy is not allowed: only the metr"),
        (
            "'evaluate.metric={name: tusimple}'",
            "evaluate.metric.name: tusimple is not allowed: its rows are those of TuSimple's "
            "labels, and data.test has the format culane; write f1",
        ),
        ("data.test=", "evaluate.split: test needs data.test; give it, or write `split: val`"),
        ("evaluate.split=val+test data.test=", "evaluate.split: val+test needs data.test"),
    ],
)
def test_the_metric_must_fit_the_data(config: str, overrides: str, said: str) -> None:
    assert said in complaints(config, overrides)


def test_drawn_roads_of_tusimples_layout_can_be_scored_as_tusimple(config: str) -> None:
    roads = "{format: synthetic, roads: 4, seed: 1, layout: tusimple}"
    metric = "evaluate.metric={name: tusimple}"
    experiment = load(config, f"'data.test={roads}' '{metric}' evaluate.headline=accuracy")
    assert experiment.experiment.evaluate.headline == "accuracy"
    assert "data.test has the format synthetic" in complaints(
        config, f"'data.test={roads.replace('tusimple', 'culane')}' '{metric}'"
    )


@pytest.mark.parametrize(
    ("score", "overrides", "said"),
    [
        ("mAP", "", "'mAP' is not a score of this task: must be one of"),
        ("accuracy", "", "the metric f1 does not give accuracy: must be one of"),
        ("FP_count", "", "FP_count is not allowed: less of it is better, and a gate asks for at"),
        ("F1_night", "", "F1_night is not measured: no source of evaluate.split (test) has `sce"),
        (
            "precision",
            "evaluate.split=val 'evaluate.metric={name: tusimple}'",
            "the metric tusimple does not give precision: must be one of",
        ),
    ],
)
def test_a_gate_names_scores_that_the_metric_gives(
    config: str, score: str, overrides: str, said: str
) -> None:
    gate = f"'register={{name: m, gate: {{thresholds: {{{score}: 0.5}}}}}}'"
    assert said in complaints(config, f"{gate} {overrides}")


def test_a_gate_may_name_a_scene_of_a_list(config: str) -> None:
    gate = "'register={name: m, gate: {thresholds: {F1_night: 0.5}}}'"
    load(config, f"{gate} data.test.scenes=list/test_split")
