"""The lane seed's networks in numbers: names and shapes, outputs, losses and three updates.

Each test runs once per fixture file of its kind (`--fixtures FOLDER`). Weights by rule: a normal
draw per entry, seeded by its name; see `rule_network`.
"""

import hashlib
import json
import math
import zlib

import numpy as np
import pytest
import torch

from models.lanes.build import build_lane_network
from tasks.lanes.config import (
    AnchorsConfig,
    AuxConfig,
    FcaBackboneConfig,
    LaneLossConfig,
    ResnetLaneBackboneConfig,
    UfldModelConfig,
)
from tasks.lanes.labels import LaneLabels
from tasks.lanes.losses import (
    existence_loss,
    expectation_loss,
    expected_cell,
    focal_loss,
    lane_losses,
    segmentation_loss,
    shape_loss,
    similarity_loss,
    token_loss,
    variance_loss,
)
from tasks.lanes.measures import existence_accuracy, lane_measures, segmentation_scores

BACKBONES = {
    "18": "resnet18",
    "34": "resnet34",
    "50": "resnet50",
    "101": "resnet101",
    "152": "resnet152",
    "50next": "resnext50_32x4d",
    "101next": "resnext101_32x8d",
    "50wide": "wide_resnet50_2",
    "101wide": "wide_resnet101_2",
}
# (anchors, cells)
SECTIONS = {
    "tusimple": {"rows": (56, 100), "columns": (41, 100), "input": (800, 320)},
    "culane": {"rows": (72, 200), "columns": (81, 100), "input": (1600, 320), "norm": True},
    "curvelanes": {
        "rows": (72, 200),
        "columns": (41, 100),
        "input": (1600, 800),
        "lanes": 10,
        "head": "group_instance",
    },
}
# the seed's terms under our names
TERMS = {
    "cls_loss": "row",
    "cls_loss_col": "column",
    "cls_ext": "row_existence",
    "cls_ext_col": "column_existence",
    "mean_loss_row": "row_mean",
    "mean_loss_col": "column_mean",
    "relation_loss": "similarity",
    "relation_dis": "shape",
    "var_loss_row": "row_variance",
    "var_loss_col": "column_variance",
    "lane_token_seg_loss_row": "row_token",
    "lane_token_seg_loss_col": "column_token",
}
# Gradients of the first layers hang on which units are just above 0, and the next update on them:
# between instruction sets they differ by up to 0.1 %, after an update by 2 %. With AVX2 only
# (ONEDNN_MAX_CPU_ISA=AVX2) all of it is the fixture's to 0.07 %.
FIRST_GRADIENT, LATER_GRADIENT = 2e-3, 3e-2
STATE = 2e-3


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def section(data_set, backbone, *, aux=None, **changes):
    given = {**SECTIONS[data_set], **changes}
    for kind in ("rows", "columns"):
        anchors, cells = given[kind]
        given[kind] = AnchorsConfig(anchors=anchors, cells=cells)
    if backbone == "34fca":
        chosen = FcaBackboneConfig(name="resnet34fca")
    else:
        chosen = ResnetLaneBackboneConfig(name=BACKBONES[backbone])
    return UfldModelConfig(name="ufldv2", backbone=chosen, aux=aux, **given)


def on_meta(model):
    """Names and shapes need no memory."""
    with torch.device("meta"):
        return build_lane_network(model)


def rule_network(model):
    """The network with weights by rule; starting values are not drawn, as there are many."""
    network = on_meta(model).to_empty(device="cpu")
    own = network.state_dict()
    with torch.no_grad():
        for name, value in own.items():
            if not value.is_floating_point():
                value.zero_()
                continue
            generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            draw = torch.randn(value.shape, generator=generator)
            stem = name.rpartition(".")[0]
            if name.endswith("running_var"):
                value.copy_(draw.abs() * 0.5 + 0.5)
            elif name.endswith(".weight") and f"{stem}.running_var" in own:
                value.copy_(1 + 0.1 * draw)
            else:
                value.copy_(0.05 * draw)
    return network


def normal(shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def uniform(shape, seed):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def integers(low, high, shape, seed):
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed))


def tag(path):
    """Data set and backbone of a file, as in `model_culane_r18`."""
    _, data_set, backbone = path.stem.split("_")
    return data_set, backbone.removeprefix("r")


def check_state_dict(path):
    expected = [(name, tuple(shape), dtype) for name, shape, dtype in read(path)]

    found = on_meta(section(*tag(path))).state_dict()

    assert [
        (name, tuple(value.shape), str(value.dtype).removeprefix("torch."))
        for name, value in found.items()
    ] == expected


