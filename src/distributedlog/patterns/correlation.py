"""How a request says where its reply goes, and a reply whose it is.  Pure.

The headers are Spring for Apache Kafka's, so that either side may be a program of its:

| header                 | value                                                            |
|------------------------|------------------------------------------------------------------|
| `kafka_correlationId`  | bytes that are the request's own; the reply has them, too        |
| `kafka_replyTopic`     | in a request: where the reply goes                               |
| `kafka_replyPartition` | in a request, if it has one: four bytes, big-endian              |

A reply that tells of an error has the headers `__dlog.errors.exception` and `.message` as well.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from distributedlog.model.errors import DlogError
from distributedlog.patterns.retries import EXCEPTION, MESSAGE, MESSAGE_CHARACTERS_MAX, TOPIC_NAME, class_name
from distributedlog.records.record import Header

CORRELATION_ID: Final = "kafka_correlationId"
REPLY_TOPIC: Final = "kafka_replyTopic"
REPLY_PARTITION: Final = "kafka_replyPartition"
CORRELATION_BYTES_MAX: Final = 256
PARTITION_BYTES: Final = 4


class RemoteError(DlogError):
    """Whoever was asked has failed, and says so."""

    def __init__(self, exception: str, message: str) -> None:
        super().__init__(f"the responder failed with {exception}: {message}")
        self.exception = exception
        self.message = message


class ReplyAddress(NamedTuple):
    topic: str
    partition: int | None
    headers: tuple[Header, ...]
    """Those of the reply."""


def request_headers(correlation_id: bytes, topic: str, partition: int) -> tuple[Header, ...]:
    return (
        Header(CORRELATION_ID, correlation_id),
        Header(REPLY_TOPIC, topic.encode()),
        Header(REPLY_PARTITION, partition.to_bytes(PARTITION_BYTES, "big")),
    )


def reply_address(headers: Iterable[Header]) -> ReplyAddress | None:
    """None if a reply is not asked for, or cannot be given."""
    told = {each.key: each.value for each in headers}
    correlation_id, topic = told.get(CORRELATION_ID), told.get(REPLY_TOPIC)
    if not correlation_id or len(correlation_id) > CORRELATION_BYTES_MAX or not topic:
        return None
    name = topic.decode(errors="replace")
    if not TOPIC_NAME.fullmatch(name):
        return None
    at = told.get(REPLY_PARTITION)
    partition = int.from_bytes(at, "big") if at is not None and len(at) == PARTITION_BYTES else None
    if partition is not None and partition >= 2**31:
        return None
    return ReplyAddress(name, partition, (Header(CORRELATION_ID, correlation_id),))


def correlation_id_of(headers: Iterable[Header]) -> bytes | None:
    return next((each.value for each in headers if each.key == CORRELATION_ID), None)


def error_headers(error: BaseException) -> tuple[Header, ...]:
    message = str(error)[:MESSAGE_CHARACTERS_MAX]
    return (Header(EXCEPTION, class_name(error).encode()), Header(MESSAGE, message.encode()))


def error_in(headers: Iterable[Header]) -> RemoteError | None:
    told = {each.key: (each.value or b"").decode(errors="replace") for each in headers}
    return RemoteError(told[EXCEPTION], told.get(MESSAGE, "")) if EXCEPTION in told else None
