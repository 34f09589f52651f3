"""The plainest plan of an epoch: all items in a drawn order, cut into batches."""

from __future__ import annotations

from dataclasses import dataclass

from engine.contract import Draws
from engine.seeding import epoch_order


@dataclass(frozen=True)
class ShuffledPlan:
    """Every item once an epoch, in an order drawn from seed and epoch.

    Args:
        num_items: of the training split.
        batch_size: items per batch over all ranks.
        drop_last: whether an incomplete last batch is left out.
    """

    num_items: int
    batch_size: int
    drop_last: bool

    def num_batches(self) -> int:
        """Return how many batches every epoch has."""
        whole, rest = divmod(self.num_items, self.batch_size)
        return whole if self.drop_last or not rest else whole + 1

    def epoch_batches(self, draws: Draws, epoch: int) -> list[list[int]]:
        """Return the epoch's batches over all ranks, as item indexes."""
        order = epoch_order(draws, epoch=epoch, size=self.num_items).tolist()
        return [
            order[start : start + self.batch_size]
            for start in range(0, self.num_batches() * self.batch_size, self.batch_size)
        ]
