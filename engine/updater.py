"""One optimizer update: the *how* of training. *When* is the business of engine/loop.py."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from engine.config import TrainConfig, ZeroFewGuardConfig
from engine.contract import Batch, Task
from engine.devices import autocast_type, to_device
from engine.distributed import max_over_ranks, rank, world_size
from engine.guard import BatchTrace, UpdateTrace
from engine.optimizers import set_lr, start_momentum
from engine.seeding import seed_batch
from engine.state import TrainingState


class Updater:
    """Makes updates of a network from batches.

    Args:
        task: says what the losses are.
        config: precision, accumulation and clipping.
        state: what an update changes.
        device: where it happens.
    """

    def __init__(
        self, task: Task, config: TrainConfig, *, state: TrainingState, device: torch.device
    ) -> None:
        self._task = task
        self._config = config
        self._state = state
        self._device = device
        self._network: nn.Module = state.network
        self._parameters = [p for group in state.optimizer.param_groups for p in group["params"]]

    def start_epoch(self, *, trains_other_parts: bool) -> None:
        """Make ready for an epoch, and for the parts that train in it if these are others."""
        start_momentum(self._state.optimizer)
        is_wrapped = self._network is not self._state.network
        if world_size() > 1 and (trains_other_parts or not is_wrapped):
            devices = [self._device.index] if self._device.type == "cuda" else None
            self._network = DistributedDataParallel(self._state.network, device_ids=devices)

    def step(self, batches: Sequence[Batch], *, lr_factor: float) -> UpdateTrace:
        """Make one update from the batches that it accumulates.

        The gradient is that of the sum of the batches' losses over `accumulate`, also when an
        epoch's last update has fewer batches.

        Args:
            batches: on the host.
            lr_factor: times each group's own learning rate.

        Returns:
            What was measured, still on the device. An update whose loss or gradient is not finite
            has left weights, moments and buffers (batch statistics) as they were.
        """
        state, optimizer, scaler = self._state, self._state.optimizer, self._state.scaler
        set_lr(optimizer, lr_factor)
        buffers = self._kept_buffers()
        traces = [
            self._backward(batch, state.iteration + index, is_last=index == len(batches) - 1)
            for index, batch in enumerate(batches)
        ]
        scaler.unscale_(optimizer)  # before clipping: limits are meant for true gradients
        mended = self._mend()
        norm = self._clip()
        is_left_out = max_over_ranks(self._is_bad(traces, norm))
        self._apply(is_left_out)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        self._put_back(buffers, is_left_out)
        if state.ema is not None:
            state.ema.update(state.update + 1)
        return UpdateTrace(
            epoch=state.epoch,
            update=state.update,
            batches=traces,
            norm=norm,
            is_left_out=is_left_out,
            mended=mended * (1 - is_left_out),
            lr_factor=lr_factor,
        )

    def _backward(self, batch: Batch, iteration: int, *, is_last: bool) -> BatchTrace:
        """Add a batch's gradient to those of the update."""
        state, config = self._state, self._config
        seed_batch(state.draws, epoch=state.epoch, iteration=iteration, rank=rank())
        given = batch
        batch = to_device(batch, self._device, channels_last=config.channels_last)
        batch = self._task.prepare_batch(batch, update=state.update, draws=state.draws)
        with self._sharing_gradients(is_last), self._autocast():
            losses = self._task.losses(self._network, batch)
            terms = dict(losses.terms)
            total = torch.stack([term.float() for term in terms.values()]).sum()
            loss = total / config.accumulate
            if state.scaler.is_enabled():
                # the scaler sees gradients only; this makes it see a loss that is not finite
                loss = loss * torch.where(torch.isfinite(total), 1.0, torch.nan)
        with self._sharing_gradients(is_last):
            state.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        return BatchTrace(
            iteration=iteration,
            ids=batch.ids,
            names=tuple(terms),
            values=torch.stack([*_plain(terms.values()), total.detach()]),
            batch=given,
            measures=dict(zip(losses.measures, _plain(losses.measures.values()), strict=True)),
        )

    def _clip(self) -> torch.Tensor:
        """Limit the gradient as configured; return its norm before that, 0-d float32."""
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        limited_norm = norm
        if self._config.clip_value is not None:
            nn.utils.clip_grad_value_(self._parameters, self._config.clip_value)
            limited_norm = torch.nn.utils.get_total_norm(gradients)
        if self._config.clip_norm is not None:
            nn.utils.clip_grads_with_norm_(self._parameters, self._config.clip_norm, limited_norm)
        return norm.float()

    def _mend(self) -> torch.Tensor:
        """Set bad entries of few gradient tensors to 0, where so configured.

        Returns:
            How many tensors were mended, 0-d float32 on the device.
        """
        guard = self._config.guard
        # with fp16 the scaler has noted the bad gradient already, and leaves the update out
        if not isinstance(guard, ZeroFewGuardConfig) or self._state.scaler.is_enabled():
            return torch.zeros((), device=self._device)
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        are_bad = torch.stack([~torch.isfinite(gradient).all() for gradient in gradients])
        are_mended = are_bad & (are_bad.sum() <= guard.tensors)
        for gradient, is_mended in zip(gradients, are_mended, strict=True):
            is_zeroed = is_mended & ~torch.isfinite(gradient)
            gradient.copy_(torch.where(is_zeroed, torch.zeros_like(gradient), gradient))
        return are_mended.sum().float()

    def _is_bad(self, traces: Sequence[BatchTrace], norm: torch.Tensor) -> torch.Tensor:
        """Return 0-d float32 on the device: 1 if the update must not be made."""
        losses = torch.cat([trace.values for trace in traces])
        is_bad = ~torch.isfinite(torch.cat([losses, norm.reshape(1)])).all()
        limit = self._config.guard.largest_loss
        if limit is not None:
            is_bad = is_bad | (torch.stack([trace.values[-1] for trace in traces]) > limit).any()
        return is_bad.float()

    def _kept_buffers(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return the network's buffers with copies of them, where training may go on without them.

        A pass that went wrong has spoilt the batch statistics.
        """
        if self._config.guard.policy == "stop":
            return []
        return [(buffer, buffer.clone()) for buffer in self._state.network.buffers()]

    def _put_back(
        self, buffers: Sequence[tuple[torch.Tensor, torch.Tensor]], is_left_out: torch.Tensor
    ) -> None:
        for buffer, copy in buffers:
            buffer.copy_(torch.where(is_left_out > 0, copy, buffer))

    def _apply(self, is_left_out: torch.Tensor) -> None:
        """Let the optimizer step, unless the flag (0-d float32 on the device) is 1."""
        optimizer, scaler = self._state.optimizer, self._state.scaler
        if optimizer.defaults["fused"]:
            # the attribute by which GradScaler masks a fused step; it is read by the kernel
            optimizer.found_inf = is_left_out  # type: ignore[attr-defined]
            scaler.step(optimizer)
        elif not is_left_out.item():
            scaler.step(optimizer)

    def _autocast(self) -> AbstractContextManager[None]:
        precision = self._config.precision
        return torch.autocast(
            self._device.type, dtype=autocast_type(precision), enabled=precision != "fp32"
        )

    def _sharing_gradients(self, is_last: bool) -> AbstractContextManager[None]:
        """Ranks share the gradient with an update's last batch only."""
        if isinstance(self._network, DistributedDataParallel) and not is_last:
            return self._network.no_sync()
        return contextlib.nullcontext()


def _plain(values: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    return [value.detach().float() for value in values]
