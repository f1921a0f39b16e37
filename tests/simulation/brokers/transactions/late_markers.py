"""A sender of markers whose requests are delayed on their way, and arrive again later.

None is delayed while it is looked whether all clients get on (`checkers.stuck_producers`).

Only those of transactions that raise the epoch arrive again: in the classic flow a marker says nothing that
would tell the transaction it belongs to from the next one of the same epoch, here as in Kafka.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final

from distributedlog.broker.coordination.marker_sender import MarkerSender
from distributedlog.model.errors import DlogError
from distributedlog.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from distributedlog.transactions.transaction import VERSION_EPOCH_PER_TRANSACTION

SLOW_SHARE: Final = 0.1
AGAIN_SHARE: Final = 0.2


class LateMarkerSender(MarkerSender):
    """Its requests to other brokers and to its own are drawn to be slow, or to arrive once more."""

    def __init__(
        self, chance: random.Random, is_awaiting: Callable[[], bool], *arguments: Any, **options: Any
    ) -> None:
        self._chance = chance
        self._is_awaiting = is_awaiting
        options["write_here"] = self._disturb(options["write_here"])
        super().__init__(*arguments, **options)

    def _disturb(self, write: Any) -> Any:
        async def disturbed(*arguments: Any) -> WriteTxnMarkersResponse:
            if self._chance.random() < SLOW_SHARE:
                delay_s = self._chance.uniform(0.05, 3.0)
                await asyncio.sleep(0 if self._is_awaiting() else delay_s)
            if self._chance.random() < AGAIN_SHARE and _has_epochs(arguments[-1]):
                asyncio.get_running_loop().create_task(self._again(write, arguments))
            answered: WriteTxnMarkersResponse = await write(*arguments)
            return answered

        return disturbed

    async def _again(self, write: Any, arguments: tuple[Any, ...]) -> None:
        await asyncio.sleep(self._chance.uniform(0.1, 5.0))
        try:
            await write(*arguments)
        except (DlogError, OSError):
            return

    async def _call(
        self, leader_id: int, leader: Any, request: WriteTxnMarkersRequest
    ) -> WriteTxnMarkersResponse:
        answered: WriteTxnMarkersResponse = await self._disturb(super()._call)(leader_id, leader, request)
        return answered


def _has_epochs(request: WriteTxnMarkersRequest) -> bool:
    return all(each.transaction_version >= VERSION_EPOCH_PER_TRANSACTION for each in request.markers)
