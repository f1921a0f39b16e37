"""OffsetFetch: a group's stored positions.

    versions   groups            topics                               an error of the whole is told
    1          one               by name, each named                  for each partition
    2 to 7     one               by name, null for all                for the group
    8, 9       several at once   by name, null for all                for each group
    10         several at once   by id, null for all                  for each group

A partition without a position is answered with the offset -1.  While a coordinator reads its log back it says
so: "no position" is only said by one that knows.  A position that a transaction is about to commit would be
refused to those who want stable ones only; offsets are not committed in transactions here.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from distributedlog.broker.context import RequestContext
from distributedlog.broker.dispatch import Answer, handles
from distributedlog.broker.handlers._groups import Asked, answer, ask, each_reply, told
from distributedlog.controller.image import MetadataImage
from distributedlog.groups.requests import FetchOffsetsReply, FetchOffsetsRequest, Position
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

NULL_TOPICS_SINCE = 2
BATCHED_SINCE = 8
TOPIC_IDS_SINCE = 10
NO_OFFSET = -1
NO_EPOCH = -1
_NONE: Final = ErrorCode.NONE  # looked up once: an enum's members are slow to reach

Places = Mapping[tuple[str, int], Position]
"""By topic and partition."""


class Wanted(NamedTuple):
    """A topic of a request, by the name it has here; None: there is none with its id."""

    name: str | None
    topic_id: Uuid
    partitions: list[int]


def _refuse(
    request: OffsetFetchRequest, context: RequestContext, code: ErrorCode, text: str
) -> OffsetFetchResponse:
    if context.api_version >= BATCHED_SINCE:
        groups = [
            OffsetFetchResponseGroup(group_id=each.group_id, topics=[], error_code=told(code))
            for each in request.groups
        ]
        return OffsetFetchResponse(groups=groups)
    topics = []
    if context.api_version < NULL_TOPICS_SINCE:
        topics = [
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=told(code)
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    return OffsetFetchResponse(topics=topics, error_code=told(code))


@handles(OffsetFetchRequest, versions=(1, 10), refuse=_refuse)
def offset_fetch(services: "Services", request: OffsetFetchRequest, context: RequestContext) -> Answer:
    if context.api_version >= BATCHED_SINCE:
        return _several(services, request, context)
    wanted = None
    if request.topics is not None:
        wanted = [Wanted(each.name, ZERO_UUID, each.partition_indexes) for each in request.topics]
    asked = _ask(services, context, request.group_id, wanted)
    return answer(asked, FetchOffsetsReply, lambda reply: _one(wanted, reply))


def _ask(
    services: "Services",
    context: RequestContext,
    group_id: str,
    wanted: list[Wanted] | None,
    member_id: str | None = None,
    epoch: int = NO_EPOCH,
) -> Asked:
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
    return ask(services, context, group_id, FetchOffsetsRequest(group_id, partitions, member_id, epoch))


# --- one group ---------------------------------------------------------------------------------


def _one(wanted: list[Wanted] | None, reply: FetchOffsetsReply) -> OffsetFetchResponse:
    found = _by_place(reply)
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
                    )
                    for index, offset, leader_epoch, metadata in _stands(each, found)
                ],
            )
            for each in (_wanted_of(reply) if wanted is None else wanted)
        ]
    )


def _by_place(reply: FetchOffsetsReply) -> Places:
    return {each.partition: each for each in reply.positions}


def _stands(wanted: Wanted, found: Places) -> Iterator[tuple[int, int, int, str]]:
    """Of each partition its number, offset, leader epoch and metadata."""
    name = wanted.name or ""
    for index in wanted.partitions:
        position = found.get((name, index))
        if position is None:
            yield index, NO_OFFSET, NO_EPOCH, ""
        else:
            yield index, position.offset, position.leader_epoch, position.metadata


def _wanted_of(reply: FetchOffsetsReply) -> list[Wanted]:
    """All there is, where all was asked for."""
    topics: dict[str, list[int]] = {}
    for each in reply.positions:
        topics.setdefault(each.partition.topic, []).append(each.partition.partition)
    return [Wanted(name, ZERO_UUID, indexes) for name, indexes in topics.items()]


# --- several groups ----------------------------------------------------------------------------


async def _several(
    services: "Services", request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponse:
    image, version = services.metadata.image, context.api_version
    wanted = [_wanted_by(image, group, version) for group in request.groups]
    asked = [
        _ask(services, context, group.group_id, each, group.member_id, group.member_epoch)
        for group, each in zip(request.groups, wanted, strict=True)
    ]
    replies = await each_reply(asked, FetchOffsetsReply)
    groups = []
    for group, topics, reply in zip(request.groups, wanted, replies, strict=True):
        if isinstance(reply, DlogError):
            code = told(reply.code)
            groups.append(OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=code))
            continue
        if topics is None:
            topics = _with_ids(image, _wanted_of(reply), version)
        groups.append(OffsetFetchResponseGroup(group_id=group.group_id, topics=_topics(topics, reply)))
    return OffsetFetchResponse(groups=groups)


def _wanted_by(image: MetadataImage, group: OffsetFetchRequestGroup, version: int) -> list[Wanted] | None:
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


def _with_ids(image: MetadataImage, wanted: list[Wanted], version: int) -> list[Wanted]:
    """Where topics are told by id, those that have none are left out: they are gone."""
    if version < TOPIC_IDS_SINCE:
        return wanted
    ids = image.topic_ids
    return [
        each._replace(topic_id=ids[each.name])
        for each in wanted
        if each.name is not None and each.name in ids
    ]


def _topics(wanted: list[Wanted], reply: FetchOffsetsReply) -> list[OffsetFetchResponseTopics]:
    found = _by_place(reply)
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
                    error_code=ErrorCode.UNKNOWN_TOPIC_ID if each.name is None else _NONE,
                )
                for index, offset, leader_epoch, metadata in _stands(each, found)
            ],
        )
        for each in wanted
    ]
