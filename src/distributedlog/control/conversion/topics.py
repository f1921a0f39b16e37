"""Topics: made, removed, grown; and the outcomes that items of any request have."""

from collections.abc import Iterable

from distributedlog.control._generated import common_pb2
from distributedlog.control._generated import controller_pb2 as pb
from distributedlog.control.conversion.checks import Budget, error_code, text, uuid
from distributedlog.controller.requests import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ItemOutcome,
    MorePartitions,
    NewTopic,
    TopicOutcome,
    TopicsReply,
)
from distributedlog.model.errors import MalformedMessageError
from distributedlog.model.ids import Uuid


def outcome(item: ItemOutcome) -> common_pb2.Outcome:
    return common_pb2.Outcome(error=item.error, message=item.message)


def outcome_from(message: common_pb2.Outcome) -> ItemOutcome:
    return ItemOutcome(
        error_code(message.error), text(message.message) if message.HasField("message") else None
    )


def settings(items: Iterable[tuple[str, str | None]]) -> list[pb.Setting]:
    return [pb.Setting(name=name, value=value) for name, value in items]


def setting_from(message: pb.Setting) -> tuple[str, str | None]:
    return text(message.name), text(message.value) if message.HasField("value") else None


# --- create ------------------------------------------------------------------------------------


def create_topics(request: CreateTopicsRequest) -> pb.CreateTopicsRequest:
    return pb.CreateTopicsRequest(
        topics=[_new_topic(topic) for topic in request.topics], validate_only=request.validate_only
    )


def _new_topic(topic: NewTopic) -> pb.NewTopic:
    return pb.NewTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            pb.PartitionAssignment(partition_id=partition_id, replicas=replicas)
            for partition_id, replicas in topic.assignments
        ],
        configs=settings(topic.configs),
    )


def create_topics_from(message: pb.CreateTopicsRequest, budget: Budget) -> CreateTopicsRequest:
    def assignment(item: pb.PartitionAssignment) -> tuple[int, tuple[int, ...]]:
        return item.partition_id, budget.numbers(item.replicas)

    def new_topic(item: pb.NewTopic) -> NewTopic:
        return NewTopic(
            name=text(item.name),
            num_partitions=item.num_partitions,
            replication_factor=item.replication_factor,
            assignments=budget.each(item.assignments, assignment),
            configs=budget.each(item.configs, setting_from),
        )

    return CreateTopicsRequest(budget.each(message.topics, new_topic), message.validate_only)


def topics_reply(reply: TopicsReply) -> pb.TopicsReply:
    return pb.TopicsReply(
        topics=[
            pb.TopicOutcome(
                name=topic.name,
                topic_id=topic.topic_id.bytes16,
                outcome=outcome(topic.outcome),
                num_partitions=topic.num_partitions,
                replication_factor=topic.replication_factor,
            )
            for topic in reply.topics
        ]
    )


def topics_reply_from(message: pb.TopicsReply, budget: Budget) -> TopicsReply:
    return TopicsReply(budget.each(message.topics, _topic_outcome_from))


def _topic_outcome_from(message: pb.TopicOutcome) -> TopicOutcome:
    return TopicOutcome(
        name=text(message.name) if message.HasField("name") else None,
        topic_id=uuid(message.topic_id),
        outcome=outcome_from(message.outcome),
        num_partitions=message.num_partitions,
        replication_factor=message.replication_factor,
    )


# --- delete ------------------------------------------------------------------------------------


def delete_topics(request: DeleteTopicsRequest) -> pb.DeleteTopicsRequest:
    return pb.DeleteTopicsRequest(
        topics=[
            pb.TopicReference(topic_id=topic.bytes16)
            if isinstance(topic, Uuid)
            else pb.TopicReference(name=topic)
            for topic in request.topics
        ]
    )


def delete_topics_from(message: pb.DeleteTopicsRequest, budget: Budget) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(budget.each(message.topics, _reference_from))


def _reference_from(message: pb.TopicReference) -> str | Uuid:
    by = message.WhichOneof("by")
    if by is None:
        raise MalformedMessageError("a topic is named neither by its name nor by its id")
    return uuid(message.topic_id) if by == "topic_id" else text(message.name)


# --- grow --------------------------------------------------------------------------------------


def create_partitions(request: CreatePartitionsRequest) -> pb.CreatePartitionsRequest:
    return pb.CreatePartitionsRequest(
        topics=[_more_partitions(topic) for topic in request.topics], validate_only=request.validate_only
    )


def _more_partitions(topic: MorePartitions) -> pb.MorePartitions:
    assignments = None
    if topic.assignments is not None:
        assignments = pb.ReplicaLists(
            partitions=[pb.Replicas(broker_ids=replicas) for replicas in topic.assignments]
        )
    return pb.MorePartitions(name=topic.name, count=topic.count, assignments=assignments)


def create_partitions_from(message: pb.CreatePartitionsRequest, budget: Budget) -> CreatePartitionsRequest:
    def replicas(item: pb.Replicas) -> tuple[int, ...]:
        return budget.numbers(item.broker_ids)

    def more_partitions(item: pb.MorePartitions) -> MorePartitions:
        given = item.HasField("assignments")
        assignments = budget.each(item.assignments.partitions, replicas) if given else None
        return MorePartitions(text(item.name), item.count, assignments)

    return CreatePartitionsRequest(budget.each(message.topics, more_partitions), message.validate_only)
