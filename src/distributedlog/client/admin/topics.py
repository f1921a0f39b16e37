"""Topics: make, delete, give more partitions; cut off their beginnings; elect their leaders.

What a request is about is done, or not, item by item: each function tells what became of each.  `changes`
says when a change is tried again.  Cutting off a beginning may always be: whoever asks twice loses no more.
"""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from distributedlog.client.admin.changes import ask_controller, may_pass, outcome
from distributedlog.client.errors import check_response, error_from
from distributedlog.client.metadata import Cluster
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import ZERO_UUID, TopicPartition, Uuid
from distributedlog.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from distributedlog.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from distributedlog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from distributedlog.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from distributedlog.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)

AS_CONFIGURED: Final = -1
UP_TO_THE_END: Final = -1
"""The high watermark, as an offset to delete records before."""
PREFERRED_ELECTION: Final = 0
UNCLEAN_ELECTION: Final = 1


@dataclass(frozen=True, slots=True)
class NewTopic:
    name: str
    partitions: int = AS_CONFIGURED
    replication_factor: int = AS_CONFIGURED
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    name: str
    topic_id: Uuid = ZERO_UUID
    partitions: int = AS_CONFIGURED
    """-1 where the broker does not say."""
    replication_factor: int = AS_CONFIGURED


async def create_topics(
    cluster: Cluster, topics: Sequence[NewTopic], *, validate_only: bool = False
) -> dict[str, CreatedTopic | DlogError]:
    """Returns what became of each: created, or the reason why not."""
    request = CreateTopicsRequest(
        topics=[_creatable(each) for each in topics],
        timeout_ms=cluster.options.request_timeout_ms,
        validate_only=validate_only,
    )
    response = await ask_controller(
        cluster, request, CreateTopicsResponse, lambda response: (each.error_code for each in response.topics)
    )
    outcomes: dict[str, CreatedTopic | DlogError] = {}
    for result in response.topics:
        failure = outcome(result.error_code, f"topic {result.name!r}", result.error_message)
        outcomes[result.name] = failure or CreatedTopic(
            result.name, result.topic_id, result.num_partitions, result.replication_factor
        )
    cluster.mark_stale()
    return outcomes


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        assignments=[],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )


async def delete_topics(cluster: Cluster, names: Sequence[str]) -> dict[str, DlogError | None]:
    """Returns what became of each: None if it is gone, or the reason why not."""
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names],
        topic_names=list(names),
        timeout_ms=cluster.options.request_timeout_ms,
    )
    response = await ask_controller(
        cluster,
        request,
        DeleteTopicsResponse,
        lambda response: (each.error_code for each in response.responses),
    )
    cluster.mark_stale()
    return {
        result.name: outcome(result.error_code, f"topic {result.name!r}", result.error_message)
        for result in response.responses
        if result.name is not None
    }


async def create_partitions(
    cluster: Cluster, counts: Mapping[str, int], *, validate_only: bool = False
) -> dict[str, DlogError | None]:
    """Raises the number of partitions, of each topic to its count in all; what became of each."""
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in counts.items()
        ],
        timeout_ms=cluster.options.request_timeout_ms,
        validate_only=validate_only,
    )
    response = await ask_controller(
        cluster,
        request,
        CreatePartitionsResponse,
        lambda response: (each.error_code for each in response.results),
    )
    cluster.mark_stale()
    return {
        result.name: outcome(result.error_code, f"topic {result.name!r}", result.error_message)
        for result in response.results
    }


# --- leaders -----------------------------------------------------------------------------------


async def elect_leaders(
    cluster: Cluster, partitions: Collection[TopicPartition] | None = None, *, unclean: bool = False
) -> dict[TopicPartition, DlogError | None]:
    """Gives partitions (None: all that need it) to their preferred replicas; or, if `unclean`, those without
    a leader to any replica that is alive, which loses what only others have.  What became of each: None if it
    has another leader now; ELECTION_NOT_NEEDED is an outcome too."""
    asked: dict[str, list[int]] = {}
    for each in partitions or ():
        asked.setdefault(each.topic, []).append(each.partition)
    request = ElectLeadersRequest(
        election_type=UNCLEAN_ELECTION if unclean else PREFERRED_ELECTION,
        topic_partitions=None
        if partitions is None
        else [TopicPartitions(topic=topic, partitions=indexes) for topic, indexes in asked.items()],
        timeout_ms=cluster.options.request_timeout_ms,
    )
    response = await ask_controller(cluster, request, ElectLeadersResponse, _election_codes)
    check_response(response.error_code, "the election of leaders")
    cluster.mark_stale()
    return {
        TopicPartition(topic.topic, result.partition_id): outcome(
            result.error_code, f"partition {topic.topic}-{result.partition_id}", result.error_message
        )
        for topic in response.replica_election_results
        for result in topic.partition_result
    }


def _election_codes(response: ElectLeadersResponse) -> Iterator[int]:
    yield response.error_code
    for topic in response.replica_election_results:
        yield from (each.error_code for each in topic.partition_result)


# --- records -----------------------------------------------------------------------------------


async def delete_records(
    cluster: Cluster, before: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | DlogError]:
    """Returns where each partition begins now that what lay before the offset is gone, or the reason why
    not."""
    outcomes: dict[TopicPartition, int | DlogError] = {}

    async def attempt() -> None:
        missing = [each for each in before if _may_change(outcomes.get(each))]
        by_leader = await cluster.by_leader(missing)
        responses = await asyncio.gather(
            *(_delete_at(cluster, leader, {each: before[each] for each in led}, outcomes)
              for leader, led in by_leader.items())
        )  # fmt: skip
        failures = [failure for response in responses for failure in response]
        if failures:
            raise failures[0]

    try:
        await cluster.retrying(attempt, is_worth_waiting=may_pass)
    except DlogError as error:
        for each in before:
            outcomes.setdefault(each, error)
    return outcomes


def _may_change(known: int | DlogError | None) -> bool:
    return known is None or (isinstance(known, DlogError) and may_pass(known))


async def _delete_at(
    cluster: Cluster,
    leader: int,
    before: Mapping[TopicPartition, int],
    outcomes: dict[TopicPartition, int | DlogError],
) -> list[DlogError]:
    """Notes what became of each; returns the failures that another try may mend."""
    try:
        response = await _ask_to_delete(cluster, leader, before)
    except DlogError as error:
        outcomes.update(dict.fromkeys(before, error))
        return [error] if may_pass(error) else []
    failures = []
    for topic in response.topics:
        for result in topic.partitions:
            partition = TopicPartition(topic.name, result.partition_index)
            if result.error_code == ErrorCode.NONE:
                outcomes[partition] = result.low_watermark
                continue
            outcomes[partition] = failure = error_from(result.error_code, f"partition {partition}")
            failures += [failure] if may_pass(failure) else []
    return failures


async def _ask_to_delete(
    cluster: Cluster, leader: int, before: Mapping[TopicPartition, int]
) -> DeleteRecordsResponse:
    topics: dict[str, list[DeleteRecordsPartition]] = {}
    for each, offset in before.items():
        topics.setdefault(each.topic, []).append(
            DeleteRecordsPartition(partition_index=each.partition, offset=offset)
        )
    timeout_ms = cluster.options.request_timeout_ms
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=name, partitions=found) for name, found in topics.items()],
        timeout_ms=timeout_ms,
    )
    return await cluster.call(await cluster.connection(leader), request, DeleteRecordsResponse, timeout_ms)