@pytest.mark.fixture_kind("lanes", "state_tusimple")
def test_tusimple_networks_have_the_seed_s_names_in_its_order(fixture_file):
    check_state_dict(fixture_file)


@pytest.mark.fixture_kind("lanes", "state_culane")
def test_culane_networks_have_the_seed_s_names_in_its_order(fixture_file):
    check_state_dict(fixture_file)


@pytest.mark.fixture_kind("lanes", "state_curvelanes")
def test_curvelanes_networks_have_the_seed_s_names_in_its_order(fixture_file):
    check_state_dict(fixture_file)


def size_and_names(network):
    """Number of parameters, of entries, and a digest of all names and shapes."""
    shapes = [[name, list(value.shape)] for name, value in network.state_dict().items()]
    params = sum(value.numel() for value in network.parameters())
    return params, len(shapes), hashlib.sha256(json.dumps(shapes).encode()).hexdigest()


@pytest.mark.fixture_kind("lanes", "state_counts_all_backbones")
def test_every_backbone_has_the_seed_s_names_and_shapes(fixture_file):
    for key, case in read(fixture_file).items():
        data_set, backbone, aux = key.split("_")
        model = section(data_set, backbone, aux=AuxConfig() if aux == "aux" else None)
        params = case.get("new_params", case["params"])
        digest = case.get("new_name_shape_sha256", case["name_shape_sha256"])
        assert size_and_names(on_meta(model)) == (params, case["entries"], digest), key


@pytest.mark.fixture_kind("lanes", "state_counts_all_backbones")
def test_the_auxiliary_head_can_have_the_seed_s_classes(fixture_file):
    for key, case in read(fixture_file).items():
        data_set, backbone, aux = key.split("_")
        # the seed's CurveLanes networks of wide backbones cannot run
        if aux == "noaux" or "peer_distribute_in" in case:
            continue
        model = section(data_set, backbone, aux=AuxConfig(classes=case["aux_classes"]))
        expected = case["params"], case["entries"], case["name_shape_sha256"]
        assert size_and_names(on_meta(model)) == expected, key


