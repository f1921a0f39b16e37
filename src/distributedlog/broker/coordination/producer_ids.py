"""Producer ids for idempotent producers, out of blocks that the controller gives out.

    block ──► next id, next id, … ──► a tenth is left: the next block is requested ──► it follows

An id is given once: blocks are never given twice by the controller, and ids not twice by us.  A crash loses
the rest of a block; there are enough.  At most one block is requested at a time, and whoever finds none left
waits for it.  If the controller cannot give one, those that wait get its error and may try again.

A producer without a transactional id always gets a new id, and epoch 0: whatever id it had, nobody else can
have sequences to defend under the new one.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from distributedlog.controller.requests import ProducerIdBlock
from distributedlog.model.config import INT64_MAX
from distributedlog.model.errors import ConsensusError

PREFETCH_PART: Final = 10
"""The next block is requested when only this part of the present one is left: one tenth."""

_logger = logging.getLogger("distributedlog.broker")


class ProducerIdentity(NamedTuple):
    producer_id: int
    epoch: int


class ProducerIds:
    """Gives out producer ids, on one asyncio loop.  `fetch_block` gets a block from the controller."""

    def __init__(self, fetch_block: Callable[[], Awaitable[ProducerIdBlock]]) -> None:
        self._fetch_block = fetch_block
        self._next = 0
        self._end = 0
        self._following: ProducerIdBlock | None = None
        self._prefetch_at = 0
        self._fetching: asyncio.Task[None] | None = None

    async def new_producer(self) -> ProducerIdentity:
        """An identity that nobody has had.  Raises what the controller's refusal raised."""
        while (producer_id := self._take()) is None:
            # Whoever gives up waiting must not end the asking for others.
            await asyncio.shield(self._begin_fetching())
        return ProducerIdentity(producer_id, 0)

    async def new_token(self) -> int:
        """Returns a number higher than any that a broker of the cluster has returned before this was called:
        the first of a block of its own, for the controller gives out blocks in order.  Raises as above."""
        return (await self._fetch_block()).first

    def _take(self) -> int | None:
        if self._next == self._end and self._following is not None:
            block, self._following = self._following, None
            self._next, self._end = block.first, block.first + block.count
            self._prefetch_at = self._end - max(1, block.count // PREFETCH_PART)
        if self._next == self._end:
            return None
        producer_id = self._next
        self._next += 1
        if self._next >= self._prefetch_at and self._following is None:
            self._begin_fetching()
        return producer_id

    def _begin_fetching(self) -> "asyncio.Task[None]":
        if self._fetching is None:
            self._fetching = asyncio.get_running_loop().create_task(self._fetch())
            self._fetching.add_done_callback(self._fetched)
        return self._fetching

    async def _fetch(self) -> None:
        block = await self._fetch_block()
        if block.count < 1 or not 0 <= block.first <= INT64_MAX - block.count or block.first < self._end:
            raise ConsensusError(f"{block} is no block of producer ids that may follow {self._end - 1}")
        self._following = block

    def _fetched(self, task: "asyncio.Task[None]") -> None:
        self._fetching = None
        if not task.cancelled() and (error := task.exception()) is not None:
            _logger.warning("no producer ids from the controller: %s", error)

    def close(self) -> None:
        """Whoever waits is cancelled."""
        if self._fetching is not None:
            self._fetching.cancel()
