import math

import pytest
import torch

from tasks.lanes.labels import LaneLabels
from tasks.lanes.measures import existence_accuracy, lane_measures, segmentation_scores

NAMES = {
    f"{kind}_{name}"
    for kind in ("row", "column")
    for name in ("top1", "top2", "top3", "error", "existence_accuracy")
}


def likeliest(*cells):
    """Logits (1, 10, A, 1) whose largest are at these cells."""
    logits = torch.zeros(1, 10, len(cells), 1)
    logits[0, list(cells), range(len(cells)), 0] = 1.0
    return logits


def labels(*cells):
    return torch.tensor(cells).view(1, -1, 1)


def outputs(logits):
    existence = torch.zeros(1, 2, logits.shape[2], 1)
    return {"loc_row": logits, "loc_col": logits, "exist_row": existence, "exist_col": existence}


# of 5 entries 4 have a label: distances 0, 1, 2 and 3 cells
FOUND, WANTED = likeliest(4, 4, 4, 4, 0), labels(4, 5, 2, 7, -1)


def test_shares_are_of_the_labelled_entries():
    found = lane_measures(outputs(FOUND), LaneLabels(WANTED, WANTED))

    assert found.keys() == NAMES
    for kind in ("row", "column"):
        shares = [found[f"{kind}_top{k}"].item() for k in (1, 2, 3)]
        assert shares == pytest.approx([1 / 4, 2 / 4, 3 / 4])


def test_the_error_is_that_of_the_expectation_as_a_share_of_the_extent():
    # all but certain of their cells: 0, 1, 2 and 3 cells of 9 off
    found = lane_measures(outputs(100 * FOUND), LaneLabels(WANTED, WANTED))
    assert found["row_error"].item() == pytest.approx((0 + 1 + 2 + 3) / 4 / 9)


def test_the_reference_s_shares_are_of_all_entries():
    found = lane_measures(outputs(FOUND), LaneLabels(WANTED, WANTED), compat={"measures"})

    shares = [found[f"row_top{k}"].item() for k in (1, 2, 3)]
    assert shares == pytest.approx([1 / 5, 2 / 5, 3 / 5])


def test_a_batch_without_lanes_defines_no_share_and_the_reference_says_zero():
    nothing = labels(-1, -1, -1, -1, -1)
    lane_labels = LaneLabels(nothing, nothing)

    assert math.isnan(lane_measures(outputs(FOUND), lane_labels)["row_top1"].item())
    kept = lane_measures(outputs(FOUND), lane_labels, compat={"measures"})
    assert kept["row_top1"].item() == 0


def test_existence_counts_present_and_absent_alike():
    # found: there, absent, there, absent; a tie counts as absent
    logits = torch.tensor([[0.0, 1.0, -1.0, 0.0], [1.0, 0.0, 0.0, 0.0]]).view(1, 2, 4, 1)
    assert existence_accuracy(logits, labels(3, -1, -1, -1)).item() == pytest.approx(3 / 4)


def test_segmentation_scores_are_means_over_the_classes_that_occur():
    target = torch.tensor([[0, 0, 0, 1]]).view(1, 1, 4)
    found = torch.tensor([[0, 0, 1, 1]])
    logits = torch.nn.functional.one_hot(found, 3).float().permute(0, 2, 1).unsqueeze(2)

    iou, accuracy = segmentation_scores(logits, target)

    assert iou.item() == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert accuracy.item() == pytest.approx((2 / 3 + 1) / 2)


def test_the_auxiliary_head_is_scored_where_it_ran():
    masks = torch.zeros(1, 8, 16, dtype=torch.uint8)
    lane_labels = LaneLabels(WANTED, WANTED, masks)
    seg = torch.tensor([1.0, 0.0]).view(1, 2, 1, 1).expand(1, 2, 1, 2)

    found = lane_measures({**outputs(FOUND), "seg": seg}, lane_labels)

    assert found.keys() == NAMES | {"segmentation_iou", "segmentation_accuracy"}
    assert found["segmentation_iou"].item() == 1


def test_measures_are_single_numbers_without_a_gradient():
    logits = FOUND.clone().requires_grad_()
    found = lane_measures(outputs(logits), LaneLabels(WANTED, WANTED))
    assert all(value.ndim == 0 and not value.requires_grad for value in found.values())


def test_no_measure_waits_for_the_device():
    # a meta tensor has no value that could be waited for
    found = {name: value.to("meta") for name, value in outputs(FOUND).items()}
    found["seg"] = torch.empty(1, 3, 2, 2, device="meta")
    wanted = WANTED.to("meta")
    masks = torch.empty(1, 16, 16, dtype=torch.uint8, device="meta")

    measures = lane_measures(found, LaneLabels(wanted, wanted, masks))

    assert all(value.is_meta for value in measures.values())
