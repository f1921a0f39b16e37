"""Requests about the batches of sinks to a transaction coordinator, and its replies.  Immutable.

A request fails as a whole by an error that is raised, with two exceptions: a join that finds another driver's
batch open aborts it and is to be sent again (`transactions.requests.BEING_ABORTED`), and an end that names a
wrong winner aborts the batch and says so (`WinnersRefused`).
"""

from typing import Final, NamedTuple

from distributedlog.model.ids import TopicPartition
from distributedlog.statemachine.pending import Producer
from distributedlog.transactions.sinks.query import SinkQuery


class SinkJoin(NamedTuple):
    """An attempt of a task is about to write its first row."""

    query_id: str
    token: int
    batch_id: int
    attempt_id: str
    timeout_ms: int
    new_producer_id: int | None = None


class SinkHeartbeat(NamedTuple):
    """An attempt still writes, or waits for rows: the timeout begins anew."""

    query_id: str
    token: int
    batch_id: int


class SinkEnd(NamedTuple):
    """The driver ends a batch: these attempts won."""

    query_id: str
    token: int
    batch_id: int
    winners: frozenset[Producer]


class SinkAbort(NamedTuple):
    query_id: str
    token: int


class SinkDescribe(NamedTuple):
    query_id: str


SinkRequest = SinkJoin | SinkHeartbeat | SinkEnd | SinkAbort | SinkDescribe
SINK_READS: Final = (SinkHeartbeat, SinkDescribe)
"""They write nothing, whatever they find."""


class SinkJoined(NamedTuple):
    producer: Producer


class SinkSkipped(NamedTuple):
    """The batch is committed: the attempt writes nothing."""


class SinkDecided(NamedTuple):
    """The batch is committed, and its markers are being written: `SinkCompleted` follows."""


class SinkEnded(NamedTuple):
    """The batch is committed, and all of it can be seen."""


class WinnersRefused(NamedTuple):
    """A winner holds no lease of the batch: all of it is aborted."""

    reason: str


class DescribedAttempt(NamedTuple):
    producer: Producer
    attempt_id: str
    partitions: tuple[TopicPartition, ...]


class SinkDescription(NamedTuple):
    query: SinkQuery
    attempts: tuple[DescribedAttempt, ...]
    pooled_count: int
    """Producer ids that nobody holds."""


SinkReply = SinkJoined | SinkSkipped | SinkDecided | SinkEnded | WinnersRefused | SinkDescription


class SinkCompleted(NamedTuple):
    """The last marker of a query's batch is written: who waits for its end is answered."""

    query_id: str
