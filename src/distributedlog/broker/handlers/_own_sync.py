"""Waiting for the leader's own sync before an end of a log is told.

With acks=1 a producer is answered before its records are synced, and the high watermark follows the sync: for
a moment the end that consumers are told of is before what was acknowledged.  Where the leader alone is the
ISR nothing but its sync is missing.  So whoever asks for an end makes the sync urgent and waits for it,
whether it runs, rests or has not begun; nobody is told of records that may vanish.  If it takes longer than
SYNC_WAIT_MS_MAX, or fails, the answer is what is known then.
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from distributedlog.model.config import SECOND_MS
from distributedlog.model.error_codes import ErrorCode
from distributedlog.replication.partition import Partition

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

SYNC_WAIT_MS_MAX: Final = 5 * SECOND_MS


def list_unsynced(services: "Services", named: Iterable[tuple[str, int]]) -> list[Partition]:
    """Lists those of the partitions that lack nothing but this leader's sync."""
    found = (services.partitions.get(topic, index) for topic, index in dict.fromkeys(named))
    return [each for each in found if each is not None and each.is_only_sync_missing]


async def wait_for_sync(services: "Services", unsynced: list[Partition]) -> None:
    """Returns once all that they hold now is committed, or it has taken too long."""
    synced: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(_: list[ErrorCode]) -> None:
        if not synced.done():  # else nobody waits any more
            synced.set_result(None)

    awaited = [(each, each.log_end_offset) for each in unsynced]
    operation = services.purgatory.add_produce(awaited, SYNC_WAIT_MS_MAX, done)
    for each in unsynced:
        each.request_sync()
    try:
        await synced
    finally:
        if operation is not None:
            services.purgatory.cancel(operation)