def at_indices(value, count):
    flat = value.flatten()
    if len(flat) <= count:
        return flat.numpy()
    return flat[(torch.arange(count) * len(flat)) // count].numpy()


def check_output(value, expected, sampled):
    flat = value.double().flatten()
    assert list(value.shape) == expected["shape"]
    near = {"rel": 1e-4, "abs": 1e-4 * expected["std"]}
    for name, found in [
        ("mean", flat.mean()),
        ("std", flat.std()),
        ("min", flat.min()),
        ("max", flat.max()),
    ]:
        assert found.item() == pytest.approx(expected[name], **near), name
    assert flat.abs().sum().item() == pytest.approx(expected["abssum"], rel=1e-4)
    found = at_indices(value, len(sampled))
    np.testing.assert_allclose(found, sampled, rtol=0, atol=1e-4 * expected["std"])


@torch.no_grad()
def features_of(network, images):
    features8, features16, features32 = network.model(images)
    pooled = network.pool(features32)
    return {"x2": features8, "x3": features16, "x4": features32, "pool": pooled}


@pytest.mark.fixture_kind("lanes", "model_")
def test_a_network_answers_as_the_seed_s(fixture_file):
    case, values = read(fixture_file), np.load(fixture_file.with_suffix(".npz"))
    network = rule_network(section(*tag(fixture_file))).eval()
    images = normal(case["input"]["shape"], case["input"]["seed"])
    with torch.no_grad():
        outputs = network(images)
        if any(key.startswith("tta_") for key in case["outputs"]):
            shifted = network.forward_tta(images)
            outputs |= {f"tta_{key}": value for key, value in shifted.items()}

    assert sum(value.numel() for value in network.parameters()) == case["params"]
    assert outputs.keys() == case["outputs"].keys()
    for key, value in outputs.items():
        sampled = values[key if key.startswith("tta_") else f"out_{key}"]
        check_output(value, case["outputs"][key], sampled)
        if f"argmax_{key}" in values:
            differs = value.argmax(dim=1).numpy() != values[f"argmax_{key}"]
            assert differs.mean() <= 0.005, key
    for key, value in features_of(network, images).items():
        check_output(value, case["features"][key], values[f"feat_{key}"])


def made(case):
    """Logits and labels by the rule `mk`."""
    seed, shape = case["seed"], (case["n"], case["h"], case["w"])
    cells, kind = case["c"], case.get("lab", "mixed")
    logits = normal((shape[0], cells, *shape[1:]), seed) * case.get("scale", 1)
    labels = integers(0, cells, shape, seed + 1)
    is_invalid = uniform(shape, seed + 2) < case.get("p_inv", 0.3)
    if kind == "none":
        labels.fill_(-1)
    elif kind == "near":
        labels = integers(1, cells - 1, shape, seed + 1)
        logits = 0.1 * logits
        logits.scatter_add_(1, labels.unsqueeze(1), torch.full((shape[0], 1, *shape[1:]), 9.0))
        labels[is_invalid] = -1
    elif kind == "mixed":
        labels[is_invalid] = -1
        labels[0, :4, 0] = torch.tensor([0, cells - 1, 1, cells - 2])
    return logits, labels


def losses_of(logits, labels, power):
    """Every loss of one anchor kind, under the fixture's names."""
    log_shares = logits.log_softmax(dim=1)
    shares = log_shares.exp()
    expected = expected_cell(shares)
    return {
        "focal_soft_g2": focal_loss(log_shares, labels, gamma=2, soft=True),
        "focal_hard_g2": focal_loss(log_shares, labels, gamma=2, soft=False),
        "focal_soft_g0": focal_loss(log_shares, labels, gamma=0, soft=True),
        "relation": similarity_loss(logits),
        "relation_dis": shape_loss(logits),
        "mean": expectation_loss(expected, labels),
        f"var_p{power}": variance_loss(shares, labels, expected=expected, power=power),
    }


def or_zero(value):
    """What the new system says where the seed says NaN."""
    return 0 if math.isnan(value) else value


@pytest.mark.fixture_kind("lanes", "losses")
def test_losses_and_their_gradients_are_the_seed_s(fixture_file):
    for case in read(fixture_file)["cases"]:
        logits, labels = made(case["case"])
        logits.requires_grad_()
        assert labels.sum() == case["label_sum"]
        for power in (1, 2):
            for name, value in losses_of(logits, labels, power).items():
                (gradient,) = torch.autograd.grad(value, logits, retain_graph=True)
                expected = case["losses"]
                where = f"{case['case']['id']} {name}"
                near = {"rel": 1e-4, "abs": 1e-8}
                assert value.item() == pytest.approx(or_zero(expected[name]), **near), where
                norm = or_zero(expected[f"{name}_gradnorm"])
                assert gradient.norm().item() == pytest.approx(norm, **near), where


@pytest.mark.fixture_kind("lanes", "losses")
def test_existence_and_accuracies_are_the_seed_s(fixture_file):
    for case in read(fixture_file)["cases"]:
        given = case["case"]
        logits, labels = made(given)
        existence = normal((given["n"], 2, given["h"], given["w"]), given["seed"] + 5)
        outputs = {
            "loc_row": logits, "exist_row": existence, "loc_col": logits, "exist_col": existence,
        }  # fmt: skip

        found = lane_measures(outputs, LaneLabels(labels, labels), compat={"measures"})

        value = existence_loss(existence, labels)
        assert value.item() == pytest.approx(case["losses"]["exist_ce"], rel=1e-5)
        for name in ("top1", "top2", "top3"):
            assert found[f"row_{name}"].item() == pytest.approx(case["metrics"][name], rel=1e-6)
        accuracy = case["metrics"]["exist_acc"]
        assert existence_accuracy(existence, labels).item() == pytest.approx(accuracy, rel=1e-6)


@pytest.mark.fixture_kind("lanes", "losses")
def test_the_auxiliary_head_s_loss_and_scores_are_the_seed_s(fixture_file):
    for case in read(fixture_file)["aux"]:
        count, classes, *size = case["shape"]
        logits = normal(case["shape"], case["seed"])
        target = integers(0, classes, (count, *size), case["seed"] + 1)
        masks = target.repeat_interleave(8, dim=1).repeat_interleave(8, dim=2).to(torch.uint8)

        weighted = segmentation_loss(logits, masks, class_weights=None)
        plain = segmentation_loss(logits, masks, class_weights=(1.0,) * classes)
        iou, accuracy = segmentation_scores(logits, target)

        assert weighted.item() == pytest.approx(case["ce_w_0p6"], rel=1e-5)
        assert plain.item() == pytest.approx(case["ce_unweighted"], rel=1e-5)
        assert iou.item() == pytest.approx(case["miou"], rel=1e-5)
        assert accuracy.item() == pytest.approx(case["seg_acc"], rel=1e-5)


def speckled_masks(shape, seed):
    """Masks of a number per pixel; the seed reads the first of three equal channels."""
    return ((uniform(shape, seed) < 0.02)[:, 0] * 3).to(torch.uint8)


@pytest.mark.fixture_kind("lanes", "losses")
def test_the_tokens_loss_is_the_seed_s(fixture_file):
    for case in read(fixture_file)["token"]:
        tokens = normal(case["logits"], case["seed"])
        masks = speckled_masks(case["labels"], case["seed"] + 1)
        assert token_loss(tokens, masks).item() == pytest.approx(case["loss"], rel=1e-5)


def batch_of(case):
    """Outputs and labels of a case of `totals`."""
    seed, shape = case["seed"], case["shape"]
    count, lanes = shape["n"], shape["lanes"]
    outputs, labels = {}, []
    for kind, first in (("row", seed), ("col", seed + 100)):
        anchors, cells = shape[f"h_{kind}"], shape[f"c_{kind}"]
        given = {"seed": first, "n": count, "c": cells, "h": anchors, "w": lanes}
        outputs[f"loc_{kind}"], wanted = made(given)
        labels.append(wanted)
        draw = seed + (50 if kind == "row" else 51)
        outputs[f"exist_{kind}"] = normal((count, 2, anchors, lanes), draw)
    if case["dataset"] != "CurveLanes":
        return outputs, LaneLabels(*labels)
    outputs["lane_token_row"] = normal((count, 1, 25, 50), seed + 60)
    outputs["lane_token_col"] = normal((count, 1, 25, 50), seed + 61)
    return outputs, LaneLabels(*labels, speckled_masks((count, 3, 800, 1600), seed + 62))


@pytest.mark.fixture_kind("lanes", "losses")
def test_a_batch_s_terms_have_the_seed_s_weights(fixture_file):
    for case in read(fixture_file)["totals"]:
        loss = LaneLossConfig(
            mean=case["mean_loss_w"], similarity=case["sim_loss_w"], shape=case["shp_loss_w"]
        )
        outputs, labels = batch_of(case)

        found = lane_losses(
            outputs, labels, loss=loss, model=section(case["dataset"].lower(), "18")
        )

        expected = {
            TERMS[name]: weight * case["terms"][f"loss/{name}"]
            for name, weight in case["weights"].items()
            if weight
        }
        assert {name: term.item() for name, term in found.items()} == pytest.approx(
            expected, rel=1e-5
        )
        assert sum(found.values()).item() == pytest.approx(case["total"], rel=1e-5)


def step_labels(seed, anchors, cells):
    labels = integers(0, cells, (2, anchors, 4), seed)
    labels[uniform((2, anchors, 4), seed + 1) < 0.3] = -1
    return labels


def check_state(network, expected):
    own = network.state_dict()
    for name, numbers in expected.items():
        value = own[name].double().flatten()
        near = {"rel": STATE, "abs": STATE * numbers["std"]}
        assert value.std().item() == pytest.approx(numbers["std"], rel=STATE), name
        assert value.mean().item() == pytest.approx(numbers["mean"], **near), name
        assert value[:4].tolist() == pytest.approx(numbers["first"], **near), name


@pytest.mark.fixture_kind("lanes", "train_steps")
def test_updates_are_the_seed_s(fixture_file):
    case = read(fixture_file)
    model, given = section("tusimple", "18", norm=True), case["config"]
    loss = LaneLossConfig(mean=given["mean_loss_w"])
    network = rule_network(model)
    optimizer = torch.optim.SGD(
        network.parameters(),
        lr=given["learning_rate"],
        momentum=given["momentum"],
        weight_decay=given["weight_decay"],
    )
    for step in case["steps"]:
        seed = step["seed"]
        labels = LaneLabels(step_labels(seed + 10, 56, 100), step_labels(seed + 20, 41, 100))
        terms = lane_losses(network(normal((2, 3, 320, 800), seed)), labels, loss=loss, model=model)
        optimizer.zero_grad()
        sum(terms.values()).backward()
        optimizer.param_groups[0]["lr"] = step["lr_used"]
        optimizer.step()

        weights = {"row_mean": loss.mean, "column_mean": loss.mean}
        expected = {
            TERMS[name.removeprefix("loss/")]: value for name, value in step["terms"].items()
        }
        found = {name: term.item() / weights.get(name, 1) for name, term in terms.items()}
        assert found == pytest.approx(expected, rel=1e-4)
        parameters = dict(network.named_parameters())
        near = LATER_GRADIENT if step["step"] else FIRST_GRADIENT
        for name, norm in step["grad_norms"].items():
            found = parameters[name].grad.double().norm().item()
            assert found == pytest.approx(norm, rel=near), name
        check_state(network, step["after"])
