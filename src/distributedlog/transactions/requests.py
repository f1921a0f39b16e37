"""Requests to a transaction coordinator, its replies and its effects.  Immutable.

A request fails as a whole by an error that is raised.  One that needs a new producer id and brings none gets
`NEEDS_PRODUCER_ID`: nothing was done, and whoever asked fetches an id and asks again with it.
"""

from enum import Enum
from typing import Final, NamedTuple

from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import TopicPartition
from distributedlog.statemachine.pending import Producer
from distributedlog.transactions.sinks.requests import SINK_READS, SinkCompleted, SinkReply, SinkRequest
from distributedlog.transactions.transaction import VERSION_CLASSIC, Transaction, TransactionState


class InitRequest(NamedTuple):
    transactional_id: str
    timeout_ms: int
    expected: Producer | None = None
    """The producer that asks for its own next epoch (KIP-360); None for one that starts."""
    new_producer_id: int | None = None


class AddRequest(NamedTuple):
    transactional_id: str
    producer: Producer
    partitions: frozenset[TopicPartition]
    version: int = VERSION_CLASSIC


class VerifyRequest(NamedTuple):
    """Asks whether partitions are part of the producer's open transaction."""

    transactional_id: str
    producer: Producer
    partitions: frozenset[TopicPartition]


class EndRequest(NamedTuple):
    transactional_id: str
    producer: Producer
    is_commit: bool
    version: int = VERSION_CLASSIC
    new_producer_id: int | None = None


class MarkersWrittenRequest(NamedTuple):
    """Every partition has its marker: what became of `SendMarkers`."""

    transactional_id: str
    producer: Producer


class DescribeRequest(NamedTuple):
    transactional_id: str


class ListRequest(NamedTuple):
    """Lists transactions; what is empty or negative does not filter."""

    states: frozenset[TransactionState] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    open_ms_min: int = -1


Request = (
    InitRequest
    | AddRequest
    | VerifyRequest
    | EndRequest
    | MarkersWrittenRequest
    | DescribeRequest
    | ListRequest
    | SinkRequest
)
READS: Final = (VerifyRequest, DescribeRequest, ListRequest, *SINK_READS)
"""They write nothing, whatever they find."""


class NeedsProducerId(NamedTuple):
    """The request has to bring a new producer id."""


NEEDS_PRODUCER_ID: Final = NeedsProducerId()


class BeingAborted(NamedTuple):
    """The transaction before is being aborted: the request is to be sent again (CONCURRENT_TRANSACTIONS)."""


BEING_ABORTED: Final = BeingAborted()


class ProducerReply(NamedTuple):
    """The producer id and epoch to go on with."""

    producer: Producer


class VerifyReply(NamedTuple):
    errors: tuple[tuple[TopicPartition, ErrorCode], ...]


class DescribeReply(NamedTuple):
    transaction: Transaction


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: int
    state: TransactionState


class ListReply(NamedTuple):
    transactions: tuple[ListedTransaction, ...]


Reply = (
    ProducerReply
    | VerifyReply
    | DescribeReply
    | ListReply
    | NeedsProducerId
    | BeingAborted
    | SinkReply
    | None
)


class SendMarkers(NamedTuple):
    """A transaction is decided: its markers are to be written, for as long as it takes."""

    transactional_id: str
    producer: Producer
    is_commit: bool
    partitions: frozenset[TopicPartition]
    coordinator_epoch: int
    version: int


Effect = SendMarkers | SinkCompleted


class AbortReason(Enum):
    CLIENT = "client"
    TIMEOUT = "timeout"
    FENCED = "fenced"
    WRONG_WINNER = "wrong_winner"
    """A sink's driver named a winner that holds no lease of the batch."""
