"""Changes of ISRs, elections, and moves."""

from distributedlog.control._generated import controller_pb2 as pb
from distributedlog.control.conversion.checks import Budget, error_code, text, uuid
from distributedlog.control.conversion.topics import outcome, outcome_from
from distributedlog.controller.requests import (
    AlterPartitionsReply,
    AlterPartitionsRequest,
    AlterReassignmentsReply,
    AlterReassignmentsRequest,
    ElectLeadersReply,
    ElectLeadersRequest,
    IsrChange,
    IsrMember,
    IsrOutcome,
)
from distributedlog.model.ids import TopicPartition


def alter_partitions(request: AlterPartitionsRequest) -> pb.AlterPartitionsRequest:
    return pb.AlterPartitionsRequest(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        changes=[_change(change) for change in request.changes],
    )


def _change(change: IsrChange) -> pb.IsrChange:
    return pb.IsrChange(
        topic_id=change.topic_id.bytes16,
        partition_id=change.partition_id,
        leader_epoch=change.leader_epoch,
        partition_epoch=change.partition_epoch,
        isr=[
            pb.IsrMember(broker_id=member.broker_id, broker_epoch=member.broker_epoch)
            for member in change.isr
        ],
        recovery_state=change.recovery_state,
    )


def alter_partitions_from(message: pb.AlterPartitionsRequest, budget: Budget) -> AlterPartitionsRequest:
    def change(item: pb.IsrChange) -> IsrChange:
        return IsrChange(
            topic_id=uuid(item.topic_id),
            partition_id=item.partition_id,
            leader_epoch=item.leader_epoch,
            partition_epoch=item.partition_epoch,
            isr=budget.each(item.isr, lambda member: IsrMember(member.broker_id, member.broker_epoch)),
            recovery_state=item.recovery_state,
        )

    return AlterPartitionsRequest(
        message.broker_id, message.broker_epoch, budget.each(message.changes, change)
    )


def alter_partitions_reply(reply: AlterPartitionsReply) -> pb.AlterPartitionsReply:
    return pb.AlterPartitionsReply(
        changes=[
            pb.IsrOutcome(
                topic_id=change.topic_id.bytes16,
                partition_id=change.partition_id,
                error=change.error,
                leader=change.leader,
                leader_epoch=change.leader_epoch,
                partition_epoch=change.partition_epoch,
                isr=change.isr,
                recovery_state=change.recovery_state,
            )
            for change in reply.changes
        ]
    )


def alter_partitions_reply_from(message: pb.AlterPartitionsReply, budget: Budget) -> AlterPartitionsReply:
    def change(item: pb.IsrOutcome) -> IsrOutcome:
        return IsrOutcome(
            topic_id=uuid(item.topic_id),
            partition_id=item.partition_id,
            error=error_code(item.error),
            leader=item.leader,
            leader_epoch=item.leader_epoch,
            partition_epoch=item.partition_epoch,
            isr=budget.numbers(item.isr),
            recovery_state=item.recovery_state,
        )

    return AlterPartitionsReply(budget.each(message.changes, change))


def _partition(partition: TopicPartition) -> pb.TopicPartition:
    return pb.TopicPartition(topic=partition.topic, partition=partition.partition)


def _partition_from(message: pb.TopicPartition) -> TopicPartition:
    return TopicPartition(text(message.topic), message.partition)


def elect_leaders(request: ElectLeadersRequest) -> pb.ElectLeadersRequest:
    partitions = None
    if request.partitions is not None:
        partitions = pb.TopicPartitions(partitions=[_partition(each) for each in request.partitions])
    return pb.ElectLeadersRequest(election=request.election, partitions=partitions)


def elect_leaders_from(message: pb.ElectLeadersRequest, budget: Budget) -> ElectLeadersRequest:
    named = message.HasField("partitions")
    partitions = budget.each(message.partitions.partitions, _partition_from) if named else None
    return ElectLeadersRequest(message.election, partitions)


def elect_leaders_reply(reply: ElectLeadersReply) -> pb.ElectLeadersReply:
    return pb.ElectLeadersReply(
        partitions=[
            pb.ElectionOutcome(partition=_partition(partition), outcome=outcome(item))
            for partition, item in reply.partitions
        ]
    )


def elect_leaders_reply_from(message: pb.ElectLeadersReply, budget: Budget) -> ElectLeadersReply:
    return ElectLeadersReply(
        budget.each(
            message.partitions, lambda item: (_partition_from(item.partition), outcome_from(item.outcome))
        )
    )


def alter_reassignments(request: AlterReassignmentsRequest) -> pb.AlterReassignmentsRequest:
    return pb.AlterReassignmentsRequest(
        partitions=[
            pb.Reassignment(
                partition=_partition(partition),
                replicas=None if replicas is None else pb.Replicas(broker_ids=replicas),
            )
            for partition, replicas in request.partitions
        ],
        allow_replication_factor_change=request.allow_replication_factor_change,
    )


def alter_reassignments_from(
    message: pb.AlterReassignmentsRequest, budget: Budget
) -> AlterReassignmentsRequest:
    def reassignment(item: pb.Reassignment) -> tuple[TopicPartition, tuple[int, ...] | None]:
        named = item.HasField("replicas")
        return _partition_from(item.partition), budget.numbers(item.replicas.broker_ids) if named else None

    return AlterReassignmentsRequest(
        budget.each(message.partitions, reassignment), message.allow_replication_factor_change
    )


def alter_reassignments_reply(reply: AlterReassignmentsReply) -> pb.AlterReassignmentsReply:
    return pb.AlterReassignmentsReply(
        partitions=[
            pb.ReassignmentOutcome(partition=_partition(partition), outcome=outcome(item))
            for partition, item in reply.partitions
        ]
    )


def alter_reassignments_reply_from(
    message: pb.AlterReassignmentsReply, budget: Budget
) -> AlterReassignmentsReply:
    return AlterReassignmentsReply(
        budget.each(
            message.partitions, lambda item: (_partition_from(item.partition), outcome_from(item.outcome))
        )
    )
