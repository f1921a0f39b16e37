"""OffsetCommit: stores the committed offsets of a group.

Partitions that are not there are refused one by one; the others are stored together, in one batch, and
the response comes when it is committed.  An error of the group or the member is that of every
partition.  Topics are named by id from version 10 on.

Every consumer commits every few seconds, so what is done for each offset is kept short: tuples are made past
their constructors, which cost several times as much, and the part of a partition without error is the same
object in every response.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from distributedlog.broker.cluster.topics_seen import TopicsSeen
from distributedlog.broker.handlers._groups import respond, submit, to_group_error
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import HandlerResponse, Order, handles
from distributedlog.controller.image import MetadataImage, Topic
from distributedlog.groups.requests import CommitReply, CommitRequest, CommittedOffset
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


@handles(OffsetCommitRequest, versions=(2, 10), to_error_code=to_group_error, order=Order.PIPELINED)
def offset_commit(
    services: "Services", request: OffsetCommitRequest, context: RequestContext
) -> HandlerResponse:
    offsets, refused = _sort_out(services.metadata.image, request, context.api_version)
    submitted = CommitRequest(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        offsets,
        None if request.retention_time_ms < 0 else request.retention_time_ms,
        context.api_version >= MEMBER_EPOCHS_SINCE,
    )

    def make(reply: CommitReply) -> OffsetCommitResponse:
        return _make_response(request, _merge(reply.errors, refused) if refused else reply.errors)

    return respond(submit(services, context, request.group_id, submitted), CommitReply, make)


def _sort_out(
    image: MetadataImage, request: OffsetCommitRequest, version: int
) -> tuple[tuple[CommittedOffset, ...], Mapping[int, ErrorCode]]:
    """Splits off what names no partition: returns the other offsets, and error codes by place in the
    request."""
    offsets: list[CommittedOffset] = []
    refused: dict[int, ErrorCode] = {}
    for topic in request.topics:
        known = _find_topic(image, topic, version)
        name, count = ("", 0) if known is None else (known.name, len(known.partitions))
        for each in topic.partitions:
            index = each.partition_index
            if not 0 <= index < count:  # a topic's partitions are numbered without gaps
                refused[len(offsets) + len(refused)] = _find_absence(known, version)
                continue
            partition = tuple.__new__(TopicPartition, (name, index))
            metadata = each.committed_metadata or ""
            committed = (partition, each.committed_offset, each.committed_leader_epoch, metadata)
            offsets.append(tuple.__new__(CommittedOffset, committed))
    return tuple(offsets), refused


def _find_topic(image: MetadataImage, topic: OffsetCommitRequestTopic, version: int) -> Topic | None:
    if version >= TOPIC_IDS_SINCE:
        return _SEEN.with_id(image, topic.topic_id)
    return _SEEN.named(image, topic.name)


def _find_absence(known: Topic | None, version: int) -> ErrorCode:
    if known is None and version >= TOPIC_IDS_SINCE:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# --- the response ------------------------------------------------------------------------------


def _merge(errors: Sequence[ErrorCode], refused: Mapping[int, ErrorCode]) -> list[ErrorCode]:
    """Merges the codes in the order of the request."""
    others = iter(errors)
    places = range(len(errors) + len(refused))
    return [refused[place] if place in refused else next(others) for place in places]


def _make_response(request: OffsetCommitRequest, codes: Iterable[ErrorCode]) -> OffsetCommitResponse:
    """Makes the response with a code for every partition, in the order of the request."""
    left = iter(codes)
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    _make_success(each.partition_index)
                    if code is _TAKEN
                    else _make_partition_response(each.partition_index, code)
                    for each, code in zip(topic.partitions, left, strict=False)  # the next topic's are left
                ],
            )
            for topic in request.topics
        ]
    )


@lru_cache(SHARED_PLACES_MAX)
def _make_success(index: int) -> OffsetCommitResponsePartition:
    """Returns the response to a success, which many responses share: nobody changes it."""
    return _make_partition_response(index, _TAKEN)


def _make_partition_response(index: int, code: ErrorCode) -> OffsetCommitResponsePartition:
    return OffsetCommitResponsePartition(partition_index=index, error_code=code)
