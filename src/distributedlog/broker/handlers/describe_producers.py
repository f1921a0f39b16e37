"""DescribeProducers: the producers with ids that a partition's leader remembers, and their open transactions.

Only the leader answers, since only it decides what is a duplicate: NOT_LEADER_OR_FOLLOWER otherwise.
"""

from typing import TYPE_CHECKING

from distributedlog.broker.context import RequestContext
from distributedlog.broker.dispatch import handles
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


def _failed(partition_index: int, code: ErrorCode, text: str) -> PartitionResponse:
    return PartitionResponse(
        partition_index=partition_index, error_code=code, error_message=text, active_producers=[]
    )


def _refuse(
    request: DescribeProducersRequest, context: RequestContext, code: ErrorCode, text: str
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name, partitions=[_failed(each, code, text) for each in topic.partition_indexes]
            )
            for topic in request.topics
        ]
    )


@handles(DescribeProducersRequest, versions=(0, 0), refuse=_refuse)
def describe_producers(
    services: "Services", request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_described(services, topic.name, each) for each in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _described(services: "Services", topic: str, partition_index: int) -> PartitionResponse:
    try:
        partition = services.partitions.require(topic, partition_index)
        partition.check_leader()
    except DlogError as error:
        return _failed(partition_index, error.code, str(error))
    return PartitionResponse(
        partition_index=partition_index,
        active_producers=[_told(each) for each in partition.log.producers],
    )


def _told(state: Remembered) -> ProducerState:
    return ProducerState(
        producer_id=state.producer_id,
        producer_epoch=state.epoch,
        last_sequence=state.batches[-1].last_sequence if state.batches else NO_SEQUENCE,
        last_timestamp=state.last_timestamp,
        coordinator_epoch=state.coordinator_epoch,
        current_txn_start_offset=state.transaction_first_offset,
    )
