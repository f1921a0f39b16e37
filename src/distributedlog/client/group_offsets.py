"""The stored positions of a group, for those who are not members of it.

A program that decides by itself what it reads (Spark does) may still tell a group how far it is, so that
lag is seen where people look for it; and tools look at positions, and set them while nobody is in the group.
Both are Kafka's *standalone* commits: no member, no generation (-1).  A coordinator refuses them while the
group has members.

| the answer                                  | then                                                        |
|---------------------------------------------|-------------------------------------------------------------|
| it is not, or not yet, the coordinator      | the coordinator is looked for again, after a pause          |
| the connection is lost, nobody is there     | the same: a commit may be repeated, it says the same again  |
| no such topic                               | raised: a position of nothing is of no use                  |
| another                                     | raised                                                      |

A position is the offset of the next record.  A partition without one is not in what is fetched.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from distributedlog.client.addresses import Address
from distributedlog.client.connection import Connection
from distributedlog.client.errors import check_answer, is_retriable
from distributedlog.client.metadata import Cluster
from distributedlog.client.places import NO_OFFSET
from distributedlog.model.errors import DlogError, UnknownTopicError
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from distributedlog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
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

GROUP_KEY: Final = 0
SEVERAL_KEYS_SINCE: Final = 4
SEVERAL_GROUPS_SINCE: Final = 8
NAMED_VERSION_MAX: Final = 9
"""The last versions of OffsetCommit and OffsetFetch that name topics by name."""


class Position(NamedTuple):
    offset: int
    """Of the next record."""
    leader_epoch: int = -1
    metadata: str = ""
    """What whoever stored it wished to remember."""


class GroupOffsets:
    """The positions of one group.  The coordinator is remembered from call to call."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self.group_id = group_id
        self._cluster = cluster
        self._coordinator: Address | None = None

    async def commit(
        self, positions: Mapping[TopicPartition, Position], *, timeout_ms: int | None = None
    ) -> None:
        """Stores all of them, or raises; some may be stored then."""
        if positions:
            await self._cluster.retrying(
                lambda: self._commit(positions), timeout_ms=timeout_ms, is_worth_waiting=_is_worth_waiting
            )

    async def fetch(
        self, partitions: Collection[TopicPartition] | None = None, *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, Position]:
        """The positions that there are; None: of all partitions that have one."""
        return await self._cluster.retrying(
            lambda: self._fetch(partitions), timeout_ms=timeout_ms, is_worth_waiting=_is_worth_waiting
        )

    # --- the coordinator -----------------------------------------------------------------------

    async def coordinator(self) -> Connection:
        """A connection to the broker that keeps the group."""
        if self._coordinator is None:
            self._coordinator = await self._find_coordinator()
        return await self._cluster.connection_to(self._coordinator)

    def forget_coordinator(self) -> None:
        """After a failure: it may be another by now."""
        self._coordinator = None

    async def _find_coordinator(self) -> Address:
        connection = await self._cluster.any_connection()
        version = connection.version_for(FindCoordinatorRequest)
        if version >= SEVERAL_KEYS_SINCE:
            request = FindCoordinatorRequest(key_type=GROUP_KEY, coordinator_keys=[self.group_id])
        else:
            request = FindCoordinatorRequest(key=self.group_id, key_type=GROUP_KEY)
        answer = await self._cluster.call(connection, request, FindCoordinatorResponse)
        about = f"the coordinator of group {self.group_id!r}"
        found = next(iter(answer.coordinators), None)
        if found is None:
            check_answer(answer.error_code, about, answer.error_message)
            return Address(answer.host, answer.port)
        check_answer(found.error_code, about, found.error_message)
        return Address(found.host, found.port)

    # --- committing ----------------------------------------------------------------------------

    async def _commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, index), position in positions.items():
            topics.setdefault(topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=position.offset,
                    committed_leader_epoch=position.leader_epoch,
                    committed_metadata=position.metadata,
                )
            )
        request = OffsetCommitRequest(
            group_id=self.group_id,
            member_id="",
            topics=[
                OffsetCommitRequestTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )
        try:
            connection = await self.coordinator()
            answer = await connection.call(
                request,
                OffsetCommitResponse,
                timeout_ms=self._cluster.options.request_timeout_ms,
                version=connection.version_for(OffsetCommitRequest, NAMED_VERSION_MAX),
            )
            for topic_answer in answer.topics:
                for told in topic_answer.partitions:
                    partition = TopicPartition(topic_answer.name, told.partition_index)
                    check_answer(told.error_code, f"group {self.group_id!r} at {partition}")
        except DlogError:
            self._coordinator = None
            raise

    # --- fetching ------------------------------------------------------------------------------

    async def _fetch(self, partitions: Collection[TopicPartition] | None) -> dict[TopicPartition, Position]:
        try:
            connection = await self.coordinator()
            version = connection.version_for(OffsetFetchRequest, NAMED_VERSION_MAX)
            answer = await connection.call(
                self._fetch_request(partitions, version),
                OffsetFetchResponse,
                timeout_ms=self._cluster.options.request_timeout_ms,
                version=version,
            )
            return self._positions_of(answer)
        except DlogError:
            self._coordinator = None
            raise

    def _fetch_request(
        self, partitions: Collection[TopicPartition] | None, version: int
    ) -> OffsetFetchRequest:
        wanted: dict[str, list[int]] = {}
        for topic, index in sorted(partitions or ()):
            wanted.setdefault(topic, []).append(index)
        if version < SEVERAL_GROUPS_SINCE:
            alone = [
                OffsetFetchRequestTopic(name=name, partition_indexes=found) for name, found in wanted.items()
            ]
            return OffsetFetchRequest(group_id=self.group_id, topics=None if partitions is None else alone)
        topics = [
            OffsetFetchRequestTopics(name=name, partition_indexes=found) for name, found in wanted.items()
        ]
        group = OffsetFetchRequestGroup(group_id=self.group_id, topics=None if partitions is None else topics)
        return OffsetFetchRequest(groups=[group])

    def _positions_of(self, answer: OffsetFetchResponse) -> dict[TopicPartition, Position]:
        about = f"the positions of group {self.group_id!r}"
        check_answer(answer.error_code, about)
        found: dict[TopicPartition, Position] = {}
        for topic in answer.topics:
            self._add(topic.name, topic.partitions, found)
        for group in answer.groups:
            check_answer(group.error_code, about)
            for several in group.topics:
                self._add(several.name, several.partitions, found)
        return found

    def _add(
        self,
        topic: str,
        told: Collection[OffsetFetchResponsePartition | OffsetFetchResponsePartitions],
        found: dict[TopicPartition, Position],
    ) -> None:
        for each in told:
            partition = TopicPartition(topic, each.partition_index)
            check_answer(each.error_code, f"group {self.group_id!r} at {partition}")
            if each.committed_offset != NO_OFFSET:
                found[partition] = Position(
                    each.committed_offset, each.committed_leader_epoch, each.metadata or ""
                )


def _is_worth_waiting(error: DlogError) -> bool:
    return is_retriable(error) and not isinstance(error, UnknownTopicError)
