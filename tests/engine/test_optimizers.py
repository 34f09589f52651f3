import pytest
import torch
from torch import nn

from engine.config import AdamWConfig, SgdConfig
from engine.optimizers import (
    build_optimizer,
    current_lr,
    load_optimizer,
    parameter_groups,
    set_lr,
    start_momentum,
)
from tests.engine.toy_task import ToyTask


def sgd(**changes):
    return SgdConfig.model_validate({"name": "sgd", "lr": 0.1, "weight_decay": 0.01} | changes)


def sizes(groups):
    return {group["name"]: len(group["params"]) for group in groups}


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.ModuleDict({"stem": nn.Linear(1, 1), "norm": nn.LayerNorm(1)})
        self.body2 = nn.Linear(1, 1)


def test_without_groups_all_parameters_are_one():
    (group,) = parameter_groups(ToyTask().build_network(), sgd())
    assert (group["name"], group["lr"], group["weight_decay"]) == ("base", 0.1, 0.01)
    assert len(group["params"]) == 6


def test_longest_prefix_of_whole_parts_counts():
    groups = [
        {"prefix": "body", "lr_factor": 0.5},
        {"prefix": "body.stem", "lr_factor": 0.1, "weight_decay_factor": 2.0},
    ]
    made = parameter_groups(Nested(), sgd(groups=groups))
    assert sizes(made) == {"body.stem": 2, "body": 2, "base": 2}
    stem = made[0]
    assert (stem["lr"], stem["weight_decay"]) == (pytest.approx(0.01), pytest.approx(0.02))


def test_norm_layers_stand_apart():
    config = sgd(norm_weight_decay=0.0, groups=[{"prefix": "body", "lr_factor": 0.5}])
    made = {group["name"]: group for group in parameter_groups(Nested(), config)}
    assert sizes(made.values()) == {"body": 2, "body.norm": 2, "base": 2}
    assert (made["body.norm"]["lr"], made["body.norm"]["weight_decay"]) == (0.05, 0.0)


def test_prefix_that_fits_nothing_names_the_nearest():
    with pytest.raises(ValueError, match=r"groups: no part .* 'bdy'; nearest: body"):
        parameter_groups(Nested(), sgd(groups=[{"prefix": "bdy"}]))


def test_network_without_trainable_parameters_is_refused():
    with pytest.raises(ValueError, match="nothing can train"):
        parameter_groups(Nested().requires_grad_(False), sgd())


def test_settings_reach_the_optimizer():
    network = Nested()
    made = build_optimizer(network, sgd(momentum=0.8, nesterov=True))
    assert (made.defaults["momentum"], made.defaults["nesterov"]) == (0.8, True)
    config = AdamWConfig(name="adamw", lr=0.1, betas=(0.5, 0.6), eps=1e-3)
    made = build_optimizer(network, config)
    assert isinstance(made, torch.optim.AdamW)
    assert (made.defaults["betas"], made.defaults["eps"]) == ((0.5, 0.6), 1e-3)


def test_factor_scales_each_group_s_own_rate():
    made = build_optimizer(Nested(), sgd(groups=[{"prefix": "body", "lr_factor": 0.5}]))
    for factor in (0.1, 0.2):
        set_lr(made, factor)
    assert current_lr(made) == pytest.approx({"body": 0.01, "base": 0.02})


def test_momentum_from_zero_makes_the_same_first_update():
    started, plain = Nested(), Nested()
    started.load_state_dict(plain.state_dict())
    for network, is_started in ((started, True), (plain, False)):
        optimizer = build_optimizer(network, sgd())
        if is_started:
            start_momentum(optimizer)
        for _ in range(2):
            network.body2(torch.ones(1)).sum().backward()
            optimizer.step()
    assert torch.equal(started.body2.weight, plain.body2.weight)


def test_moments_are_taken_over_but_not_rates():
    network = Nested()
    saved = build_optimizer(network, sgd(lr=0.5))
    network.body2(torch.ones(1)).sum().backward()
    saved.step()
    made = build_optimizer(network, sgd(lr=0.1))
    load_optimizer(made, saved.state_dict())
    weight = network.body2.weight
    assert torch.equal(
        made.state[weight]["momentum_buffer"], saved.state[weight]["momentum_buffer"]
    )
    assert current_lr(made) == {"base": 0.1}
