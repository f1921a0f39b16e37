"""OffsetFetch: a group's committed offsets.

    versions   groups            topics                               an error of the whole stands
    1          one               by name, each named                  for each partition
    2 to 7     one               by name, null for all                for the group
    8, 9       several at once   by name, null for all                for each group
    10         several at once   by id, null for all                  for each group

A partition without a committed offset has the offset -1.  While a coordinator reads its log back it responds
with an error: "no committed offset" comes only from one that knows.  While an open transaction may commit an
offset of a partition, those who require stable ones (from version 7 on) hear UNSTABLE_OFFSET_COMMIT for it,
and ask again; others get the one before.

As in Kafka an error of the group leaves partitions out, unless it is that another broker coordinates, or
that the coordinator is not ready: that is said for each partition, too.  aiokafka looks at nothing else, and
takes a partition that is left out for one without a committed offset: it would begin at its start.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from distributedlog.broker.handlers._groups import (
    PendingReply,
    gather_replies,
    respond,
    submit,
    to_group_error,
)
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import HandlerResponse, handles
from distributedlog.broker.net.error_responses import derive_error_response
from distributedlog.controller.image import MetadataImage
from distributedlog.groups.requests import CommittedOffset, FetchOffsetsReply, FetchOffsetsRequest
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import ZERO_UUID, TopicPartition, Uuid
from distributedlog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

GROUP_ERROR_SINCE = 2
BATCHED_SINCE = 8
TOPIC_IDS_SINCE = 10
NO_OFFSET = -1
NO_EPOCH = -1
_ELSEWHERE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
_NONE: Final = ErrorCode.NONE  # looked up once: an enum's members are slow to reach

CommittedOffsets = Mapping[tuple[str, int], CommittedOffset]
"""Committed offsets by topic and partition."""


class Wanted(NamedTuple):
    """A topic of a request, by the name it has here; None: there is none with its id."""

    name: str | None
    topic_id: Uuid
    partitions: list[int]


def _make_error_response(
    request: OffsetFetchRequest, context: RequestContext, code: ErrorCode, text: str
) -> OffsetFetchResponse:
    response = derive_error_response(request, context.api_version, code, text)
    assert isinstance(response, OffsetFetchResponse)
    if GROUP_ERROR_SINCE <= context.api_version < BATCHED_SINCE and code in _ELSEWHERE:
        response.topics = [
            OffsetFetchResponseTopic(
                name=each.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code
                    )
                    for index in each.partition_indexes
                ],
            )
            for each in request.topics or ()
        ]
    return response


@handles(
    OffsetFetchRequest,
    versions=(1, 10),
    error_response=_make_error_response,
    to_error_code=to_group_error,
)
def offset_fetch(
    services: "Services", request: OffsetFetchRequest, context: RequestContext
) -> HandlerResponse:
    if context.api_version >= BATCHED_SINCE:
        return _fetch_groups(services, request, context)
    wanted = None
    if request.topics is not None:
        wanted = [Wanted(each.name, ZERO_UUID, each.partition_indexes) for each in request.topics]
    pending = _ask(services, context, request.group_id, wanted, request.require_stable)
    return respond(pending, FetchOffsetsReply, lambda reply: _make_single_response(wanted, reply))


def _ask(
    services: "Services",
    context: RequestContext,
    group_id: str,
    wanted: list[Wanted] | None,
    requires_stable: bool,
    member_id: str | None = None,
    epoch: int = NO_EPOCH,
) -> PendingReply:
    partitions = None
    if wanted is not None:
        new = tuple.__new__  # past the constructor, which costs several times as much
        partitions = tuple(
            [
                new(TopicPartition, (each.name, index))
                for each in wanted
                if each.name is not None
                for index in each.partitions
            ]
        )
    request = FetchOffsetsRequest(group_id, partitions, member_id, epoch, requires_stable)
    return submit(services, context, group_id, request)


# --- one group ---------------------------------------------------------------------------------


def _make_single_response(wanted: list[Wanted] | None, reply: FetchOffsetsReply) -> OffsetFetchResponse:
    found = _index_by_partition(reply)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=each.name or "",
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=leader_epoch,
                        metadata=metadata,
                        error_code=_find_error(each, index, reply),
                    )
                    for index, offset, leader_epoch, metadata in _iterate_committed(each, found)
                ],
            )
            for each in (_list_all_wanted(reply) if wanted is None else wanted)
        ]
    )


def _index_by_partition(reply: FetchOffsetsReply) -> CommittedOffsets:
    return {each.partition: each for each in reply.offsets}


def _iterate_committed(wanted: Wanted, found: CommittedOffsets) -> Iterator[tuple[int, int, int, str]]:
    """Yields of each partition its number, offset, leader epoch and metadata."""
    name = wanted.name or ""
    for index in wanted.partitions:
        committed = found.get((name, index))
        if committed is None:
            yield index, NO_OFFSET, NO_EPOCH, ""
        else:
            yield index, committed.offset, committed.leader_epoch, committed.metadata


def _find_error(wanted: Wanted, index: int, reply: FetchOffsetsReply) -> ErrorCode:
    if wanted.name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if reply.unstable and TopicPartition(wanted.name, index) in reply.unstable:
        return ErrorCode.UNSTABLE_OFFSET_COMMIT
    return _NONE


def _list_all_wanted(reply: FetchOffsetsReply) -> list[Wanted]:
    """Lists every partition of the reply, for a request that asked for all of a group."""
    topics: dict[str, list[int]] = {}
    for topic, index in (*(each.partition for each in reply.offsets), *sorted(reply.unstable)):
        topics.setdefault(topic, []).append(index)
    return [Wanted(name, ZERO_UUID, indexes) for name, indexes in topics.items()]


# --- several groups ----------------------------------------------------------------------------


async def _fetch_groups(
    services: "Services", request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponse:
    image, version = services.metadata.image, context.api_version
    wanted = [_resolve_wanted(image, group, version) for group in request.groups]
    pending = [
        _ask(
            services,
            context,
            group.group_id,
            each,
            request.require_stable,
            group.member_id,
            group.member_epoch,
        )
        for group, each in zip(request.groups, wanted, strict=True)
    ]
    replies = await gather_replies(pending, FetchOffsetsReply)
    groups = []
    for group, topics, reply in zip(request.groups, wanted, replies, strict=True):
        if isinstance(reply, DlogError):
            code = to_group_error(reply.code)
            groups.append(OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=code))
            continue
        if topics is None:
            topics = _add_topic_ids(image, _list_all_wanted(reply), version)
        groups.append(OffsetFetchResponseGroup(group_id=group.group_id, topics=_make_topics(topics, reply)))
    return OffsetFetchResponse(groups=groups)


def _resolve_wanted(
    image: MetadataImage, group: OffsetFetchRequestGroup, version: int
) -> list[Wanted] | None:
    if group.topics is None:
        return None
    wanted = []
    for each in group.topics:
        name: str | None = each.name
        if version >= TOPIC_IDS_SINCE:
            known = image.topics.get(each.topic_id)
            name = None if known is None else known.name
        wanted.append(Wanted(name, each.topic_id, each.partition_indexes))
    return wanted


def _add_topic_ids(image: MetadataImage, wanted: list[Wanted], version: int) -> list[Wanted]:
    """Adds topic ids in versions that have them; topics without one are left out: they are gone."""
    if version < TOPIC_IDS_SINCE:
        return wanted
    ids = image.topic_ids
    return [
        each._replace(topic_id=ids[each.name])
        for each in wanted
        if each.name is not None and each.name in ids
    ]


def _make_topics(wanted: list[Wanted], reply: FetchOffsetsReply) -> list[OffsetFetchResponseTopics]:
    found = _index_by_partition(reply)
    return [
        OffsetFetchResponseTopics(
            name=each.name or "",
            topic_id=each.topic_id,
            partitions=[
                OffsetFetchResponsePartitions(
                    partition_index=index,
                    committed_offset=offset,
                    committed_leader_epoch=leader_epoch,
                    metadata=metadata,
                    error_code=_find_error(each, index, reply),
                )
                for index, offset, leader_epoch, metadata in _iterate_committed(each, found)
            ],
        )
        for each in wanted
    ]
