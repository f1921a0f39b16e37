"""Asking until the answer is final, and copies of what was asked that come late.

Whoever asks does one thing at a time, and again until it knows what became of it or has no more patience.
Now and then a copy of a request is sent once more much later, over other connections, as if it had been on
its way all the time; nothing may come of it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from tests.simulation.brokers.transactions.flows import Meaning, meaning_of
from tests.simulation.brokers.transactions.wire import TransactionsWire

if TYPE_CHECKING:
    from tests.simulation.brokers.transactions.clients import TransactionClients

PATIENCE_US: Final = 3_000_000
LATE_SHARE: Final = 0.12


class FencedError(Exception):
    """Another producer has the transactional id, or the coordinator has taken the transaction away."""


class AbortableError(Exception):
    """The transaction cannot be committed."""


class Asking:
    def __init__(self, clients: "TransactionClients", wire: TransactionsWire) -> None:
        self._clients = clients
        self.wire = wire

    # --- trying again --------------------------------------------------------------------------

    async def _until_known(
        self, ask: Callable[[], Awaitable[int]], patience_us: int = PATIENCE_US
    ) -> tuple[Meaning, int | None, bool]:
        """Asks until the answer is final; returns it, its code, and whether an attempt before is in doubt."""
        began_us, is_in_doubt = self._clients.cluster.now_us, False
        while True:
            code: int | None
            try:
                code = await ask()
            except DlogError:
                code, is_in_doubt = None, True
            meaning = meaning_of(code)
            if meaning is not Meaning.AGAIN:
                return meaning, code, is_in_doubt
            if code in (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT):
                is_in_doubt = True
            if self._clients.cluster.now_us - began_us > patience_us or self._clients.is_over_for_good:
                return meaning, code, is_in_doubt
            self.wire.forget_coordinators()
            await self.wire.refresh()
            await self._clients.pause(80)

    async def _must(self, ask: Callable[[], Awaitable[int]]) -> None:
        meaning, code, _ = await self._until_known(ask)
        if meaning is Meaning.FENCED:
            raise FencedError(str(code))
        if meaning is not Meaning.DONE:
            raise AbortableError(str(code))

    # --- late messages -------------------------------------------------------------------------

    def _send_again_later(self, ask: Callable[[TransactionsWire], Awaitable[object]]) -> bool:
        """Draws whether a copy is sent later, and returns that."""
        chance = self.wire.chance
        if chance.random() >= LATE_SHARE:
            return False
        delay_s = chance.choice((chance.uniform(0.05, 0.6), chance.uniform(0.5, 7.0)))
        self._clients.loop.spawn(self._late(ask, delay_s))
        return True

    async def _late(self, ask: Callable[[TransactionsWire], Awaitable[object]], delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        if self._clients.is_over_for_good:  # what it may open would be aborted after the end, by its timeout
            return
        wire = self._clients.late
        await wire.refresh()
        wire.forget_coordinators()
        try:
            told = await ask(wire)
        except DlogError:
            return
        self._say("late message of", told)

    def _say(self, what: str, details: object = "") -> None:
        cluster = self._clients.cluster
        cluster.trace.add(cluster.now_us, what, self.wire.name, details)
