"""A batch behind one that was refused is refused, too, for the same reason.

An idempotent client has up to five batches of a partition under way.  If the first is refused for a while
(too few replicas in sync, no leader yet) and that is over when the second comes, then the second either has
a gap before it, or, of a producer that the log does not know, is taken for the first.

    the second, as a log by itself sees it    what comes of it
    OUT_OF_ORDER_SEQUENCE_NUMBER              librdkafka begins another producer epoch, and sends all that is
                                              under way again in that: what was written in any partition, and
                                              not acknowledged, is there twice
    appended                                  the first is out of order for good

So a connection remembers the first batch that was refused of each producer and partition.  What comes behind
it on the same connection hears the same, as long as the log still lacks that batch.  A client that sends it
again goes on; one that never does has skipped a record, and would have been refused for that.

What comes before the refused batch is for the log to judge.  It was written, and may not have been
acknowledged (NOT_ENOUGH_REPLICAS_AFTER_APPEND, or NOT_LEADER_OR_FOLLOWER of a leader that was isolated for a
while).  Its client sends it again first, on the same connection, and the refused one only behind it.
"""

from typing import Final

from distributedlog.broker.net.context import ConnectionSession, RefusedBatch
from distributedlog.model.buffers import Buffer
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.records.batch import read_header
from distributedlog.records.layout import is_behind
from distributedlog.replication.partition import Partition

REFUSED_MAX: Final = 1_000
"""How many are remembered for a connection; the oldest is forgotten."""
_PASSING: Final = frozenset(
    {ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR}
)


def keep_order(session: ConnectionSession | None, partition: Partition, batch: Buffer) -> None:
    """Raises the error with which an earlier batch of this producer was refused, if that is still to come."""
    if session is None or not session.refused_batches:
        return
    header = read_header(batch, 0)
    key = (*partition.key, header.producer_id)
    refused = session.refused_batches.get(key)
    if refused is None:
        return
    if refused.producer_epoch != header.producer_epoch or not _is_lacking(
        partition, header.producer_id, refused
    ):
        del session.refused_batches[key]
    elif is_behind(header.base_sequence, refused.base_sequence):
        raise refused.error(refused.message)


def note_refused(
    session: ConnectionSession | None, partition: Partition, batch: Buffer, error: DlogError
) -> None:
    """Remembers the batch if it is the first of its producer that is refused, for a reason that passes."""
    if session is None or error.code not in _PASSING:
        return
    header = read_header(batch, 0)
    key = (*partition.key, header.producer_id)
    if header.producer_id < 0 or key in session.refused_batches:
        return
    refused = RefusedBatch(header.producer_epoch, header.base_sequence, type(error), str(error))
    if _is_lacking(partition, header.producer_id, refused):
        if len(session.refused_batches) >= REFUSED_MAX:
            del session.refused_batches[next(iter(session.refused_batches))]
        session.refused_batches[key] = refused


def _is_lacking(partition: Partition, producer_id: int, refused: RefusedBatch) -> bool:
    """Returns whether the batch would be the next one of its producer.  Of one that the log does not know, or
    in a new epoch, it is."""
    state = partition.log.producers.get(producer_id)
    if state is None or state.epoch < refused.producer_epoch:
        return True
    return state.epoch == refused.producer_epoch and state.next_sequence == refused.base_sequence
