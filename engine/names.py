"""Name prefixes by which configurations pick parts of a network."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from torch import nn

_SUGGESTIONS = 3
NORM_LAYERS = (
    nn.modules.batchnorm._BatchNorm,
    nn.modules.instancenorm._InstanceNorm,
    nn.GroupNorm,
    nn.LayerNorm,
    nn.RMSNorm,
)


def has_prefix(name: str, prefix: str) -> bool:
    """Tell whether a dotted name begins with a prefix of whole parts.

    `backbone.body` is the beginning of `backbone.body.conv.weight`, not of `backbone.body2.weight`.
    """
    return name == prefix or name.startswith(prefix.rstrip(".") + ".")


def require_match(prefix: str, network: nn.Module, *, key: str) -> None:
    """Check that a prefix names some part of the network.

    Args:
        prefix: of module or parameter names.
        network: whose names are looked through.
        key: the configuration's key, for the message.

    Raises:
        ValueError: if it names none; the message lists the nearest names.
    """
    names = {name for name, _ in network.named_modules() if name}
    names |= {name for name, _ in network.named_parameters()}
    if any(has_prefix(name, prefix) for name in names):
        return
    raise ValueError(
        f"{key}: no part of the network is named {prefix!r}; nearest: {_nearest(prefix, names)}"
    )


def _nearest(prefix: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(prefix, sorted(names), n=_SUGGESTIONS, cutoff=0.4)
    # the network's top-level parts are the next best answer
    return ", ".join(close or sorted({name.split(".")[0] for name in names}))
