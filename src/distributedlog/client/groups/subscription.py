"""What members of a classic group tell their leader, and what it gives them.  Pure.

Both travel as Kafka's consumer protocol, so that members of any client understand each other.  The `sticky`
assignor, whose members own nothing while they join, has its earlier assignment in the user data:

    previous_assignment: array of (topic string, partitions array of int32) | generation int32

A subscription that cannot be read is one without topics: it gets nothing, and nobody else suffers.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from struct import Struct as Layout
from struct import error as StructError  # noqa: N812 - an error of the library
from typing import Final

from distributedlog.model.buffers import Buffer
from distributedlog.model.errors import MalformedMessageError, UnsupportedVersionError
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
)
from distributedlog.protocol.versioned import decode_compatible, encode_versioned

SUBSCRIPTION_VERSION: Final = 3
ASSIGNMENT_VERSION: Final = 3
NO_GENERATION: Final = -1
_INT32, _INT16 = Layout(">i"), Layout(">h")


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """A member as its leader knows it."""

    topics: frozenset[str]
    owned: tuple[TopicPartition, ...] = ()
    """What it has, or had before it joined."""
    generation: int = NO_GENERATION
    """The generation in which it got them."""
    instance_id: str | None = None


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for each in sorted(partitions):
        found.setdefault(each.topic, []).append(each.partition)
    return found


def encode_subscription(
    topics: Collection[str],
    owned: Collection[TopicPartition],
    generation: int,
    *,
    user_data: bytes | None = None,
) -> bytes:
    subscription = ConsumerProtocolSubscription(
        topics=sorted(topics),
        user_data=user_data,
        owned_partitions=[
            TopicPartitions(topic=topic, partitions=indexes) for topic, indexes in by_topic(owned).items()
        ],
        generation_id=generation,
    )
    return encode_versioned(subscription, SUBSCRIPTION_VERSION)


def decode_subscription(data: Buffer, instance_id: str | None = None) -> MemberSubscription:
    try:
        found = decode_compatible(ConsumerProtocolSubscription, data)
    except (MalformedMessageError, UnsupportedVersionError):
        return MemberSubscription(frozenset(), instance_id=instance_id)
    owned = tuple(
        TopicPartition(each.topic, index) for each in found.owned_partitions for index in each.partitions
    )
    generation = found.generation_id
    if not owned and found.user_data:
        owned, generation = decode_previous(found.user_data)
    return MemberSubscription(frozenset(found.topics), owned, generation, instance_id)


def encode_previous(owned: Collection[TopicPartition], generation: int) -> bytes:
    """The user data of the sticky assignor."""
    topics = by_topic(owned)
    parts = [_INT32.pack(len(topics))]
    for topic, indexes in topics.items():
        name = topic.encode()
        parts += [_INT16.pack(len(name)), name, _INT32.pack(len(indexes))]
        parts += map(_INT32.pack, indexes)
    return b"".join([*parts, _INT32.pack(generation)])


def decode_previous(data: Buffer) -> tuple[tuple[TopicPartition, ...], int]:
    """Nothing, if it is not what the sticky assignor writes.  Every count is read against what is left."""
    view, at = memoryview(data), 0
    owned: list[TopicPartition] = []
    try:
        (count,), at = _INT32.unpack_from(view, at), at + 4
        for _ in range(count):
            (size,), at = _INT16.unpack_from(view, at), at + 2
            if not 0 <= size <= len(view) - at:
                return (), NO_GENERATION
            topic, at = bytes(view[at : at + size]).decode(), at + size
            (indexes,), at = _INT32.unpack_from(view, at), at + 4
            if not 0 <= indexes <= (len(view) - at) // 4:
                return (), NO_GENERATION
            owned += (TopicPartition(topic, _INT32.unpack_from(view, at + 4 * n)[0]) for n in range(indexes))
            at += 4 * indexes
        generation = _INT32.unpack_from(view, at)[0] if len(view) - at >= 4 else NO_GENERATION
    except (StructError, UnicodeDecodeError):
        return (), NO_GENERATION
    return tuple(owned), generation


def encode_assignment(partitions: Collection[TopicPartition]) -> bytes:
    assigned = [
        TopicPartitions(topic=topic, partitions=found) for topic, found in by_topic(partitions).items()
    ]
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=assigned), ASSIGNMENT_VERSION)


def decode_assignment(data: Buffer) -> tuple[TopicPartition, ...]:
    """Raises `MalformedMessageError`; no bytes at all are an empty assignment."""
    if len(data) == 0:
        return ()
    found = decode_compatible(ConsumerProtocolAssignment, data)
    return tuple(
        TopicPartition(each.topic, index) for each in found.assigned_partitions for index in each.partitions
    )
