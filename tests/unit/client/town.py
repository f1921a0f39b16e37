"""A scripted broker that keeps topics: they can be made, described, measured and deleted."""

from dataclasses import dataclass, field
from typing import ClassVar

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from distributedlog.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from distributedlog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from distributedlog.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from distributedlog.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from distributedlog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.unit.client.stage import Answer, ScriptedBroker

END_OFFSET = 7


@dataclass
class Town:
    DEFAULT_PARTITIONS: ClassVar[int] = 4

    topics: dict[str, int] = field(default_factory=dict)
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    is_small: bool = False
    """It serves metadata and offsets only."""

    def broker(self) -> ScriptedBroker:
        answers: dict[ApiKey, Answer] = {ApiKey.LIST_OFFSETS: self.list_offsets}
        versions = {ApiKey.LIST_OFFSETS: (1, 7)}
        if not self.is_small:
            answers |= {
                ApiKey.CREATE_TOPICS: self.create,
                ApiKey.DELETE_TOPICS: self.delete,
                ApiKey.DESCRIBE_CONFIGS: self.describe_configs,
                ApiKey.DESCRIBE_LOG_DIRS: self.describe_log_dirs,
            }
            versions |= {
                ApiKey.CREATE_TOPICS: (2, 7),
                ApiKey.DELETE_TOPICS: (1, 6),
                ApiKey.DESCRIBE_CONFIGS: (1, 4),
                ApiKey.DESCRIBE_LOG_DIRS: (1, 4),
            }
        broker = ScriptedBroker(answers=answers, topics=self.topics, versions=versions)

        def metadata(request: MetadataRequest, version: int) -> MetadataResponse:
            response = broker.metadata(request, version)
            for topic in response.topics:
                topic.is_internal = (topic.name or "").startswith("__")
            return response

        answers[ApiKey.METADATA] = metadata
        return broker

    def create(self, request: CreateTopicsRequest, _version: int) -> CreateTopicsResponse:
        results = [self._create(each, is_real=not request.validate_only) for each in request.topics]
        return CreateTopicsResponse(topics=results)

    def _create(self, wanted: CreatableTopic, *, is_real: bool) -> CreatableTopicResult:
        if wanted.name in self.topics:
            return CreatableTopicResult(name=wanted.name, error_code=36, error_message="it is there already")
        if wanted.replication_factor > 1:
            return CreatableTopicResult(
                name=wanted.name, error_code=38, error_message="there is only 1 broker"
            )
        count = self.DEFAULT_PARTITIONS if wanted.num_partitions < 0 else wanted.num_partitions
        if is_real:
            self.topics[wanted.name] = count
            self.configs[wanted.name] = {each.name: each.value or "" for each in wanted.configs}
        return CreatableTopicResult(name=wanted.name, num_partitions=count, replication_factor=1)

    def delete(self, request: DeleteTopicsRequest, _version: int) -> DeleteTopicsResponse:
        names = request.topic_names or [each.name or "" for each in request.topics]
        return DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(name=name, error_code=0 if self.topics.pop(name, None) else 3)
                for name in names
            ]
        )

    def describe_configs(self, request: DescribeConfigsRequest, _version: int) -> DescribeConfigsResponse:
        results = []
        for resource in request.resources:
            entries = {"cleanup.policy": ("delete", 5)}
            own = self.configs.get(resource.resource_name, {})
            entries |= {name: (value, 1) for name, value in own.items()}
            configs = [
                DescribeConfigsResourceResult(
                    name=name,
                    value=value,
                    read_only=False,
                    config_source=source,
                    is_sensitive=False,
                    synonyms=[],
                )
                for name, (value, source) in entries.items()
            ]
            results.append(
                DescribeConfigsResult(resource_type=2, resource_name=resource.resource_name, configs=configs)
            )
        return DescribeConfigsResponse(results=results)

    def describe_log_dirs(self, request: DescribeLogDirsRequest, _version: int) -> DescribeLogDirsResponse:
        topics = [
            DescribeLogDirsTopic(
                name=each.topic,
                partitions=[
                    DescribeLogDirsPartition(
                        partition_index=index, partition_size=1000 + index, offset_lag=0, is_future_key=False
                    )
                    for index in each.partitions
                ],
            )
            for each in request.topics or []
        ]
        return DescribeLogDirsResponse(results=[DescribeLogDirsResult(log_dir="data", topics=topics)])

    def list_offsets(self, request: ListOffsetsRequest, _version: int) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=each.partition_index,
                            offset=END_OFFSET if each.timestamp == -1 else 0,
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )
