"""OffsetCommit: stores a group's positions.

Partitions that are not there are refused one by one; the others are stored together, in one batch, and
answered when it is committed.  What is wrong with the group or the member is told of every partition.
Topics are named by id from version 10 on.

Every consumer commits every few seconds, so what is done for each position is kept short: tuples are made
past their constructors, which cost several times as much, and what is said of a partition whose position was
taken is the same object in every answer.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from typing import TYPE_CHECKING, Final

from distributedlog.broker.context import RequestContext
from distributedlog.broker.dispatch import Answer, handles
from distributedlog.broker.handlers._groups import answer, ask, told
from distributedlog.broker.topics_seen import TopicsSeen
from distributedlog.controller.image import MetadataImage, Topic
from distributedlog.groups.requests import CommitReply, CommitRequest, Position
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

MEMBER_EPOCHS_SINCE: Final = 9
TOPIC_IDS_SINCE: Final = 10
SHARED_PLACES_MAX: Final = 1024
_SEEN: Final = TopicsSeen()
_TAKEN: Final = ErrorCode.NONE  # looked up once: an enum's members are slow to reach


def _refuse(
    request: OffsetCommitRequest, context: RequestContext, code: ErrorCode, text: str
) -> OffsetCommitResponse:
    return _response(request, repeat(told(code)))


@handles(OffsetCommitRequest, versions=(2, 10), refuse=_refuse)
def offset_commit(services: "Services", request: OffsetCommitRequest, context: RequestContext) -> Answer:
    positions, refused = _sorted_out(services.metadata.image, request, context.api_version)
    asked = CommitRequest(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        positions,
        None if request.retention_time_ms < 0 else request.retention_time_ms,
        context.api_version >= MEMBER_EPOCHS_SINCE,
    )

    def respond(reply: CommitReply) -> OffsetCommitResponse:
        return _response(request, _merged(reply.errors, refused) if refused else reply.errors)

    return answer(ask(services, context, request.group_id, asked), CommitReply, respond)


def _sorted_out(
    image: MetadataImage, request: OffsetCommitRequest, version: int
) -> tuple[tuple[Position, ...], Mapping[int, ErrorCode]]:
    """The positions in partitions that are there; and what is said of the others, by place in the request."""
    positions: list[Position] = []
    refused: dict[int, ErrorCode] = {}
    for topic in request.topics:
        known = _topic(image, topic, version)
        name, count = ("", 0) if known is None else (known.name, len(known.partitions))
        for each in topic.partitions:
            index = each.partition_index
            if not 0 <= index < count:  # a topic's partitions are numbered without gaps
                refused[len(positions) + len(refused)] = _absent(known, version)
                continue
            partition = tuple.__new__(TopicPartition, (name, index))
            metadata = each.committed_metadata or ""
            position = (partition, each.committed_offset, each.committed_leader_epoch, metadata)
            positions.append(tuple.__new__(Position, position))
    return tuple(positions), refused


def _topic(image: MetadataImage, topic: OffsetCommitRequestTopic, version: int) -> Topic | None:
    if version >= TOPIC_IDS_SINCE:
        return _SEEN.with_id(image, topic.topic_id)
    return _SEEN.named(image, topic.name)


def _absent(known: Topic | None, version: int) -> ErrorCode:
    if known is None and version >= TOPIC_IDS_SINCE:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# --- the response ------------------------------------------------------------------------------


def _merged(errors: Sequence[ErrorCode], refused: Mapping[int, ErrorCode]) -> list[ErrorCode]:
    """In the order of the request."""
    others = iter(errors)
    places = range(len(errors) + len(refused))
    return [refused[place] if place in refused else next(others) for place in places]


def _response(request: OffsetCommitRequest, codes: Iterable[ErrorCode]) -> OffsetCommitResponse:
    """With a code for every partition, in the order of the request."""
    left = iter(codes)
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    _taken(each.partition_index) if code is _TAKEN else _told(each.partition_index, code)
                    for each, code in zip(topic.partitions, left, strict=False)  # the next topic's are left
                ],
            )
            for topic in request.topics
        ]
    )


@lru_cache(SHARED_PLACES_MAX)
def _taken(index: int) -> OffsetCommitResponsePartition:
    """In many answers at once: nobody changes it."""
    return _told(index, _TAKEN)


def _told(index: int, code: ErrorCode) -> OffsetCommitResponsePartition:
    return OffsetCommitResponsePartition(partition_index=index, error_code=code)
