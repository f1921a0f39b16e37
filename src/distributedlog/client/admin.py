"""Topics: list, describe, create, delete; their settings and sizes.  For programs without a loop: `blocking`.

Reads are tried again as long as that may help.  Creating and deleting are tried again only if nothing was
done for sure (nobody was reached, it was not the controller): after a lost connection or a timeout it is the
caller who decides, because a second try would report its own first one as somebody else's.

What a broker does not serve (settings, sizes) is reported as None, not as an error: older and smaller ones
do not have it.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, NamedTuple

from distributedlog.client.addresses import parse_bootstrap
from distributedlog.client.errors import (
    UNKNOWN_OUTCOME,
    as_error_code,
    code_of,
    error_from,
    is_retriable,
)
from distributedlog.client.metadata import Cluster
from distributedlog.client.offsets import list_offsets
from distributedlog.client.options import ClientOptions
from distributedlog.client.places import EARLIEST, LATEST, Isolation, OffsetAt
from distributedlog.client.view import ClusterView, TopicView
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError, UnknownTopicError, UnsupportedVersionError
from distributedlog.model.ids import ZERO_UUID, TopicPartition, Uuid
from distributedlog.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from distributedlog.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from distributedlog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from distributedlog.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

AS_CONFIGURED: Final = -1
TOPIC_RESOURCE: Final = 2
TOPIC_CONFIG_SOURCE: Final = 1
_BEFORE_ANYTHING: Final = frozenset(
    {ErrorCode.NOT_CONTROLLER, ErrorCode.NETWORK_EXCEPTION, ErrorCode.LEADER_NOT_AVAILABLE}
)
"""Failures of a change before anything was done."""


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


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    name: str
    value: str | None
    source: int
    is_sensitive: bool = False

    @property
    def is_set_on_topic(self) -> bool:
        return self.source == TOPIC_CONFIG_SOURCE


class OffsetRange(NamedTuple):
    """Where a partition begins and ends."""

    start: int
    end: int


class Admin:
    """Works on a cluster that it is given, or opens one with `Admin.connect`."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    @classmethod
    def connect(cls, bootstrap: str, options: ClientOptions | None = None) -> "Admin":
        """Connects when it is first used."""
        return cls(Cluster(parse_bootstrap(bootstrap), options))

    async def __aenter__(self) -> "Admin":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self.cluster.close()

    # --- reading -------------------------------------------------------------------------------

    async def describe_cluster(self) -> ClusterView:
        return await self.cluster.retrying(lambda: self.cluster.refresh(()))

    async def list_topics(self, *, with_internal: bool = False) -> tuple[TopicView, ...]:
        view = await self.cluster.retrying(lambda: self.cluster.refresh(None))
        topics = (view.topics[name] for name in sorted(view.topics))
        return tuple(each for each in topics if with_internal or not each.is_internal)

    async def describe_topics(self, names: Collection[str]) -> tuple[TopicView, ...]:
        """In the order of the names.  A partition without a leader is described as it is."""
        view = await self.cluster.retrying(lambda: self.cluster.refresh(set(names)))
        found = []
        for name in names:
            topic = view.topics.get(name)
            if topic is None or topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise UnknownTopicError(f"there is no topic {name!r}")
            if topic.error not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
                raise error_from(topic.error, f"topic {name!r}")
            found.append(topic)
        return tuple(found)

    async def list_offsets(
        self,
        wanted: Mapping[TopicPartition, int],
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, OffsetAt]:
        return await list_offsets(self.cluster, wanted, isolation)

    async def offset_ranges(self, topics: Sequence[TopicView]) -> dict[TopicPartition, OffsetRange]:
        """Of the partitions that have a leader."""
        led = [
            TopicPartition(topic.name, each.index)
            for topic in topics
            for each in topic.partitions
            if each.has_leader
        ]
        if not led:
            return {}
        starts = await self.list_offsets(dict.fromkeys(led, EARLIEST))
        ends = await self.list_offsets(dict.fromkeys(led, LATEST))
        return {each: OffsetRange(starts[each].offset, ends[each].offset) for each in led}

    async def topic_configs(self, name: str) -> tuple[ConfigEntry, ...] | None:
        """All settings of a topic by name; None if the broker does not serve them."""
        resource = DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None
        )
        request = DescribeConfigsRequest(resources=[resource])

        async def attempt() -> tuple[ConfigEntry, ...] | None:
            connection = await self.cluster.any_connection()
            if not connection.serves(DescribeConfigsRequest):
                return None
            response = await self.cluster.call(connection, request, DescribeConfigsResponse)
            entries: list[ConfigEntry] = []
            for result in response.results:
                if result.error_code != ErrorCode.NONE:
                    raise error_from(
                        result.error_code, f"the settings of topic {name!r}", result.error_message
                    )
                entries += (
                    ConfigEntry(each.name, each.value, each.config_source, each.is_sensitive)
                    for each in result.configs
                )
            return tuple(sorted(entries, key=lambda each: each.name))

        return await self.cluster.retrying(attempt)

    async def log_sizes(self, topics: Sequence[TopicView]) -> dict[TopicPartition, int] | None:
        """The bytes of each partition on its largest replica; None if no broker serves sizes."""
        wanted = [
            DescribableLogDirTopic(topic=topic.name, partitions=[each.index for each in topic.partitions])
            for topic in topics
        ]
        request = DescribeLogDirsRequest(topics=wanted)
        brokers = await self.cluster.retrying(self.cluster.brokers)
        answers = await asyncio.gather(*(self._log_dirs(each.node_id, request) for each in brokers))
        served = [answer for answer in answers if answer is not None]
        if not served:
            return None
        sizes: dict[TopicPartition, int] = {}
        for answer in served:
            for result in answer.results:
                for topic in result.topics:
                    for told in topic.partitions:
                        partition = TopicPartition(topic.name, told.partition_index)
                        sizes[partition] = max(sizes.get(partition, 0), told.partition_size)
        return sizes

    async def _log_dirs(
        self, node_id: int, request: DescribeLogDirsRequest
    ) -> DescribeLogDirsResponse | None:
        """None also for a broker that is down: the others know their replicas."""
        try:
            connection = await self.cluster.connection(node_id)
            return await self.cluster.call(connection, request, DescribeLogDirsResponse)
        except UnsupportedVersionError:
            return None
        except DlogError as error:
            if not is_retriable(error):
                raise
            return None

    # --- changing ------------------------------------------------------------------------------

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> dict[str, CreatedTopic | DlogError]:
        """What became of each: created, or the reason why not."""
        request = CreateTopicsRequest(
            topics=[_creatable(each) for each in topics],
            timeout_ms=self.cluster.options.request_timeout_ms,
            validate_only=validate_only,
        )

        async def attempt() -> CreateTopicsResponse:
            connection = await self.cluster.controller()
            timeout_ms = request.timeout_ms
            response = await self.cluster.call(connection, request, CreateTopicsResponse, timeout_ms)
            _raise_if_not_controller(each.error_code for each in response.topics)
            return response

        response = await self.cluster.retrying(attempt, is_worth_waiting=_nothing_was_done)
        outcomes: dict[str, CreatedTopic | DlogError] = {}
        for told in response.topics:
            if told.error_code == ErrorCode.NONE:
                outcomes[told.name] = CreatedTopic(
                    told.name, told.topic_id, told.num_partitions, told.replication_factor
                )
            else:
                outcomes[told.name] = error_from(told.error_code, f"topic {told.name!r}", told.error_message)
        self.cluster.mark_stale()
        return outcomes

    async def create_topic(self, topic: NewTopic) -> CreatedTopic:
        outcome = (await self.create_topics([topic])).get(topic.name)
        if outcome is None:
            raise UnknownTopicError(f"the broker did not say what became of topic {topic.name!r}")
        if isinstance(outcome, DlogError):
            raise outcome
        return outcome

    async def delete_topics(self, names: Sequence[str]) -> dict[str, DlogError | None]:
        """What became of each: None if it is gone, or the reason why not."""
        timeout_ms = self.cluster.options.request_timeout_ms
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names],
            topic_names=list(names),
            timeout_ms=timeout_ms,
        )

        async def attempt() -> DeleteTopicsResponse:
            connection = await self.cluster.controller()
            response = await self.cluster.call(connection, request, DeleteTopicsResponse, timeout_ms)
            _raise_if_not_controller(each.error_code for each in response.responses)
            return response

        response = await self.cluster.retrying(attempt, is_worth_waiting=_nothing_was_done)
        self.cluster.mark_stale()
        return {
            told.name: None
            if told.error_code == ErrorCode.NONE
            else error_from(told.error_code, f"topic {told.name!r}", told.error_message)
            for told in response.responses
            if told.name is not None
        }


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        assignments=[],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )


def _raise_if_not_controller(codes: Iterable[int]) -> None:
    """Then it was nobody's fault and nothing was done, for any of them."""
    if any(as_error_code(code) is ErrorCode.NOT_CONTROLLER for code in codes):
        raise error_from(ErrorCode.NOT_CONTROLLER, "the broker that was asked")


def _nothing_was_done(error: DlogError) -> bool:
    return not isinstance(error, UNKNOWN_OUTCOME) and code_of(error) in _BEFORE_ANYTHING
