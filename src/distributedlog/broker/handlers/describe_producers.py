"""DescribeProducers: the producers with ids that a partition's leader remembers, and their open transactions.

Only the leader responses, since only it decides what is a duplicate: NOT_LEADER_OR_FOLLOWER otherwise.
"""

from typing import TYPE_CHECKING

from distributedlog.broker.cluster.listener_view import error_of_absent
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import handles
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from distributedlog.storage.producers import ProducerState as Remembered

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

NO_SEQUENCE = -1


def _make_failure(partition_index: int, code: ErrorCode, text: str) -> PartitionResponse:
    return PartitionResponse(
        partition_index=partition_index, error_code=code, error_message=text, active_producers=[]
    )


@handles(DescribeProducersRequest, versions=(0, 0))
def describe_producers(
    services: "Services", request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    _describe_partition(services, topic.name, each) for each in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _describe_partition(services: "Services", topic: str, partition_index: int) -> PartitionResponse:
    try:
        partition = services.partitions.require(topic, partition_index)
        partition.check_leader()
    except DlogError as error:
        is_unknown = error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        code = error_of_absent(topic) if is_unknown else error.code
        return _make_failure(partition_index, code, str(error))
    return PartitionResponse(
        partition_index=partition_index,
        active_producers=[_describe_producer(each) for each in partition.log.producers],
    )


def _describe_producer(state: Remembered) -> ProducerState:
    return ProducerState(
        producer_id=state.producer_id,
        producer_epoch=state.epoch,
        last_sequence=state.batches[-1].last_sequence if state.batches else NO_SEQUENCE,
        last_timestamp=state.last_timestamp,
        coordinator_epoch=state.coordinator_epoch,
        current_txn_start_offset=state.transaction_first_offset,
    )
