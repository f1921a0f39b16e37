"""The committed offsets of a group, for those who are not members of it.

A program that decides by itself what it reads (Spark does) may still commit offsets of a group, so that
lag is seen where people look for it; and tools show committed offsets, and set them while the group is empty.
Both are Kafka's *standalone* commits: no member, no generation (-1).  A coordinator refuses them while the
group has members.

| the response                                | then                                                        |
|---------------------------------------------|-------------------------------------------------------------|
| it is not, or not yet, the coordinator      | the coordinator is looked for again, after a pause          |
| the connection is lost, nobody is there     | the same: a commit may be repeated, it says the same again  |
| no such topic                               | raised: an offset of nothing is of no use                   |
| another                                     | raised                                                      |

A committed offset is that of the next record.  A partition without one is not in what is fetched.
"""

import contextlib
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from distributedlog.client.connection import Connection
from distributedlog.client.coordinators import GROUP_KEY, Coordinator
from distributedlog.client.errors import check_response, is_retriable
from distributedlog.client.metadata import Cluster
from distributedlog.client.offset_specs import NO_OFFSET
from distributedlog.model.errors import DlogError, GroupNotFoundError, UnknownTopicError
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from distributedlog.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from distributedlog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)

SEVERAL_GROUPS_SINCE: Final = 8
STABLE_SINCE: Final = 7
"""The first version of OffsetFetch that can wait for open transactions."""
NAMED_VERSION_MAX: Final = 9
"""The last versions of OffsetCommit and OffsetFetch that name topics by name."""

MemberIdentity = tuple[int, str, str | None]
"""Generation, member id and instance id."""
NOBODY: Final[MemberIdentity] = (-1, "", None)


class OffsetAndMetadata(NamedTuple):
    offset: int
    """The offset of the next record."""
    leader_epoch: int = -1
    metadata: str = ""
    """What whoever stored it wished to remember."""


