import math

import pytest
import torch

from models.lanes.frequency_attention import CosineSum, FcaBlock, FrequencyAttention, cosine_basis


def test_the_first_channels_take_the_mean_and_groups_go_by_frequency():
    basis = cosine_basis(64, 7)  # groups of 4 channels

    assert torch.allclose(basis[:4], torch.full((4, 7, 7), 1 / 7))
    # the second group: constant along the height, one half wave along the width
    wave = [math.sqrt(2) / 7 * math.cos(math.pi * (t + 0.5) / 7) for t in range(7)]
    for row in basis[4]:
        assert row.tolist() == pytest.approx(wave, abs=1e-6)
    # the third group: frequency 6 along the height
    wave = [math.sqrt(2) / 7 * math.cos(math.pi * 6 * (t + 0.5) / 7) for t in range(7)]
    for column in basis[8].unbind(1):
        assert column.tolist() == pytest.approx(wave, abs=1e-6)


@pytest.mark.parametrize("side", [7, 14, 28, 56])
def test_frequencies_are_orthonormal_at_every_side(side):
    waves = cosine_basis(16, side).flatten(1)
    torch.testing.assert_close(waves @ waves.T, torch.eye(16), atol=1e-5, rtol=0)


def test_larger_maps_have_frequencies_scaled_to_them():
    wave = cosine_basis(16, 14)[1, 0]
    expected = [math.sqrt(2) / 14 * math.cos(math.pi * 2 * (t + 0.5) / 14) for t in range(14)]
    assert wave.tolist() == pytest.approx(expected, abs=1e-6)


def test_maps_of_another_size_are_pooled_first():
    features = torch.rand(2, 16, 21, 14, generator=torch.Generator().manual_seed(1))
    pooled = features.view(2, 16, 7, 3, 7, 2).mean(dim=(3, 5))
    layer = CosineSum(16, 7)

    torch.testing.assert_close(layer(features), layer(pooled))
    torch.testing.assert_close(layer(features)[:, 0], pooled[:, 0].sum(dim=(1, 2)) / 7)


def test_attention_scales_whole_channels_by_less_than_one():
    features = torch.rand(1, 64, 7, 7) + 0.1
    factors = FrequencyAttention(64, 7)(features) / features

    assert factors.flatten(2).std(dim=2).max() < 1e-5
    assert 0 < factors.min() <= factors.max() < 1


def test_a_block_without_attention_s_effect_is_a_residual_block():
    block = FcaBlock(64, 64).eval()
    features = torch.rand(1, 64, 8, 8)
    torch.nn.init.zeros_(block.bn2.weight)

    assert torch.equal(block(features), features)


def test_entries_of_a_block_come_in_fcanet_s_order():
    names = list(FcaBlock(64, 64, 1, torch.nn.Conv2d(64, 64, 1, bias=False)).state_dict())

    attention = ["att.dct_layer.weight", "att.fc.0.weight", "att.fc.2.weight"]
    assert names[-4:] == [*attention, "downsample.weight"]
