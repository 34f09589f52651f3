"""Parts of a network that do not train: always, until an epoch, or from one on."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from engine.config import FreezeConfig
from engine.names import NORM_LAYERS, has_prefix, require_match


class Freezing:
    """Knows what trains in which epoch.

    A frozen part's weights get no gradient, and its normalisation layers stay in eval mode, so that
    their running statistics do not move either. What the network itself had frozen stays so.

    Args:
        network: as built; parameters that require no gradient now never will.
        rules: the configured parts.

    Raises:
        ValueError: if a rule's prefix names no part of the network.
    """

    def __init__(self, network: nn.Module, rules: Sequence[FreezeConfig]) -> None:
        for rule in rules:
            require_match(rule.prefix, network, key="train.freeze")
        self._network = network
        self._rules = tuple(rules)
        self._parameters = [
            (name, parameter)
            for name, parameter in network.named_parameters()
            if parameter.requires_grad
        ]
        self._norm_layers = [
            (name, module)
            for name, module in network.named_modules()
            if isinstance(module, NORM_LAYERS)
        ]

    def apply(self, epoch: int) -> bool:
        """Put the network into train mode, but for what is frozen in this epoch.

        Returns:
            Whether the set of parameters that train is another than before.

        Raises:
            ValueError: if nothing is left to train.
        """
        active = [rule for rule in self._rules if _is_active(rule, epoch)]
        weights = [rule.prefix for rule in active if not rule.norm_only]
        before = [parameter.requires_grad for _, parameter in self._parameters]
        for name, parameter in self._parameters:
            parameter.requires_grad_(not _is_under(name, weights))
        after = [parameter.requires_grad for _, parameter in self._parameters]
        if not any(after):
            raise ValueError(f"train.freeze: nothing is left to train in epoch {epoch}")
        self._network.train()
        for name, module in self._norm_layers:
            if _is_under(name, [rule.prefix for rule in active]):
                module.eval()
        return before != after


def _is_active(rule: FreezeConfig, epoch: int) -> bool:
    return rule.from_epoch <= epoch and (rule.until_epoch is None or epoch < rule.until_epoch)


def _is_under(name: str, prefixes: Sequence[str]) -> bool:
    return any(has_prefix(name, prefix) for prefix in prefixes)
