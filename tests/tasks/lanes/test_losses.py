import math

import pytest
import torch

from models.lanes.build import build_lane_network
from tasks.lanes.config import AuxConfig, LaneLossConfig
from tasks.lanes.labels import LaneLabels
from tasks.lanes.losses import (
    existence_loss,
    expectation_loss,
    expected_cell,
    focal_loss,
    lane_losses,
    segmentation_loss,
    segmentation_target,
    segmentation_term,
    shape_loss,
    similarity_loss,
    token_loss,
    variance_loss,
)
from tests.models.lanes.sections import section

FOCAL_UNIFORM = 0.75**2 * math.log(4)  # of four equal cells, gamma 2


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def one_entry(*log_shares):
    """(1, K, 1, 1) of given shares' logarithms."""
    return torch.tensor(log_shares).log().view(1, -1, 1, 1)


def label(value):
    return torch.full((1, 1, 1), value)


def part(share, gamma=2):
    return -((1 - share) ** gamma) * math.log(share)


SHARES = (0.1, 0.2, 0.3, 0.4)


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (1, 0.9 * part(0.2) + 0.05 * (part(0.1) + part(0.3))),
        (0, 0.95 * part(0.1) + 0.05 * part(0.2)),
        (3, 0.95 * part(0.4) + 0.05 * part(0.3)),
    ],
    ids=["inside", "first", "last"],
)
def test_a_soft_label_spills_into_its_neighbours_and_not_over_the_ends(cell, expected):
    value = focal_loss(one_entry(*SHARES), label(cell), gamma=2, soft=True)
    assert value.item() == pytest.approx(expected, rel=1e-5)


def test_a_hard_label_counts_its_own_cell_only():
    value = focal_loss(one_entry(*SHARES), label(2), gamma=1, soft=False)
    assert value.item() == pytest.approx(part(0.3, gamma=1), rel=1e-5)


def test_entries_without_a_label_do_not_count():
    log_shares = draw(2, 6, 5, 3).log_softmax(dim=1)
    labels = torch.full((2, 5, 3), -1)
    labels[0, 1, 2] = 4

    whole = focal_loss(log_shares, labels, gamma=2, soft=True)
    alone = focal_loss(log_shares[:1, :, 1:2, 2:], label(4), gamma=2, soft=True)

    assert whole.item() == pytest.approx(alone.item(), rel=1e-6)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_a_certain_network_has_a_finite_gradient(gamma):
    logits = torch.zeros(1, 5, 1, 1)
    logits[0, 2] = 1000.0
    logits.requires_grad_()

    focal_loss(logits.log_softmax(dim=1), label(2), gamma=gamma, soft=True).backward()

    assert logits.grad.isfinite().all()


def test_existence_is_the_cross_entropy_of_having_a_label():
    logits = torch.tensor([[0.0, 2.0], [1.0, 0.0]]).T.view(1, 2, 2, 1)
    labels = torch.tensor([3, -1]).view(1, 2, 1)

    expected = torch.nn.functional.cross_entropy(logits, (labels != -1).long())

    assert existence_loss(logits, labels).item() == pytest.approx(expected.item(), rel=1e-6)
    by_hand = (math.log1p(math.exp(-2)) + math.log1p(math.exp(-1))) / 2
    assert existence_loss(logits, labels).item() == pytest.approx(by_hand, rel=1e-6)


def test_the_expectation_is_pulled_to_the_label_by_smooth_l1():
    shares = one_entry(*SHARES).exp()
    expected = expected_cell(shares)

    assert expected.item() == pytest.approx(2.0)
    assert expectation_loss(expected, label(0)).item() == pytest.approx(1.5)  # 2 - 1/2
    assert expectation_loss(expected + 0.5, label(2)).item() == pytest.approx(0.125)


def test_the_variance_counts_where_the_expectation_is_near_the_label():
    shares = one_entry(*SHARES).exp()
    expected = expected_cell(shares)

    def variance(cell, power):
        return variance_loss(shares, label(cell), expected=expected, power=power).item()

    assert variance(2, 2.0) == pytest.approx(0.1 * 4 + 0.2 * 1 + 0.4 * 1)
    assert variance(2, 1.0) == pytest.approx(0.1 * 2 + 0.2 * 1 + 0.4 * 1)
    assert variance(1, 2.0) == 0  # a whole cell off


