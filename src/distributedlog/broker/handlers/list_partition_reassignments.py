"""ListPartitionReassignments: lists the moves under way, of all partitions or of those that are named.

The answer is of this broker's image, which shows a move before the request for it is answered.
"""

from typing import TYPE_CHECKING

from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import handles
from distributedlog.controller.reassignments import list_moving
from distributedlog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from distributedlog.broker.services import Services


@handles(ListPartitionReassignmentsRequest, versions=(0, 0))
def list_partition_reassignments(
    services: "Services", request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    named = None
    if request.topics is not None:
        named = {(topic.name, each) for topic in request.topics for each in topic.partition_indexes}
    by_topic: dict[str, list[OngoingPartitionReassignment]] = {}
    for name, partition in list_moving(services.metadata.image):
        if named is None or name in named:
            by_topic.setdefault(name.topic, []).append(
                OngoingPartitionReassignment(
                    partition_index=name.partition,
                    replicas=list(partition.replicas),
                    adding_replicas=list(partition.adding),
                    removing_replicas=list(partition.removing),
                )
            )
    return ListPartitionReassignmentsResponse(
        topics=[OngoingTopicReassignment(name=name, partitions=each) for name, each in by_topic.items()]
    )
