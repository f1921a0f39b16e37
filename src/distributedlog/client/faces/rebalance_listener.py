"""What a program wants to be told of rebalances: the callbacks that it subscribes with."""

import inspect
from collections.abc import Callable, Collection
from typing import NamedTuple

from distributedlog.model.ids import TopicPartition

OnPartitions = Callable[[Collection[TopicPartition]], object]
"""Called with partitions; if it gives an awaitable, that is awaited."""


class RebalanceListener(NamedTuple):
    on_assigned: OnPartitions | None = None
    on_revoked: OnPartitions | None = None
    on_lost: OnPartitions | None = None
    """Without it those that are lost are told as revoked."""

    async def tell_assigned(self, partitions: Collection[TopicPartition]) -> None:
        await _call(self.on_assigned, partitions)

    async def tell_revoked(self, partitions: Collection[TopicPartition]) -> None:
        await _call(self.on_revoked, partitions)

    async def tell_lost(self, partitions: Collection[TopicPartition]) -> None:
        await _call(self.on_lost or self.on_revoked, partitions)


async def _call(callback: OnPartitions | None, partitions: Collection[TopicPartition]) -> None:
    if callback is not None:
        outcome = callback(partitions)
        if inspect.isawaitable(outcome):
            await outcome
