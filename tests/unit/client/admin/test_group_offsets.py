"""Positions of a group, stored and looked at by somebody who is not in it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from distributedlog import aio
from distributedlog.client.admin.group_offsets import GroupOffsets, OffsetAndMetadata
from distributedlog.client.metadata import Cluster
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError, UnknownTopicError
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from distributedlog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from distributedlog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from tests.unit.client.stage import QUICK, HangUp, ScriptedBroker, run

T = TypeVar("T")
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
OLDEST = {ApiKey.FIND_COORDINATOR: (0, 0), ApiKey.OFFSET_COMMIT: (2, 2), ApiKey.OFFSET_FETCH: (2, 2)}
NEWEST = {ApiKey.FIND_COORDINATOR: (0, 6), ApiKey.OFFSET_COMMIT: (2, 10), ApiKey.OFFSET_FETCH: (1, 10)}


@dataclass
class Keeper:
    """A broker that keeps the positions of groups; before that it answers what `refusals` say."""

    versions: dict[ApiKey, tuple[int, int]] = field(default_factory=lambda: dict(NEWEST))
    kept: dict[TopicPartition, tuple[int, str | None]] = field(default_factory=dict)
    refusals: list[ErrorCode] = field(default_factory=list)
    hang_ups: int = 0
    required_stable: list[bool] = field(default_factory=list)
    """What each OffsetFetch asked for."""
    broker: ScriptedBroker = field(init=False)

    def __post_init__(self) -> None:
        self.broker = ScriptedBroker(
            answers={
                ApiKey.FIND_COORDINATOR: self.find,
                ApiKey.OFFSET_COMMIT: self.commit,
                ApiKey.OFFSET_FETCH: self.fetch,
            },
            versions=dict(self.versions),
        )

    def find(self, request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
        host, port = self.broker.address
        if version < 4:
            assert request.key == "g"
            return FindCoordinatorResponse(node_id=1, host=host, port=port)
        assert request.coordinator_keys == ["g"]
        return FindCoordinatorResponse(coordinators=[Coordinator(key="g", node_id=1, host=host, port=port)])

    def commit(self, request: OffsetCommitRequest, _version: int) -> OffsetCommitResponse:
        if self.hang_ups:
            self.hang_ups -= 1
            raise HangUp
        assert (request.group_id, request.member_id) == ("g", "")
        assert request.generation_id_or_member_epoch == -1
        code = self.refusals.pop(0) if self.refusals else ErrorCode.NONE
        topics = []
        for topic in request.topics:
            told = []
            for each in topic.partitions:
                if code is ErrorCode.NONE:
                    at = TopicPartition(topic.name, each.partition_index)
                    self.kept[at] = (each.committed_offset, each.committed_metadata)
                told.append(
                    OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                )
            topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=told))
        return OffsetCommitResponse(topics=topics)

    def fetch(self, request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
        self.required_stable.append(request.require_stable)
        code = self.refusals.pop(0) if self.refusals else ErrorCode.NONE
        if version < 8:
            asked = request.topics
            topics = [
                OffsetFetchResponseTopic(
                    name=name, partitions=[OffsetFetchResponsePartition(**each) for each in told]
                )
                for name, told in self._told(asked).items()
            ]
            return OffsetFetchResponse(topics=topics, error_code=code)
        (group,) = request.groups
        several = [
            OffsetFetchResponseTopics(
                name=name, partitions=[OffsetFetchResponsePartitions(**each) for each in told]
            )
            for name, told in self._told(group.topics).items()
        ]
        found = OffsetFetchResponseGroup(group_id=group.group_id, topics=several, error_code=code)
        return OffsetFetchResponse(groups=[found])

    def _told(self, asked: Any) -> dict[str, list[dict[str, Any]]]:
        """Returns the offsets of those asked for, -1 where there is nothing; of all if nobody was named."""
        wanted = (
            sorted(self.kept)
            if asked is None
            else [TopicPartition(topic.name, index) for topic in asked for index in topic.partition_indexes]
        )
        told: dict[str, list[dict[str, Any]]] = {}
        for each in wanted:
            offset, metadata = self.kept.get(each, (-1, None))
            told.setdefault(each.topic, []).append(
                {"partition_index": each.partition, "committed_offset": offset, "metadata": metadata}
            )
        return told


def with_group(keeper: Keeper, story: Callable[[GroupOffsets], Awaitable[T]]) -> T:
    async def told() -> T:
        async with Cluster([keeper.broker.address], QUICK) as cluster:
            return await story(GroupOffsets(cluster, "g"))

    with keeper.broker.running():
        return run(told())


@pytest.mark.parametrize("versions", [OLDEST, NEWEST], ids=["oldest", "newest"])
def test_what_is_stored_is_found_again(versions: dict[ApiKey, tuple[int, int]]) -> None:
    keeper = Keeper(versions)

    async def story(group: GroupOffsets) -> None:
        await group.commit({T0: OffsetAndMetadata(5, metadata="so far"), U0: OffsetAndMetadata(7)})
        assert await group.fetch() == {T0: OffsetAndMetadata(5, metadata="so far"), U0: OffsetAndMetadata(7)}
        assert await group.fetch([T1, U0]) == {U0: OffsetAndMetadata(7)}, (
            "a partition without a position is not in it"
        )
        assert await group.fetch([]) == {}
        await group.commit({})

    with_group(keeper, story)
    assert keeper.broker.count(ApiKey.FIND_COORDINATOR) == 1, "the coordinator is remembered"
    assert keeper.broker.count(ApiKey.OFFSET_COMMIT) == 1, "nothing is not sent"


@pytest.mark.parametrize(
    "refusal",
    [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE],
)
def test_a_coordinator_that_moved_or_loads_is_looked_for_again(refusal: ErrorCode) -> None:
    keeper = Keeper(refusals=[refusal])
    with_group(keeper, lambda group: group.commit({T0: OffsetAndMetadata(5)}))
    assert keeper.kept == {T0: (5, "")}
    assert keeper.broker.count(ApiKey.FIND_COORDINATOR) == 2
    again = Keeper(refusals=[refusal], kept={T0: (5, None)})
    assert with_group(again, lambda group: group.fetch()) == {T0: OffsetAndMetadata(5)}


def test_a_commit_whose_connection_is_lost_is_repeated() -> None:
    keeper = Keeper(hang_ups=1)
    with_group(keeper, lambda group: group.commit({T0: OffsetAndMetadata(5)}))
    assert keeper.kept == {T0: (5, "")}


@pytest.mark.parametrize(
    ("refusal", "kind"),
    [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UnknownTopicError), (ErrorCode.UNKNOWN_MEMBER_ID, DlogError)],
)
def test_a_refusal_for_good_is_raised_with_the_group_and_the_partition(
    refusal: ErrorCode, kind: type[DlogError]
) -> None:
    keeper = Keeper(refusals=[refusal])
    with pytest.raises(kind, match="group 'g' at t-0"):
        with_group(keeper, lambda group: group.commit({T0: OffsetAndMetadata(5)}))
    assert keeper.broker.count(ApiKey.OFFSET_COMMIT) == 1


def with_fetch_versions(last: int) -> dict[ApiKey, tuple[int, int]]:
    return {**NEWEST, ApiKey.OFFSET_FETCH: (1, last)}


@pytest.mark.parametrize(("last", "is_told"), [(6, False), (7, True), (9, True)])
def test_stable_offsets_are_waited_for_where_the_broker_can(last: int, is_told: bool) -> None:
    refusals = [ErrorCode.UNSTABLE_OFFSET_COMMIT] if is_told else []
    keeper = Keeper(with_fetch_versions(last), kept={T0: (5, None)}, refusals=refusals)
    found = with_group(keeper, lambda group: group.fetch([T0], require_stable=True))
    assert found == {T0: OffsetAndMetadata(5)}
    assert keeper.required_stable == ([True, True] if is_told else [False])


def test_an_onlooker_takes_offsets_as_they_are() -> None:
    keeper = Keeper(kept={T0: (5, None)})
    with_group(keeper, lambda group: group.fetch([T0]))
    assert keeper.required_stable == [False]


def test_a_consumer_reads_on_only_from_stable_offsets() -> None:
    keeper = Keeper(kept={T0: (5, None)})

    async def story() -> None:
        async with aio.Consumer(keeper.broker.bootstrap, group_id="g", enable_auto_commit=False) as consumer:
            consumer.assign([T0])
            assert await consumer.committed() == {T0: 5}
            assert await consumer.position(T0) == 5

    with keeper.broker.running():
        run(story())
    assert keeper.required_stable == [True, True]