def test_a_fractional_variance_power_has_a_finite_gradient():
    logits = torch.zeros(1, 5, 1, 1)
    logits[0, 2] = 1000.0
    logits.requires_grad_()
    shares = logits.softmax(dim=1)

    variance_loss(shares, label(2), expected=expected_cell(shares), power=0.5).backward()

    assert logits.grad.isfinite().all()


def test_neighbouring_anchors_with_equal_logits_are_alike():
    logits = torch.zeros(1, 2, 3, 1)
    assert similarity_loss(logits) == 0
    logits[0, 0, 1] = 2.0  # differs from both its neighbours, by 1.5 of smooth L1
    assert similarity_loss(logits).item() == pytest.approx(2 * 1.5 / 4)


def lane_along(*cells):
    """Logits of a lane that is in these cells, down the anchors."""
    logits = torch.zeros(1, 9, len(cells), 1)
    for anchor, cell in enumerate(cells):
        logits[0, cell, anchor] = 50.0
    return logits


def test_a_straight_lane_has_no_shape_loss_and_a_bend_in_the_upper_half_has():
    assert shape_loss(lane_along(0, 1, 2, 3, 4, 5)).item() == pytest.approx(0, abs=1e-5)
    assert shape_loss(lane_along(0, 1, 3, 5, 0, 7)).item() == pytest.approx(0.5, rel=1e-4)


def test_tokens_are_compared_with_cells_of_four_pixels():
    masks = torch.zeros(1, 32, 64, dtype=torch.uint8)
    masks[0, 7, 3] = 2  # one pixel marks its cell
    tokens = torch.full((1, 1, 1, 2), 3.0)

    value = token_loss(tokens, masks).item()

    on, off = math.log1p(math.exp(-3)), math.log1p(math.exp(3))
    assert value == pytest.approx((on + 127 * off) / 128, rel=1e-6)


def test_the_auxiliary_target_is_the_mask_at_the_cells_middle():
    masks = torch.arange(16 * 24).view(1, 16, 24)
    assert segmentation_target(masks).tolist() == [[[100, 108, 116], [292, 300, 308]]]


def test_the_ground_weighs_less_than_lanes():
    masks = torch.zeros(1, 8, 16, dtype=torch.uint8)
    masks[:, :, 8:] = 2
    logits = draw(1, 3, 1, 2)
    ground, lane = (-logits.log_softmax(dim=1)[0, k, 0, x] for k, x in ((0, 0), (2, 1)))

    value = segmentation_loss(logits, masks, class_weights=None)
    own = segmentation_loss(logits, masks, class_weights=(3.0, 1.0, 2.0))

    assert value.item() == pytest.approx(((0.6 * ground + lane) / 1.6).item(), rel=1e-5)
    assert own.item() == pytest.approx(((3 * ground + 2 * lane) / 5).item(), rel=1e-5)


def batch(model, *, is_empty=False):
    """Outputs of a small network, and labels."""
    torch.manual_seed(0)
    outputs = build_lane_network(model)(draw(2, 3, 64, 96))
    generator = torch.Generator().manual_seed(3)
    rows = torch.randint(-1, 7, (2, 5, 3), generator=generator)
    columns = torch.randint(-1, 6, (2, 4, 3), generator=generator)
    masks = torch.randint(0, 4, (2, 64, 96), generator=generator, dtype=torch.uint8)
    if is_empty:
        rows, columns = torch.full_like(rows, -1), torch.full_like(columns, -1)
        masks = torch.zeros_like(masks)
    return outputs, LaneLabels(rows, columns, masks)


EVERY = LaneLossConfig(similarity=1.0, shape=1.0)
PLAIN = {"row", "column", "row_existence", "column_existence", "row_mean", "column_mean"}


