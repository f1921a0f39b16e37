"""The two flows of transactional clients, and what the error codes mean to them.

flow      adds partitions           ends                          late messages are refused by
v2        with the first record     each end raises the epoch     the epoch
classic   by AddPartitionsToTxn     the epoch stays               sequences; an EndTxn is not
"""

from enum import Enum
from typing import Final, NamedTuple

from distributedlog.model.error_codes import ErrorCode


class Flow(NamedTuple):
    name: str
    produce_version: int
    end_version: int
    offsets_version: int
    adds_implicitly: bool
    """Whether partitions are added by what is sent to them, and every end raises the epoch."""


V2: Final = Flow("v2", 12, 5, 5, adds_implicitly=True)
CLASSIC: Final = Flow("classic", 11, 4, 4, adds_implicitly=False)


class Meaning(Enum):
    DONE = "it was done"
    AGAIN = "it may be tried again, and may have been done"
    FENCED = "the producer is fenced"
    REFUSED = "it was refused: the transaction has to be aborted"


_DONE: Final = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
_FENCED: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
_AGAIN: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)


def meaning_of(code: int | None) -> Meaning:
    """Returns what an error code means; None: there was no response."""
    if code is None or code in _AGAIN:
        return Meaning.AGAIN
    if code in _DONE:
        return Meaning.DONE
    return Meaning.FENCED if code in _FENCED else Meaning.REFUSED
