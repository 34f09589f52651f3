import copy
from typing import get_args

import pytest
import torch
from torch import nn

from models.lanes.build import build_lane_network
from models.lanes.ufldv2 import moved_by_a_cell
from tasks.lanes.config import AuxConfig, ResnetLaneBackboneConfig
from tests.models.lanes.sections import SLIM, backbone, section

NAMES = [*get_args(ResnetLaneBackboneConfig.model_fields["name"].annotation), "resnet34fca"]
SHAPES = {
    "loc_row": (2, 7, 5, 3),
    "loc_col": (2, 6, 4, 3),
    "exist_row": (2, 2, 5, 3),
    "exist_col": (2, 2, 4, 3),
}
TOKENS = {"lane_token_row": (2, 1, 2, 3), "lane_token_col": (2, 1, 2, 3)}


def pictures(count=2):
    return torch.randn(count, 3, 64, 96, generator=torch.Generator().manual_seed(1))


def shapes(outputs):
    return {key: tuple(value.shape) for key, value in outputs.items()}


@pytest.mark.parametrize("head", ["joined", "group_instance"])
@pytest.mark.parametrize("name", [*NAMES, "slim"])
def test_every_backbone_fits_every_head(name, head):
    chosen = SLIM if name == "slim" else backbone(name)
    with torch.device("meta"):
        network = build_lane_network(section(chosen, head=head, aux=AuxConfig()))
        outputs = network(torch.empty(2, 3, 64, 96))

    expected = SHAPES | (TOKENS if head == "group_instance" else {}) | {"seg": (2, 4, 8, 12)}
    assert shapes(outputs) == expected


@pytest.mark.parametrize("head", ["joined", "group_instance"])
def test_all_parameters_train(head):
    network = build_lane_network(section(head=head, norm=True, aux=AuxConfig()))

    sum(value.square().sum() for value in network(pictures()).values()).backward()

    still = [name for name, p in network.named_parameters() if not p.grad.abs().sum() > 0]
    assert still == []


@pytest.mark.parametrize("head", ["joined", "group_instance"])
def test_a_batch_is_its_pictures_one_by_one(head):
    network = build_lane_network(section(head=head)).eval()
    with torch.no_grad():
        batch = network(pictures())
        singles = [network(picture.unsqueeze(0)) for picture in pictures()]

    for key, value in batch.items():
        torch.testing.assert_close(value, torch.cat([single[key] for single in singles]))


def test_the_vector_is_cut_into_row_cells_column_cells_row_and_column_existence():
    network = build_lane_network(section()).eval()
    nn.init.zeros_(network.cls[3].weight)
    size = len(network.cls[3].bias)
    network.cls[3].bias.data = torch.arange(size, dtype=torch.float32)

    outputs = network(pictures(1))

    in_order = [outputs[key].flatten() for key in SHAPES]
    assert torch.cat(in_order).tolist() == list(range(size))


def test_group_instance_reads_a_slot_from_its_own_row_token():
    network = build_lane_network(section(head="group_instance")).eval()
    features = network.model(pictures(1))[-1]
    token = network.cls_distribute(features)[:, 1]  # of the second slot's rows
    joined = torch.cat([network.pool(features).flatten(1), token.flatten(1)], dim=1)
    values = network.cls_row(network.cls(joined))

    outputs = network(pictures(1))

    torch.testing.assert_close(outputs["loc_row"][..., 1].flatten(), values[0, :35])
    torch.testing.assert_close(outputs["exist_row"][..., 1].flatten(), values[0, 35:])


def test_the_auxiliary_head_runs_in_training_only():
    network = build_lane_network(section(aux=AuxConfig(classes=9)))

    assert network(pictures())["seg"].shape == (2, 9, 8, 12)
    assert "seg" not in network.eval()(pictures())
    assert "seg" not in network.forward_tta(pictures())


def test_a_moved_map_takes_the_mean_in_at_its_edge():
    pooled = torch.tensor([[1.0, 2.0, 6.0], [4.0, 5.0, 9.0]]).view(1, 1, 2, 3)

    left, right, up, down = (moved[0, 0].tolist() for moved in moved_by_a_cell(pooled))

    assert left == [[2, 6, 3], [5, 9, 6]]
    assert right == [[3, 1, 2], [6, 4, 5]]
    assert up == [[4, 5, 9], [2.5, 3.5, 7.5]]
    assert down == [[2.5, 3.5, 7.5], [1, 2, 6]]


def test_shifted_features_come_as_blocks_of_pictures_the_unmoved_first():
    network = build_lane_network(section(norm=True)).eval()
    with torch.no_grad():
        plain, shifted = network(pictures()), network.forward_tta(pictures())
        left = moved_by_a_cell(network.pool(network.model(pictures())[-1]))[0]
        values = network.cls(left.flatten(1))

    assert shapes(shifted) == {key: (10, *shape[1:]) for key, shape in SHAPES.items()}
    torch.testing.assert_close(shifted["loc_row"][:2], plain["loc_row"])
    torch.testing.assert_close(shifted["loc_row"][2:4].flatten(1), values[:, :105])


def test_weights_begin_as_the_reference_s():
    torch.manual_seed(0)
    network = build_lane_network(section(head="group_instance", hidden=512, aux=AuxConfig()))
    first, _, last = network.cls_distribute

    for linear in (network.cls[1], network.cls_row, network.cls_col):
        assert linear.weight.std().item() == pytest.approx(0.01, rel=0.05)
    fan_in = first.in_channels * 9
    assert first.weight.std().item() == pytest.approx((2 / fan_in) ** 0.5, rel=0.05)
    assert not first.bias.any()
    assert not last.bias.any()
    assert not network.seg_head.aux_combine[4].bias.any()
    assert network.pool.bias.any()  # torch's own


def test_layer_norm_is_an_option_of_the_joined_head():
    assert isinstance(build_lane_network(section(norm=True)).cls[0], nn.LayerNorm)
    assert isinstance(build_lane_network(section(norm=False)).cls[0], nn.Identity)
    assert isinstance(build_lane_network(section(head="group_instance")).cls[0], nn.LayerNorm)


def test_a_network_without_the_auxiliary_head_takes_the_state_of_one_with_it():
    trained = build_lane_network(section(aux=AuxConfig()))
    network = copy.deepcopy(build_lane_network(section()))

    network.load_state_dict(trained.state_dict(), strict=True)

    assert torch.equal(network.cls[1].weight, trained.cls[1].weight)


def test_channels_last_changes_nothing():
    network = build_lane_network(section(norm=True)).eval()
    with torch.no_grad():
        expected = network(pictures())
        network.to(memory_format=torch.channels_last)
        found = network(pictures().to(memory_format=torch.channels_last))

    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, rtol=1e-4, atol=1e-5)
