"""Requests that several probes ask, made from what matters to them."""

from collections.abc import Sequence
from typing import Any

from distributedlog.model.ids import Uuid
from distributedlog.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from distributedlog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from distributedlog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from distributedlog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from distributedlog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from distributedlog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from distributedlog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from distributedlog.records.record import Record, encode_batch
from tests.compat.differential.asking import Conversation, Topic

TOPIC_RESOURCE, BROKER_RESOURCE, BROKER_LOGGER_RESOURCE = 2, 4, 8
CLIENT_METRICS_RESOURCE, GROUP_RESOURCE = 16, 32
DESCRIBE_VERSION = 4
NO_TOPIC = Uuid(bytes.fromhex("0123456789abcdef0123456789abcdef"))
"""An id that no topic has."""


def batch_of(of: Conversation, count: int = 3, *, key: bytes | None = b"k", **more: Any) -> bytes:
    """Records a second apart, the first at the beginning of the run."""
    records = [
        Record(value=b"value %d" % at, key=key, timestamp_ms=of.started_ms + 1000 * at) for at in range(count)
    ]
    return bytes(encode_batch(records, **more))


def produce(
    topic: Topic, records: bytes | None, *, partition: int = 0, acks: int = -1, **more: Any
) -> ProduceRequest:
    data = [PartitionProduceData(index=partition, records=records)]
    topics = [TopicProduceData(name=topic.name, topic_id=topic.id, partition_data=data)]
    return ProduceRequest(**{"acks": acks, "timeout_ms": 10_000, "topic_data": topics, **more})


def fetch(topic: Topic, offset: int = 0, *, partition: int = 0, **more: Any) -> FetchRequest:
    place = {
        name: more.pop(name)
        for name in ("current_leader_epoch", "last_fetched_epoch", "partition_max_bytes", "log_start_offset")
        if name in more
    }
    fields: dict[str, Any] = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    asked = FetchPartition(**(fields | place))
    topics = [FetchTopic(topic=topic.name, topic_id=topic.id, partitions=[asked])]
    return FetchRequest(**{"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "topics": topics, **more})


def list_offsets(
    topic: str, timestamps: Sequence[int], *, partition: int = 0, epoch: int = -1, **more: Any
) -> ListOffsetsRequest:
    asked = [
        ListOffsetsPartition(partition_index=partition, timestamp=at, current_leader_epoch=epoch)
        for at in timestamps
    ]
    topics = [ListOffsetsTopic(name=topic, partitions=asked)]
    return ListOffsetsRequest(**{"replica_id": -1, "topics": topics, **more})


def metadata(*names: str, **more: Any) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(**{"topics": topics, "allow_auto_topic_creation": False, **more})


def new_topic(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    *,
    configs: Sequence[tuple[str, str | None]] = (),
    assignments: Sequence[tuple[int, Sequence[int]]] = (),
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            CreatableReplicaAssignment(partition_index=at, broker_ids=list(brokers))
            for at, brokers in assignments
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs],
    )


def create(*topics: CreatableTopic, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(topics), timeout_ms=15_000, validate_only=validate_only)


def describe_configs(kind: int, name: str, keys: Sequence[str] | None, **more: Any) -> DescribeConfigsRequest:
    wanted = None if keys is None else list(keys)
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=wanted)
    return DescribeConfigsRequest(resources=[resource], **more)


def alter_incrementally(
    kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> IncrementalAlterConfigsRequest:
    configs = [AlterableConfig(name=key, config_operation=what, value=value) for key, what, value in changes]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)


def ask_until_told(of: Conversation, label: str, kind: int, name: str, key: str, value: str | None) -> None:
    """Describes a setting, once the broker says of it what was set."""
    of.ask(label, wait_until_told(of, kind, name, key, value), DESCRIBE_VERSION)


def wait_until_told(
    of: Conversation, kind: int, name: str, key: str, value: str | None
) -> DescribeConfigsRequest:
    """Waits until the broker says of a setting what was set; returns what it was asked."""

    def is_told(answer: DescribeConfigsResponse) -> bool:
        return any(each.name == key and each.value == value for each in answer.results[0].configs)

    request = describe_configs(kind, name, [key], include_synonyms=True)
    of.call_until(request, DESCRIBE_VERSION, DescribeConfigsResponse, is_told)
    return request
