"""What drivers and attempts ask a sink's coordinator."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.messages.sink_transaction import (
    SINK_ID_PREFIX,
    SinkOperation,
    SinkTransactionRequest,
    SinkTransactionResponse,
)
from tests.simulation.brokers.transactions.asking import PATIENCE_US, Asking
from tests.simulation.brokers.transactions.flows import Meaning
from tests.simulation.brokers.transactions.wire import TRANSACTIONAL_ID, TransactionsWire

if TYPE_CHECKING:
    from tests.simulation.brokers.sinks.clients import SinkClients

TIMEOUT_MS: Final = 2_000
"""How long a batch stays open without a sign of life."""


class SinkAsking(Asking):
    _clients: "SinkClients"

    def __init__(self, clients: "SinkClients", wire: TransactionsWire, query_id: str) -> None:
        super().__init__(clients, wire)
        self.query_id = query_id

    async def ask_sink(
        self, request: SinkTransactionRequest, wire: TransactionsWire | None = None
    ) -> SinkTransactionResponse:
        asked = wire or self.wire
        key = SINK_ID_PREFIX + self.query_id
        return await asked.ask_coordinator(TRANSACTIONAL_ID, key, request, SinkTransactionResponse)

    async def _late(self, ask: Callable[[TransactionsWire], Awaitable[object]], delay_s: float) -> None:
        """Not at the very end: a late join may open a batch that nobody ends, and that has to time out."""
        await asyncio.sleep(delay_s)
        if not self._clients.is_over:
            await super()._late(ask, 0)

    async def ask_until_known(
        self, request: SinkTransactionRequest, patience_us: int = PATIENCE_US
    ) -> tuple[Meaning, SinkTransactionResponse | None, bool]:
        """Returns what it means, the response, and whether an attempt before is in doubt."""
        answered: SinkTransactionResponse | None = None

        async def ask() -> int:
            nonlocal answered
            if request.operation == SinkOperation.TOKEN:
                answered = await self.wire.ask_any(request, SinkTransactionResponse)
            else:
                answered = await self.ask_sink(request)
            return answered.error_code

        meaning, code, is_in_doubt = await self._until_known(ask, patience_us)
        told = None if answered is None or code is None else answered.error_message
        named = None if code is None else ErrorCode(code).name
        self._say(f"{SinkOperation(request.operation).name} {request.batch_id}", (meaning.name, named, told))
        return meaning, answered if meaning is Meaning.DONE else None, is_in_doubt

    def make(self, operation: SinkOperation, token: int = -1, batch_id: int = -1) -> SinkTransactionRequest:
        return SinkTransactionRequest(
            operation=operation,
            query_id=self.query_id,
            token=token,
            batch_id=batch_id,
            timeout_ms=TIMEOUT_MS if operation == SinkOperation.JOIN else 0,
            winners=[],
        )
