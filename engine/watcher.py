"""Where in a pass the first value appears that is not finite: in which module, by which operator.

One pass under a watcher looks at every tensor that every operator makes, forward and backward. It
waits for the device each time, so it is for a replay and not for training.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.hooks import RemovableHandle

OUTSIDE = "the loss"
WHOLE = "the network itself"
_FINITE, _INFINITE, _NAN = 0, 1, 2


@dataclass(frozen=True)
class Origin:
    """A place where values that are not finite came from finite ones.

    Args:
        direction: `forward` or `backward`.
        module: its name in the network; `the loss` for what is computed of the outputs.
        operator: torch's name of it, e.g. `aten.log`.
        function: the step of the backward pass, e.g. `SqrtBackward0`; empty if forward.
    """

    direction: str
    module: str
    operator: str
    function: str = ""

    def sentence(self) -> str:
        """Return the place in words."""
        where = self.module if self.module in (OUTSIDE, WHOLE) else f"module {self.module}"
        how = f"{self.function}, {self.operator}" if self.function else self.operator
        return f"{self.direction} pass, {where} ({how})"


class Watcher(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Looks at a network's pass; `with Watcher(network) as watcher:` around it.

    Args:
        network: whose modules are named.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._network = network
        self._handles: list[RemovableHandle] = []
        self._stack: list[str] = []
        self._origins: list[Origin] = []
        self._bad_module: str | None = None
        self._backward_module: str | None = None
        self._hooked: set[int] = set()
        self._kept: list[torch.Tensor] = []
        self.bad_input = False

    def __enter__(self) -> Watcher:
        for name, module in self._network.named_modules():
            self._handles.append(module.register_forward_pre_hook(self._entering(name)))
            self._handles.append(module.register_forward_hook(self._leaving(name)))
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        for handle in self._handles:
            handle.remove()
        self._kept.clear()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Make the operator's call, and note it if something not finite began with it."""
        kwargs = kwargs or {}
        # memory that is not filled yet holds anything
        if "empty" in func.__name__:
            return func(*args, **kwargs)
        given = _worst((args, kwargs)) if func._schema.is_mutable else None
        made = func(*args, **kwargs)
        found = _worst(made)
        if found > _FINITE and found > (_worst((args, kwargs)) if given is None else given):
            self._note(func)
        return made

    def origin(self) -> Origin | None:
        """Return where it began, or None if all was finite (or the inputs were not).

        Forward, values that are not finite may be meant (a mask of -inf): what counts is the last
        such place before the first module, or else the loss, whose outcome was not finite.
        """
        forward = [origin for origin in self._origins if origin.direction == "forward"]
        backward = [origin for origin in self._origins if origin.direction == "backward"]
        if self._bad_module is not None or not backward:
            within = [o for o in forward if _is_within(o.module, self._bad_module)]
            places = within or forward
            return places[-1] if places else None
        return backward[0]

    @property
    def first_bad_module(self) -> str | None:
        """The first module whose output was not finite, or None."""
        return self._bad_module

    def _note(self, func: Any) -> None:
        node = torch._C._current_autograd_node()
        operator = str(func).rpartition(".")[0]
        if node is None:
            if self._bad_module is None:
                module = _named(self._stack[-1]) if self._stack else OUTSIDE
                self._origins.append(Origin("forward", module, operator))
            return
        module = OUTSIDE if self._backward_module is None else self._backward_module
        self._origins.append(Origin("backward", module, operator, node.name()))

    def _entering(self, name: str) -> Callable[..., None]:
        def enter(module: nn.Module, given: Any) -> None:
            if not self._stack and _worst(given) > _FINITE:
                self.bad_input = True
            self._stack.append(name)

        return enter

    def _leaving(self, name: str) -> Callable[..., None]:
        def leave(module: nn.Module, given: Any, made: Any) -> None:
            self._stack.pop()
            if self._bad_module is None and _worst(made) > _FINITE:
                self._bad_module = _named(name)
            for tensor in _tensors(made):
                # a container hands on what its last part made
                if tensor.requires_grad and id(tensor) not in self._hooked:
                    self._hooked.add(id(tensor))
                    self._kept.append(tensor)
                    hook = self._reaching(_named(name))
                    tensor.register_hook(hook)  # type: ignore[no-untyped-call]

        return leave

    def _reaching(self, name: str) -> Callable[[torch.Tensor], None]:
        """Return what notes that the backward pass has come to a module."""

        def reach(gradient: torch.Tensor) -> None:
            self._backward_module = name

        return reach


def _named(name: str) -> str:
    return name or WHOLE


def _is_within(module: str, outer: str | None) -> bool:
    return outer in (None, WHOLE) or module == outer or module.startswith(f"{outer}.")


def _worst(value: Any) -> int:
    """Return 2 if a nested value holds a NaN, 1 if it holds an infinity, else 0."""
    worst = _FINITE
    for tensor in _tensors(value):
        if not bool(torch.isfinite(tensor).all()):
            worst = max(worst, _NAN if bool(torch.isnan(tensor).any()) else _INFINITE)
    for number in _numbers(value):
        with contextlib.suppress(OverflowError):
            if number != number:
                return _NAN
            if number in (float("inf"), float("-inf")):
                worst = max(worst, _INFINITE)
    return worst


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    for leaf in _leaves(value):
        if isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex()):
            yield leaf


def _numbers(value: Any) -> Iterator[float]:
    return (leaf for leaf in _leaves(value) if isinstance(leaf, float))


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for entry in value.values():
            yield from _leaves(entry)
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _leaves(entry)
    else:
        yield value
