"""Strategies: every request and response of the controller that travels."""

from hypothesis import strategies as st

from distributedlog.controller import requests as r
from distributedlog.controller.configs import ConfigEdit
from distributedlog.controller.image import (
    ConfigResource,
    ControllerRegistration,
    Endpoint,
    SupportedLevels,
)
from distributedlog.controller.quotas import QuotaEdit
from distributedlog.controller.replica_faults import ReplicaFault
from distributedlog.controller.sessions.log_ends import ReplicaLogEnd
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import TopicPartition, Uuid

i32 = st.integers(-(2**31), 2**31 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
flags = st.booleans()
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
uuids = st.binary(min_size=16, max_size=16).map(Uuid)
replicas = st.lists(i32, max_size=4).map(tuple)
resources = st.builds(ConfigResource, i32, texts)
outcomes = st.builds(r.ItemOutcome, st.sampled_from(ErrorCode), st.none() | texts)
partitions = st.builds(TopicPartition, texts, i32)
values = st.none() | texts
progress = st.builds(r.ReplicaProgress, i32, i64, i64, i64)


def several(each: st.SearchStrategy[object]) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(each, max_size=3).map(tuple)


REQUESTS: dict[type, st.SearchStrategy[r.Request]] = {
    r.RegisterBrokerRequest: st.builds(
        r.RegisterBrokerRequest,
        cluster_id=texts,
        broker_id=i32,
        incarnation_id=uuids,
        endpoints=several(st.builds(Endpoint, texts, texts, i32, i32)),
        features=several(st.builds(SupportedLevels, texts, i32, i32)),
        rack=values,
        log_dirs=several(uuids),
        previous_broker_epoch=i64,
        predecessors=several(uuids),
        synced_broker_epoch=i64,
        host=values,
    ),
    r.HeartbeatRequest: st.builds(
        r.HeartbeatRequest,
        broker_id=i32,
        broker_epoch=i64,
        metadata_offset=i64,
        want_fence=flags,
        want_shutdown=flags,
        data_loop_lag_ms=i64,
        replica_faults=several(st.builds(ReplicaFault, uuids, i32, i32)),
        log_ends=several(st.builds(ReplicaLogEnd, uuids, i32, i32, i32, i64)),
        applied_offset=st.none() | i64,
    ),
    r.UnregisterBrokerRequest: st.builds(r.UnregisterBrokerRequest, i32),
    r.CreateTopicsRequest: st.builds(
        r.CreateTopicsRequest,
        several(
            st.builds(
                r.NewTopic,
                name=texts,
                num_partitions=i32,
                replication_factor=i32,
                assignments=several(st.tuples(i32, replicas)),
                configs=several(st.tuples(texts, values)),
            )
        ),
        flags,
    ),
    r.DeleteTopicsRequest: st.builds(r.DeleteTopicsRequest, several(texts | uuids)),
    r.CreatePartitionsRequest: st.builds(
        r.CreatePartitionsRequest,
        several(st.builds(r.MorePartitions, texts, i32, st.none() | several(replicas))),
        flags,
    ),
    r.AlterConfigsRequest: st.builds(
        r.AlterConfigsRequest,
        several(st.tuples(resources, st.dictionaries(texts, values, max_size=3))),
        flags,
    ),
    r.IncrementalAlterConfigsRequest: st.builds(
        r.IncrementalAlterConfigsRequest,
        several(st.tuples(resources, several(st.builds(ConfigEdit, texts, i32, values)))),
        flags,
    ),
    r.AlterPartitionsRequest: st.builds(
        r.AlterPartitionsRequest,
        i32,
        i64,
        several(
            st.builds(
                r.IsrChange,
                topic_id=uuids,
                partition_id=i32,
                leader_epoch=i32,
                partition_epoch=i32,
                isr=several(st.builds(r.IsrMember, i32, i64)),
                recovery_state=i32,
            )
        ),
    ),
    r.ElectLeadersRequest: st.builds(r.ElectLeadersRequest, i32, st.none() | several(partitions)),
    r.AllocateProducerIdsRequest: st.builds(r.AllocateProducerIdsRequest, i32, i64),
    r.UpdateFeaturesRequest: st.builds(r.UpdateFeaturesRequest, several(st.tuples(texts, i32)), flags),
    r.AlterQuotasRequest: st.builds(
        r.AlterQuotasRequest,
        several(
            st.tuples(
                several(st.tuples(texts, values)),
                several(st.builds(QuotaEdit, texts, st.none() | st.floats(allow_nan=False))),
            )
        ),
        flags,
    ),
    r.AlterReassignmentsRequest: st.builds(
        r.AlterReassignmentsRequest, several(st.tuples(partitions, st.none() | replicas)), flags
    ),
    r.DescribeQuorumRequest: st.builds(r.DescribeQuorumRequest),
    r.RegisterControllerRequest: st.builds(
        r.RegisterControllerRequest, texts, st.builds(ControllerRegistration, i32, uuids, i64, texts, i32)
    ),
    r.AddVoterRequest: st.builds(r.AddVoterRequest, values, i32, uuids, flags),
    r.RemoveVoterRequest: st.builds(r.RemoveVoterRequest, values, i32, uuids),
}

RESPONSES: dict[type, st.SearchStrategy[r.Response]] = {
    type(None): st.none(),
    r.RegisterBrokerReply: st.builds(r.RegisterBrokerReply, i64),
    r.HeartbeatReply: st.builds(
        r.HeartbeatReply,
        is_caught_up=flags,
        is_fenced=flags,
        in_controlled_shutdown=flags,
        should_shut_down=flags,
        lease_offset=st.none() | i64,
        settled_offset=st.none() | i64,
    ),
    r.TopicsReply: st.builds(
        r.TopicsReply,
        several(
            st.builds(
                r.TopicOutcome,
                name=values,
                topic_id=uuids,
                outcome=outcomes,
                num_partitions=i32,
                replication_factor=i32,
            )
        ),
    ),
    r.ConfigsReply: st.builds(r.ConfigsReply, several(st.tuples(resources, outcomes))),
    r.AlterPartitionsReply: st.builds(
        r.AlterPartitionsReply,
        several(
            st.builds(
                r.IsrOutcome,
                topic_id=uuids,
                partition_id=i32,
                error=st.sampled_from(ErrorCode),
                leader=i32,
                leader_epoch=i32,
                partition_epoch=i32,
                isr=replicas,
                recovery_state=i32,
            )
        ),
    ),
    r.ElectLeadersReply: st.builds(r.ElectLeadersReply, several(st.tuples(partitions, outcomes))),
    r.ProducerIdBlock: st.builds(r.ProducerIdBlock, i64, i32),
    r.FeaturesReply: st.builds(r.FeaturesReply, several(st.tuples(texts, outcomes))),
    r.QuotasReply: st.builds(r.QuotasReply, several(st.tuples(several(st.tuples(texts, values)), outcomes))),
    r.AlterReassignmentsReply: st.builds(r.AlterReassignmentsReply, several(st.tuples(partitions, outcomes))),
    r.QuorumReply: st.builds(r.QuorumReply, i32, i64, i64, several(progress), several(progress)),
}