def test_each_term_has_its_weight():
    model = section(head="group_instance", aux=AuxConfig())
    outputs, labels = batch(model)
    names = ["row", "column", "row_existence", "column_existence", "similarity", "shape"]
    names += ["mean", "variance", "token", "segmentation"]
    ones = LaneLossConfig(**dict.fromkeys(names, 1.0))
    weights = {name: 2.0 + place for place, name in enumerate(names)}

    plain = lane_losses(outputs, labels, loss=ones, model=model)
    weighted = lane_losses(outputs, labels, loss=LaneLossConfig(**weights), model=model)

    assert len(plain) == 13
    for name, value in weighted.items():
        weight = weights.get(name) or weights[name.partition("_")[2]]
        assert value.item() == pytest.approx(weight * plain[name].item(), rel=1e-5), name


def test_a_term_of_weight_zero_is_not_computed():
    model = section()
    outputs, labels = batch(model)

    assert lane_losses(outputs, labels, loss=LaneLossConfig(), model=model).keys() == PLAIN
    few = LaneLossConfig(mean=0, column=0, column_existence=0)
    found = lane_losses(outputs, labels, loss=few, model=model)
    assert found.keys() == {"row", "row_existence"}


def test_tokens_and_variance_belong_to_group_instance_and_segmentation_to_the_head():
    model = section(head="group_instance", aux=AuxConfig())
    outputs, labels = batch(model)

    found = lane_losses(outputs, labels, loss=EVERY, model=model)

    own = {"row_variance", "column_variance", "row_token", "column_token", "segmentation"}
    assert found.keys() == PLAIN | {"similarity", "shape"} | own


def test_a_batch_without_lanes_has_finite_terms_and_gradients():
    model = section(head="group_instance", aux=AuxConfig())
    outputs, labels = batch(model, is_empty=True)
    for value in outputs.values():
        value.retain_grad()

    found = lane_losses(outputs, labels, loss=EVERY, model=model)
    sum(found.values()).backward()

    for name in ("row", "column", "row_mean", "column_mean", "row_variance", "column_variance"):
        assert found[name].item() == 0, name
    assert all(value.isfinite() for value in found.values())
    assert all(value.grad.isfinite().all() for value in outputs.values())


def test_half_precision_outputs_give_full_precision_terms():
    model = section()
    outputs, labels = batch(model)
    halves = {name: value.bfloat16() for name, value in outputs.items()}

    found = lane_losses(halves, labels, loss=EVERY, model=model)

    assert {value.dtype for value in found.values()} == {torch.float32}
    assert {value.ndim for value in found.values()} == {0}


def test_uniform_cells_cost_the_same_at_every_label():
    log_shares = torch.full((1, 4, 4, 1), math.log(0.25))
    labels = torch.arange(4).view(1, 4, 1)
    value = focal_loss(log_shares, labels, gamma=2, soft=True)
    assert value.item() == pytest.approx(FOCAL_UNIFORM, rel=1e-6)


def test_the_loss_of_two_pictures_falls():
    model = section(norm=True)
    torch.manual_seed(0)
    network = build_lane_network(model)
    images, (_, labels) = draw(2, 3, 64, 96), batch(model)
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)

    totals = []
    for _ in range(30):
        total = sum(
            lane_losses(network(images), labels, loss=LaneLossConfig(), model=model).values()
        )
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        totals.append(total.item())

    assert totals[-1] < 0.5 * totals[0]


def test_no_term_waits_for_the_device():
    model = section(head="group_instance", aux=AuxConfig())
    outputs, labels = batch(model)
    # a meta tensor has no value that could be waited for
    outputs = {name: value.to("meta") for name, value in outputs.items()}
    labels = LaneLabels(
        *(getattr(labels, name).to("meta") for name in ("rows", "columns", "masks"))
    )

    found = lane_losses(outputs, labels, loss=EVERY, model=model)

    assert all(value.is_meta for value in found.values())


def test_the_hardest_pixels_can_be_averaged_alone():
    masks = torch.zeros(1, 16, 16, dtype=torch.uint8)
    sure, unsure = [5.0, 0.0], [0.0, 1.0]
    logits = torch.tensor([[sure, sure], [sure, unsure]]).permute(2, 0, 1)[None]
    hard = torch.nn.functional.cross_entropy(torch.tensor([unsure]), torch.tensor([0]))
    config = LaneLossConfig(segmentation_hardest={"share": 0.7, "least": 1})
    # the second hardest of the four is easy, so that the one hardest counts
    assert segmentation_term(logits, masks, loss=config).item() == pytest.approx(hard.item())
