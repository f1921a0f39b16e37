"""Registration and heartbeats of brokers, producer ids."""

from distributedlog.control._generated import controller_pb2 as pb
from distributedlog.control.conversion.checks import Budget, text, uuid
from distributedlog.controller.image import Endpoint, SupportedLevels
from distributedlog.controller.replica_faults import ReplicaFault
from distributedlog.controller.requests import (
    UNKNOWN_EPOCH,
    AllocateProducerIdsRequest,
    HeartbeatReply,
    HeartbeatRequest,
    ProducerIdBlock,
    RegisterBrokerReply,
    RegisterBrokerRequest,
    UnregisterBrokerRequest,
)
from distributedlog.controller.sessions.log_ends import ReplicaLogEnd


def register_broker(request: RegisterBrokerRequest) -> pb.RegisterBrokerRequest:
    return pb.RegisterBrokerRequest(
        cluster_id=request.cluster_id,
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id.bytes16,
        endpoints=[
            pb.Endpoint(name=name, host=host, port=port, security_protocol=security_protocol)
            for name, host, port, security_protocol in request.endpoints
        ],
        features=[pb.SupportedLevels(name=name, low=low, high=high) for name, low, high in request.features],
        rack=request.rack,
        log_dirs=[directory.bytes16 for directory in request.log_dirs],
        previous_broker_epoch=request.previous_broker_epoch,
        predecessors=[each.bytes16 for each in request.predecessors],
        synced_broker_epoch=request.synced_broker_epoch,
        host=request.host,
    )


def register_broker_from(message: pb.RegisterBrokerRequest, budget: Budget) -> RegisterBrokerRequest:
    return RegisterBrokerRequest(
        cluster_id=text(message.cluster_id),
        broker_id=message.broker_id,
        incarnation_id=uuid(message.incarnation_id),
        endpoints=budget.each(message.endpoints, _endpoint_from),
        features=budget.each(message.features, _levels_from),
        rack=text(message.rack) if message.HasField("rack") else None,
        log_dirs=budget.each(message.log_dirs, uuid),
        previous_broker_epoch=message.previous_broker_epoch,
        predecessors=budget.each(message.predecessors, uuid),
        synced_broker_epoch=(
            message.synced_broker_epoch if message.HasField("synced_broker_epoch") else UNKNOWN_EPOCH
        ),
        host=text(message.host) if message.HasField("host") else None,
    )


def _endpoint_from(message: pb.Endpoint) -> Endpoint:
    return Endpoint(text(message.name), text(message.host), message.port, message.security_protocol)


def _levels_from(message: pb.SupportedLevels) -> SupportedLevels:
    return SupportedLevels(text(message.name), message.low, message.high)


def register_broker_reply(reply: RegisterBrokerReply) -> pb.RegisterBrokerReply:
    return pb.RegisterBrokerReply(broker_epoch=reply.broker_epoch)


def register_broker_reply_from(message: pb.RegisterBrokerReply, budget: Budget) -> RegisterBrokerReply:
    return RegisterBrokerReply(message.broker_epoch)


def heartbeat(request: HeartbeatRequest) -> pb.HeartbeatRequest:
    return pb.HeartbeatRequest(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        metadata_offset=request.metadata_offset,
        want_fence=request.want_fence,
        want_shutdown=request.want_shutdown,
        data_loop_lag_ms=request.data_loop_lag_ms,
        replica_faults=[
            pb.ReplicaFault(topic_id=topic_id.bytes16, partition_id=partition_id, fault=fault)
            for topic_id, partition_id, fault in request.replica_faults
        ],
        applied_offset=request.applied_offset,
        log_ends=[
            pb.ReplicaLogEnd(
                topic_id=each.topic_id.bytes16,
                partition_id=each.partition_id,
                leader_epoch=each.leader_epoch,
                last_epoch=each.last_epoch,
                end_offset=each.end_offset,
            )
            for each in request.log_ends
        ],
    )


def heartbeat_from(message: pb.HeartbeatRequest, budget: Budget) -> HeartbeatRequest:
    return HeartbeatRequest(
        broker_id=message.broker_id,
        broker_epoch=message.broker_epoch,
        metadata_offset=message.metadata_offset,
        want_fence=message.want_fence,
        want_shutdown=message.want_shutdown,
        data_loop_lag_ms=message.data_loop_lag_ms,
        replica_faults=budget.each(message.replica_faults, _fault_from),
        applied_offset=message.applied_offset if message.HasField("applied_offset") else None,
        log_ends=budget.each(message.log_ends, _log_end_from),
    )


def _fault_from(message: pb.ReplicaFault) -> ReplicaFault:
    return ReplicaFault(uuid(message.topic_id), message.partition_id, message.fault)


def _log_end_from(message: pb.ReplicaLogEnd) -> ReplicaLogEnd:
    return ReplicaLogEnd(
        uuid(message.topic_id),
        message.partition_id,
        message.leader_epoch,
        message.last_epoch,
        message.end_offset,
    )


def heartbeat_reply(reply: HeartbeatReply) -> pb.HeartbeatReply:
    return pb.HeartbeatReply(
        is_caught_up=reply.is_caught_up,
        is_fenced=reply.is_fenced,
        in_controlled_shutdown=reply.in_controlled_shutdown,
        should_shut_down=reply.should_shut_down,
        took_replica_faults=reply.took_replica_faults,
        lease_offset=reply.lease_offset,
        settled_offset=reply.settled_offset,
    )


def heartbeat_reply_from(message: pb.HeartbeatReply, budget: Budget) -> HeartbeatReply:
    return HeartbeatReply(
        is_caught_up=message.is_caught_up,
        is_fenced=message.is_fenced,
        in_controlled_shutdown=message.in_controlled_shutdown,
        should_shut_down=message.should_shut_down,
        took_replica_faults=message.took_replica_faults,
        lease_offset=message.lease_offset if message.HasField("lease_offset") else None,
        settled_offset=message.settled_offset if message.HasField("settled_offset") else None,
    )


def unregister_broker(request: UnregisterBrokerRequest) -> pb.UnregisterBrokerRequest:
    return pb.UnregisterBrokerRequest(broker_id=request.broker_id)


def unregister_broker_from(message: pb.UnregisterBrokerRequest, budget: Budget) -> UnregisterBrokerRequest:
    return UnregisterBrokerRequest(message.broker_id)


def allocate_producer_ids(request: AllocateProducerIdsRequest) -> pb.AllocateProducerIdsRequest:
    return pb.AllocateProducerIdsRequest(broker_id=request.broker_id, broker_epoch=request.broker_epoch)


def allocate_producer_ids_from(
    message: pb.AllocateProducerIdsRequest, budget: Budget
) -> AllocateProducerIdsRequest:
    return AllocateProducerIdsRequest(message.broker_id, message.broker_epoch)


def producer_ids(block: ProducerIdBlock) -> pb.ProducerIdBlock:
    return pb.ProducerIdBlock(first=block.first, count=block.count)


def producer_ids_from(message: pb.ProducerIdBlock, budget: Budget) -> ProducerIdBlock:
    return ProducerIdBlock(message.first, message.count)
