"""Who keeps the metadata log, and how far."""

from distributedlog.control._generated import controller_pb2 as pb
from distributedlog.control.conversion.checks import Budget
from distributedlog.controller.requests import DescribeQuorumRequest, QuorumReply, ReplicaProgress


def describe_quorum(_request: DescribeQuorumRequest) -> pb.DescribeQuorumRequest:
    return pb.DescribeQuorumRequest()


def describe_quorum_from(_message: pb.DescribeQuorumRequest, _budget: Budget) -> DescribeQuorumRequest:
    return DescribeQuorumRequest()


def _progress(replica: ReplicaProgress) -> pb.ReplicaProgress:
    return pb.ReplicaProgress(
        node_id=replica.node_id,
        log_end_offset=replica.log_end_offset,
        heard_ms=replica.heard_ms,
        caught_up_ms=replica.caught_up_ms,
    )


def _progress_from(message: pb.ReplicaProgress) -> ReplicaProgress:
    return ReplicaProgress(message.node_id, message.log_end_offset, message.heard_ms, message.caught_up_ms)


def quorum_reply(reply: QuorumReply) -> pb.QuorumReply:
    return pb.QuorumReply(
        leader_id=reply.leader_id,
        term=reply.term,
        high_watermark=reply.high_watermark,
        voters=[_progress(each) for each in reply.voters],
        observers=[_progress(each) for each in reply.observers],
    )


def quorum_reply_from(message: pb.QuorumReply, budget: Budget) -> QuorumReply:
    return QuorumReply(
        message.leader_id,
        message.term,
        message.high_watermark,
        budget.each(message.voters, _progress_from),
        budget.each(message.observers, _progress_from),
    )
