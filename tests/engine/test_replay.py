"""Each kind of cause is put into a training; the replay of its capsule must tell which it was."""

import math

import pytest
import torch
from torch import nn

from engine.approach import weights_before
from engine.capsule import load_capsule
from engine.checkpoint import CheckpointStore
from engine.contract import Batch, Evaluation, Losses
from engine.guard import TrainingDiverged
from engine.picking import bad_places, picked
from engine.replay import Reference, replay
from engine.watcher import Watcher
from tests.engine.running import CPU, assert_same, run, train_config
from tests.engine.test_distributed import spawn, unused_port  # noqa: F401  (a fixture)
from tests.engine.test_policies import FlawedTask
from tests.engine.toy_task import ToyTask

NAN, INF = math.nan, math.inf
EVERY = {"checkpoint": {"every_updates": 1, "keep": 2}}


class BadLabels(ToyTask):
    """Some points have bad targets (`label`) or inputs (`picture`)."""

    def __init__(self, bad, *, value=NAN, where="label"):
        super().__init__()
        self.bad, self.value, self.where = set(bad), value, where

    def train_batches(self, request):
        for batch in super().train_batches(request):
            inputs, targets = batch.inputs
            for index, name in enumerate(batch.ids):
                if name in self.bad and self.where == "label":
                    targets[index] = self.value
                elif name in self.bad:
                    inputs[index, 1] = self.value
            yield batch


class Blown(ToyTask):
    """Without batch norm, so that weights can grow without bounds."""

    def build_network(self):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))


class Cancelling(nn.Module):
    """Adds a large number and takes it away: nothing is left in bf16, and the logarithm is -inf."""

    def forward(self, x):
        # autocast lets sums be; what comes from a matrix product has few digits already
        kept = (x.abs() * 1e-3 + 1.0).to(x.dtype) - 1.0
        return x + 1e-6 * torch.log(kept + 1e-30 * kept)


class Overflowing(nn.Module):
    """A product that is beyond fp16, and shrunk again."""

    def __init__(self):
        super().__init__()
        self.wide = nn.Linear(8, 8, bias=False)
        nn.init.constant_(self.wide.weight, 3e4)

    def forward(self, x):
        return 1e-6 * self.wide(x.abs() + 1.0)


class WithPart(ToyTask):
    """The toy network with a part in its middle."""

    def __init__(self, part):
        super().__init__()
        self.part = part

    def build_network(self):
        torch.manual_seed(0)
        network = nn.Sequential()
        network.add_module("body", nn.Linear(3, 8))
        network.add_module("middle", self.part())
        network.add_module("head", nn.Linear(8, 1))
        return network

    def evaluate(self, network, split, *, device, detail):
        return Evaluation({"fit": 0.0}, headline="fit")


class LogOfZero(nn.Module):
    def forward(self, x):
        return torch.log(torch.relu(x))


class RootOfZero(nn.Module):
    """Finite, but its slope at 0 is not."""

    def forward(self, x):
        return x + torch.sqrt(x * 0.0)


class Divided(nn.Module):
    def forward(self, x):
        return x / (x - x.detach())


class LossDivides(ToyTask):
    """The operator stands in the loss, outside of the network."""

    def losses(self, network, batch):
        term = super().losses(network, batch).terms["square"]
        return Losses({"square": term / (term - term.detach())})


def capsule_of(folder, task, **changes):
    with pytest.raises(TrainingDiverged):
        run(folder / "checkpoints", task=task, **changes)
    (path,) = (folder / "capsules").iterdir()
    return load_capsule(path)


def checkpoints(folder):
    store = CheckpointStore(folder / "checkpoints")
    paths = sorted(store.directory.glob("update-*"), reverse=True)
    return [Reference(path.name, store.load(path)["network"]) for path in paths]


def verdict_of(folder, task, **changes):
    capsule = capsule_of(folder, task, **changes)
    return replay(task, capsule, device=CPU, references=checkpoints(folder)).verdict


def _diverge_in_ranks(folder):
    with pytest.raises(TrainingDiverged):
        run(folder / "checkpoints", task=BadLabels(["point-7"]), epochs=1)


@pytest.mark.slow
def test_a_bad_label_of_another_rank_is_named(tmp_path, unused_port):  # noqa: F811
    spawn(_diverge_in_ranks, tmp_path, unused_port)
    (path,) = (tmp_path / "capsules").iterdir()
    capsule = load_capsule(path)
    assert [(batch["rank"], len(batch["ids"])) for batch in capsule["batches"]] == [(0, 2), (1, 2)]
    found = replay(ToyTask(), capsule, device=CPU)
    assert (found.verdict.cause, found.verdict.samples) == ("label", ["point-7"])
    (bad,) = [b["rank"] for b in capsule["batches"] if "point-7" in b["ids"]]
    assert [where[0] for where in found.evidence.bad_batches] == [bad]


