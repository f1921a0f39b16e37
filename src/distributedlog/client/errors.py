"""What a broker's error codes mean to a client.  Pure.

| the response is               | the client                                                      |
|-----------------------------|-----------------------------------------------------------------|
| in `STALE_VIEW`             | asks for the metadata anew, pauses, and tries again             |
| in `RETRIABLE` besides      | pauses and tries again                                          |
| another                     | gives up: asking again would be answered the same               |

The sets are Kafka's: a code is in them where Kafka's own client would try again.  `error_from` makes the
exception for a response: the class this package itself raises for the code where there is one, so that
`except UnknownTopicError` works on both sides of the wire.
"""

from typing import Final

from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import (
    BatchListTooLargeError,
    BrokerError,
    BrokerUnreachableError,
    ConcurrentTransactionsError,
    ConfigError,
    ConnectionLostError,
    CoordinatorFencedError,
    CorruptBatchError,
    DlogError,
    FencedInstanceError,
    GroupFullError,
    GroupNotFoundError,
    InvalidAssignmentError,
    InvalidNameError,
    InvalidPartitionsError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidRecordError,
    InvalidRegularExpressionError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTimestampError,
    InvalidTransactionStateError,
    InvalidTransactionTimeoutError,
    NonEmptyGroupError,
    NoReassignmentError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    PolicyViolationError,
    ProducerFencedError,
    RecordTooLargeError,
    RequestTimedOutError,
    TopicExistsError,
    TransactionAbortableError,
    TransactionalIdNotFoundError,
    UnknownTopicError,
    UnknownTopicIdError,
    UnreleasedInstanceError,
    UnsupportedAssignorError,
    UnsupportedCompressionError,
    UnsupportedFormatError,
    UnsupportedVersionError,
)

STALE_VIEW: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)

RETRIABLE: Final = STALE_VIEW | {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ErrorCode.REBOOTSTRAP_REQUIRED,
}

_CLASSES: Final[tuple[type[DlogError], ...]] = (
    BatchListTooLargeError,
    ConcurrentTransactionsError,
    ConfigError,
    CoordinatorFencedError,
    CorruptBatchError,
    FencedInstanceError,
    GroupFullError,
    GroupNotFoundError,
    InvalidAssignmentError,
    NoReassignmentError,
    InvalidNameError,
    InvalidPartitionsError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidRecordError,
    InvalidRegularExpressionError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTimestampError,
    InvalidTransactionStateError,
    InvalidTransactionTimeoutError,
    NonEmptyGroupError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    PolicyViolationError,
    ProducerFencedError,
    RecordTooLargeError,
    RequestTimedOutError,
    TopicExistsError,
    TransactionAbortableError,
    TransactionalIdNotFoundError,
    UnknownTopicError,
    UnknownTopicIdError,
    UnreleasedInstanceError,
    UnsupportedAssignorError,
    UnsupportedCompressionError,
    UnsupportedFormatError,
    UnsupportedVersionError,
)
_CLASS_OF: Final = {each.code: each for each in _CLASSES}
_CODES: Final = {code.value: code for code in ErrorCode}

UNKNOWN_OUTCOME: Final = (ConnectionLostError, RequestTimedOutError)
"""The errors after which nobody knows whether what was asked was done."""


def as_error_code(number: int) -> ErrorCode:
    """A code that is newer than this client is one of which nothing is known."""
    return _CODES.get(number, ErrorCode.UNKNOWN_SERVER_ERROR)


_MEANINGS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "it is not there",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "transaction_timeout_ms is above what the brokers allow, their"
    " transaction.max.timeout.ms",
    ErrorCode.PRODUCER_FENCED: "another producer has begun with it since",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "it is not there",
}
"""What codes say that come without a text and tell the author of a program too little by themselves."""


def error_from(number: int, about: str, message: str | None = None) -> DlogError:
    """The exception for a response.  `about` names what was asked for; `message` is the broker's own."""
    code = as_error_code(number)
    name = code.name if code == number else f"error {number}"
    message = message or _MEANINGS.get(code)
    text = f"{about}: {message} ({name})" if message else f"{about}: {name}"
    known = _CLASS_OF.get(code)
    return BrokerError(text, code) if known is None else known(text)


def check_response(number: int, about: str, message: str | None = None) -> None:
    if number != ErrorCode.NONE:
        raise error_from(number, about, message)


def code_of(error: DlogError) -> ErrorCode:
    return error.answered if isinstance(error, BrokerError) else error.code


def is_retriable(error: DlogError) -> bool:
    return code_of(error) in RETRIABLE


def is_stale_view(error: DlogError) -> bool:
    return isinstance(error, BrokerUnreachableError) or code_of(error) in STALE_VIEW