class GroupOffsets:
    """The committed offsets of one group.  The coordinator is remembered from call to call."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self.group_id = group_id
        self._cluster = cluster
        self._coordinator = Coordinator(cluster, GROUP_KEY, group_id)

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        timeout_ms: int | None = None,
        member: MemberIdentity = NOBODY,
    ) -> None:
        """Stores all of them, or raises; some may be stored then.  `member` is who commits, if it is one."""
        if offsets:
            await self._cluster.retrying(
                lambda: self._commit(offsets, member),
                timeout_ms=timeout_ms,
                is_worth_waiting=_is_worth_waiting,
            )

    async def fetch(
        self,
        partitions: Collection[TopicPartition] | None = None,
        *,
        timeout_ms: int | None = None,
        require_stable: bool = False,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets that there are; None: of all partitions that have one.

        `require_stable` waits for open transactions that commit offsets of these: whoever reads on from
        an offset must not take one that is about to be replaced.
        """
        return await self._cluster.retrying(
            lambda: self._fetch(partitions, require_stable),
            timeout_ms=timeout_ms,
            is_worth_waiting=_is_worth_waiting,
        )

    async def delete(self, partitions: Collection[TopicPartition]) -> None:
        """Forgets the positions of these; a group that is not there has none."""
        if partitions:
            with contextlib.suppress(GroupNotFoundError):
                await self._cluster.retrying(
                    lambda: self._delete(partitions), is_worth_waiting=_is_worth_waiting
                )

    # --- the coordinator -----------------------------------------------------------------------

    async def coordinator(self) -> Connection:
        """A connection to the broker that keeps the group."""
        return await self._coordinator.connection()

    def forget_coordinator(self) -> None:
        """Forgets the coordinator after a failure: it may be another by now."""
        self._coordinator.forget()

    # --- deleting ------------------------------------------------------------------------------

    async def _delete(self, partitions: Collection[TopicPartition]) -> None:
        request = OffsetDeleteRequest(
            group_id=self.group_id,
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=[OffsetDeleteRequestPartition(partition_index=each) for each in indexes],
                )
                for topic, indexes in _by_topic(partitions).items()
            ],
        )
        try:
            response = await self._cluster.call(await self.coordinator(), request, OffsetDeleteResponse)
            check_response(response.error_code, f"group {self.group_id!r}")
            for topic in response.topics:
                for each in topic.partitions:
                    check_response(each.error_code, f"the position of {topic.name}-{each.partition_index}")
        except DlogError:
            self.forget_coordinator()
            raise

    # --- committing ----------------------------------------------------------------------------

    async def _commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: MemberIdentity
    ) -> None:
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, index), committed in offsets.items():
            topics.setdefault(topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    committed_metadata=committed.metadata,
                )
            )
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=member[0],
            member_id=member[1],
            group_instance_id=member[2],
            topics=[
                OffsetCommitRequestTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )
        try:
            connection = await self.coordinator()
            response = await connection.call(
                request,
                OffsetCommitResponse,
                timeout_ms=self._cluster.options.request_timeout_ms,
                version=connection.version_for(OffsetCommitRequest, NAMED_VERSION_MAX),
            )
            for topic_response in response.topics:
                for result in topic_response.partitions:
                    partition = TopicPartition(topic_response.name, result.partition_index)
                    check_response(result.error_code, f"group {self.group_id!r} at {partition}")
        except DlogError:
            self.forget_coordinator()
            raise

    # --- fetching ------------------------------------------------------------------------------

    async def _fetch(
        self, partitions: Collection[TopicPartition] | None, require_stable: bool
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        try:
            connection = await self.coordinator()
            version = connection.version_for(OffsetFetchRequest, NAMED_VERSION_MAX)
            response = await connection.call(
                self._fetch_request(partitions, version, require_stable and version >= STABLE_SINCE),
                OffsetFetchResponse,
                timeout_ms=self._cluster.options.request_timeout_ms,
                version=version,
            )
            return self._read_offsets(response)
        except DlogError:
            self.forget_coordinator()
            raise

    def _fetch_request(
        self, partitions: Collection[TopicPartition] | None, version: int, require_stable: bool
    ) -> OffsetFetchRequest:
        wanted: dict[str, list[int]] = {}
        for topic, index in sorted(partitions or ()):
            wanted.setdefault(topic, []).append(index)
        if version < SEVERAL_GROUPS_SINCE:
            alone = [
                OffsetFetchRequestTopic(name=name, partition_indexes=found) for name, found in wanted.items()
            ]
            return OffsetFetchRequest(
                group_id=self.group_id,
                topics=None if partitions is None else alone,
                require_stable=require_stable,
            )
        topics = [
            OffsetFetchRequestTopics(name=name, partition_indexes=found) for name, found in wanted.items()
        ]
        group = OffsetFetchRequestGroup(group_id=self.group_id, topics=None if partitions is None else topics)
        return OffsetFetchRequest(groups=[group], require_stable=require_stable)

    def _read_offsets(self, response: OffsetFetchResponse) -> dict[TopicPartition, OffsetAndMetadata]:
        about = f"the committed offsets of group {self.group_id!r}"
        check_response(response.error_code, about)
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        for topic in response.topics:
            self._add(topic.name, topic.partitions, found)
        for group in response.groups:
            check_response(group.error_code, about)
            for several in group.topics:
                self._add(several.name, several.partitions, found)
        return found

    def _add(
        self,
        topic: str,
        result: Collection[OffsetFetchResponsePartition | OffsetFetchResponsePartitions],
        found: dict[TopicPartition, OffsetAndMetadata],
    ) -> None:
        for each in result:
            partition = TopicPartition(topic, each.partition_index)
            check_response(each.error_code, f"group {self.group_id!r} at {partition}")
            if each.committed_offset != NO_OFFSET:
                found[partition] = OffsetAndMetadata(
                    each.committed_offset, each.committed_leader_epoch, each.metadata or ""
                )


def _by_topic(partitions: Collection[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for each in sorted(partitions):
        found.setdefault(each.topic, []).append(each.partition)
    return found


def _is_worth_waiting(error: DlogError) -> bool:
    return is_retriable(error) and not isinstance(error, UnknownTopicError)
