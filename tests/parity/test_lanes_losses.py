"""The lane seed's losses, their gradients and its accuracies, in numbers.

Each test runs once per fixture file of its kind (`--fixtures FOLDER`). Where the seed says NaN, for
want of any labelled entry, ours are 0.
"""

import math

import pytest
import torch

from tasks.lanes.config import LaneLossConfig
from tasks.lanes.labels import LaneLabels
from tasks.lanes.losses import (
    distance_loss,
    existence_loss,
    expectation_loss,
    expected_cell,
    focal_loss,
    hardest_loss,
    lane_losses,
    position_loss,
    segmentation_loss,
    shape_loss,
    similarity_loss,
    token_loss,
    variance_loss,
)
from tasks.lanes.measures import (
    existence_accuracy,
    lane_measures,
    mean_error,
    segmentation_scores,
)
from tests.parity.lane_rules import TERMS, integers, normal, read, section, uniform


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
        "emd": distance_loss(shares, labels),
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
        error = mean_error(logits[..., :1], labels[..., :1]).item()
        if (labels[..., 0] != -1).any():
            assert error == pytest.approx(case["metrics"]["mae_slot0"], rel=1e-5)
        else:
            assert math.isnan(error)
        accuracy = case["metrics"]["exist_acc"]
        assert existence_accuracy(existence, labels).item() == pytest.approx(accuracy, rel=1e-6)


@pytest.mark.fixture_kind("lanes", "losses")
def test_the_seed_s_unused_losses_are_here_too(fixture_file):
    content = read(fixture_file)
    for case in content["cases"]:
        given = case["case"]
        _, labels = made(given)
        logits = normal((given["n"], 1, given["h"], given["w"]), given["seed"] + 6)
        positions = torch.where(labels == -1, -1.0, labels / given["c"])
        expected = or_zero(case["losses"]["reg"])
        assert position_loss(logits, positions).item() == pytest.approx(expected, rel=1e-5)
    for case in content["ohem"]:
        count, classes, *size = case["shape"]
        target = integers(0, classes, (count, *size), case["seed"] + 1)
        logits = normal(case["shape"], case["seed"])
        found = hardest_loss(logits, target, least=case["n_min"], share=case["thresh"])
        assert found.item() == pytest.approx(case["loss"], rel=1e-5)


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