@pytest.mark.parametrize("value", [NAN, INF])
@pytest.mark.parametrize("where", ["label", "picture"])
def test_a_bad_label_or_picture_is_named(tmp_path, value, where):
    task = BadLabels(["point-7"], value=value, where=where)
    verdict = verdict_of(tmp_path, task, epochs=1, **EVERY)
    assert (verdict.cause, verdict.samples) == ("label", ["point-7"])
    assert "not finite" in verdict.reasons[0]


def test_all_bad_labels_of_a_batch_are_named(tmp_path):
    capsule = capsule_of(tmp_path, BadLabels({f"point-{k}" for k in range(24)}), epochs=1)
    verdict = replay(ToyTask(), capsule, device=CPU).verdict
    assert verdict.cause == "label"
    assert sorted(verdict.samples) == sorted(capsule["ids"])


def test_an_absurd_label_that_is_finite_is_a_label_too(tmp_path):
    verdict = verdict_of(tmp_path, BadLabels(["point-3"], value=1e30), epochs=1, **EVERY)
    assert (verdict.cause, verdict.samples) == ("label", ["point-3"])
    assert "bad alone with any weights" in verdict.reasons[0]


def test_bad_labels_of_several_batches_of_an_update_are_named(tmp_path):
    task = BadLabels({"point-1", "point-2", "point-3", "point-5"})
    capsule = capsule_of(tmp_path, task, epochs=1, accumulate=6)
    verdict = replay(task, capsule, device=CPU).verdict
    assert verdict.cause == "label"
    assert set(verdict.samples) == task.bad


def test_a_rate_that_blew_the_weights_up_is_told_with_their_size(tmp_path):
    options = {"optimizer": {"name": "sgd", "lr": 1e4, "momentum": 0}, "epochs": 3}
    verdict = verdict_of(tmp_path, Blown(), **options, **EVERY)
    assert verdict.cause == "learning rate"
    text = " ".join(verdict.reasons)
    assert "blown up: the norm of all weights is" in text
    assert "base 10000" in text


def test_the_newest_good_checkpoint_is_what_weights_are_compared_with(tmp_path):
    """The checkpoints of the last two updates are blown up as well; an older one is not."""
    task = Blown()
    options = {"optimizer": {"name": "sgd", "lr": 1e4, "momentum": 0}, "epochs": 3}
    capsule = capsule_of(tmp_path, task, checkpoint={"every_updates": 1, "keep": 99}, **options)
    found = replay(task, capsule, device=CPU, references=checkpoints(tmp_path))
    assert found.evidence.good_reference.startswith("update-")
    assert found.evidence.growth.reference == found.evidence.good_reference
    assert not next(iter(found.evidence.references.values())).is_good


def test_a_loss_above_the_limit_by_a_high_rate_is_a_learning_rate(tmp_path):
    options = {"optimizer": {"name": "sgd", "lr": 3.0, "momentum": 0}, "epochs": 3}
    options["guard"] = {"policy": "stop", "largest_loss": 1e4}
    verdict = verdict_of(tmp_path, Blown(), **options)
    assert verdict.cause == "learning rate"


def test_what_is_lost_in_bf16_only_is_precision(tmp_path):
    verdict = verdict_of(tmp_path, WithPart(Cancelling), epochs=1, precision="bf16", **EVERY)
    assert verdict.cause == "precision"
    assert "bad in bf16, good in fp32" in verdict.reasons[0]
    assert any("output that is not finite is that of middle" in why for why in verdict.reasons)
    assert any("aten.log" in why for why in verdict.reasons)


def test_an_overflow_in_fp16_only_is_precision(tmp_path):
    """The CPU trains in no fp16, but can compute in it."""
    task = WithPart(Overflowing)
    bad = BadLabels(["point-7"])
    capsule = capsule_of(tmp_path, bad, epochs=1, **EVERY)
    capsule["network"] = task.build_network().state_dict()
    capsule["precision"] = "fp16"
    for batch in capsule["batches"]:
        batch["inputs"] = tuple(value.nan_to_num(1.0) for value in batch["inputs"])
    found = replay(task, capsule, device=CPU)
    assert found.verdict.cause == "precision"
    assert "good in bf16, which has the range of fp32" in found.verdict.reasons
    assert found.evidence.first_bad_module == "middle.wide"


@pytest.mark.parametrize(("part", "operator"), [(LogOfZero, "aten.log"), (Divided, "aten.div")])
def test_an_operator_that_makes_nan_is_named_with_its_module(tmp_path, part, operator):
    verdict = verdict_of(tmp_path, WithPart(part), epochs=1, **EVERY)
    assert verdict.cause == "operator"
    assert any("is that of middle" in why for why in verdict.reasons)
    assert any(f"module middle ({operator})" in why for why in verdict.reasons)


def test_an_operator_whose_gradient_is_not_finite_is_named(tmp_path):
    verdict = verdict_of(tmp_path, WithPart(RootOfZero), epochs=1, **EVERY)
    assert verdict.cause == "operator"
    (place,) = [why for why in verdict.reasons if "begins in" in why]
    assert "backward pass, module middle (SqrtBackward0" in place


def test_an_operator_in_the_loss_is_told_as_such(tmp_path):
    verdict = verdict_of(tmp_path, LossDivides(), epochs=1, **EVERY)
    assert verdict.cause == "operator"
    assert any("forward pass, the loss (aten.div)" in why for why in verdict.reasons)


def test_what_does_not_happen_again_is_said_so(tmp_path):
    capsule = capsule_of(tmp_path, BadLabels(["point-7"]), epochs=1)
    for batch in capsule["batches"]:
        batch["inputs"] = tuple(value.nan_to_num(1.0) for value in batch["inputs"])
    verdict = replay(ToyTask(), capsule, device=CPU).verdict
    assert verdict.cause == "not reproduced"
    assert "all losses and gradients are finite" in verdict.reasons[0]


def test_a_replay_draws_what_the_training_drew(tmp_path):
    """Dropout included, the terms are those of the training, to the bit."""
    log_terms = []

    class Noted(BadLabels):
        def losses(self, network, batch):
            losses = super().losses(network, batch)
            log_terms.append(float(losses.terms["square"].detach()))
            return losses

        def build_network(self):
            network = super().build_network()
            network.drop.p = 0.5
            return network

    task = Noted(())
    options = {"guard": {"policy": "stop", "largest_loss": 0.01}, "epochs": 1}
    capsule = capsule_of(tmp_path, task, **options)
    seen = log_terms[-1]
    (outcome,) = replay(task, capsule, device=CPU).evidence.recorded
    assert outcome.terms["square"] == seen


def test_weights_of_a_later_update_are_not_taken_for_earlier_ones(tmp_path):
    """A mended update was made, so its weights have to be made again from a checkpoint."""
    task = FlawedTask([9], bad_tensors=1)
    options = {"guard": {"policy": "zero_few"}, "checkpoint": {"every_updates": 1, "keep": 99}}
    run(tmp_path / "checkpoints", task=task, epochs=2, **options)
    capsule = load_capsule(tmp_path / "capsules" / "update-00000009")
    store = CheckpointStore(tmp_path / "checkpoints")
    states = {int(p.name[7:15]): store.load(p) for p in store.directory.glob("update-*")}
    for start in (9, 7, 4):  # of the same epoch, and of the one before
        weights = weights_before(
            9, states[start], task=ToyTask(), config=train_config(epochs=2, **options), device=CPU
        )
        assert_same(weights, states[9]["network"])
    again = FlawedTask(range(999), bad_tensors=1)
    found = replay(again, capsule, device=CPU, checkpoint=states[7])
    assert (found.evidence.approached, found.verdict.cause) == (2, "operator")
    assert not [path for path in tmp_path.parent.parent.glob("nothing is*")]


def test_a_checkpoint_that_is_just_finite_does_not_hide_a_blow_up(tmp_path):
    """One more update at a constant rate is no growth to speak of."""
    task = Blown()
    weights = {name: 1e7 * value for name, value in task.build_network().state_dict().items()}
    capsule = capsule_of(tmp_path, BadLabels(["point-7"]), epochs=1)
    for batch in capsule["batches"]:
        batch["inputs"] = tuple(value.nan_to_num(1.0) for value in batch["inputs"])
    capsule["network"] = weights
    nearly = Reference("the last one", {name: value / 9 for name, value in weights.items()})
    found = replay(task, capsule, device=CPU, references=[nearly])
    assert (found.evidence.good_reference, found.verdict.cause) == ("the last one", "learning rate")
    assert "good with fresh weights" in found.verdict.reasons[1]


def test_samples_are_taken_out_of_nested_batches():
    inputs = {
        "pictures": [torch.zeros(3, 2, 2), torch.ones(3, 2, 2)],
        "targets": ({"boxes": torch.arange(4).reshape(2, 2)}, torch.tensor([5.0, NAN])),
        "scale": 3,
    }
    one = picked(Batch(inputs, ["a", "b"]), [1])
    assert one.ids == ["b"]
    assert one.inputs["scale"] == 3
    assert [picture.mean() for picture in one.inputs["pictures"]] == [1.0]
    assert one.inputs["targets"][0]["boxes"].tolist() == [[2, 3]]
    assert bad_places(one.inputs) == ["inputs.targets.1"]
    assert not bad_places(picked(Batch(inputs, ["a", "b"]), [0, 0]).inputs)


def test_a_mask_of_infinities_is_not_where_it_begins():
    class Masked(nn.Module):
        def forward(self, x):
            scores = torch.softmax(x.masked_fill(x > 1e9, -INF), dim=-1)
            return torch.log(scores - scores)

    network = nn.Sequential(nn.Linear(3, 3), Masked())
    with Watcher(network) as watcher:
        network(torch.ones(2, 3))
    assert (watcher.first_bad_module, watcher.origin().operator) == ("1", "aten.log")


def test_a_finite_pass_has_no_origin_and_leaves_no_hooks():
    network = nn.Linear(3, 1)
    with Watcher(network) as watcher:
        network(torch.ones(2, 3)).sum().backward()
    assert watcher.origin() is None
    assert not network._forward_hooks
    assert not network._forward_pre_hooks
