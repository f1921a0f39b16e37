"""DescribeTopicPartitions: topics and their partitions, a page at a time.

Topics come in the order of their names, and partitions in that of their numbers.  A page ends when it is
full; its cursor names the first partition that found no room.  The next request repeats the cursor, and goes
on from there in the image as it is then: a topic that was deleted meanwhile is passed over.

No topics mean all of them; then topics that are gone are left out.  Otherwise they are in the response as
errors.
"""

from typing import TYPE_CHECKING, Final

from distributedlog.broker.cluster.listener_view import Reach, error_of_absent, reach_of
from distributedlog.broker.handlers._operations import TOPIC_OPERATIONS
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import handles
from distributedlog.controller.image import MetadataImage, Topic
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import InvalidRequestError
from distributedlog.model.ids import ZERO_UUID
from distributedlog.model.internal_topics import INTERNAL_TOPICS
from distributedlog.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

PAGE_PARTITIONS_MAX: Final = 2_000


def _make_absent(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        topic_id=ZERO_UUID,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


@handles(DescribeTopicPartitionsRequest, versions=(0, 0))
def describe_topic_partitions(
    services: "Services", request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    image = services.metadata.image
    first = request.cursor.partition_index if request.cursor is not None else 0
    first_name = request.cursor.topic_name if request.cursor is not None else ""
    asked_for = [each.name for each in request.topics]
    if first < 0 or (request.cursor is not None and asked_for and first_name not in asked_for):
        raise InvalidRequestError("the cursor names no partition that is asked for")
    names = sorted({name for name in asked_for or image.topic_ids if name >= first_name})
    page = _Page(image, context.listener, max(1, min(request.response_partition_limit, PAGE_PARTITIONS_MAX)))
    for name in names:
        topic = image.topic_named(name)
        if page.is_full:
            page.next_cursor = Cursor(topic_name=name, partition_index=0)
        elif topic is not None:
            page.add(topic, first if name == first_name else 0)
        elif asked_for:
            page.topics.append(_make_absent(name, error_of_absent(name)))
        if page.next_cursor is not None:
            break
    return DescribeTopicPartitionsResponse(topics=page.topics, next_cursor=page.next_cursor)


class _Page:
    def __init__(self, image: MetadataImage, listener: str, partitions_max: int) -> None:
        self.topics: list[DescribeTopicPartitionsResponseTopic] = []
        self.next_cursor: Cursor | None = None
        self._reach = reach_of(image, listener)
        self._left = partitions_max

    @property
    def is_full(self) -> bool:
        return self._left == 0

    def add(self, topic: Topic, first: int) -> None:
        count = len(topic.partitions)
        end = min(count, first + self._left)
        partitions = [_describe(topic, number, self._reach) for number in range(first, end)]
        self.topics.append(
            DescribeTopicPartitionsResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                is_internal=topic.name in INTERNAL_TOPICS,
                partitions=partitions,
                topic_authorized_operations=TOPIC_OPERATIONS,
            )
        )
        self._left -= len(partitions)
        if end < count:
            self.next_cursor = Cursor(topic_name=topic.name, partition_index=end)


def _describe(topic: Topic, number: int, reach: Reach) -> DescribeTopicPartitionsResponsePartition:
    partition = topic.partitions[number]
    return DescribeTopicPartitionsResponsePartition(
        partition_index=number,
        leader_id=reach.leader(partition)[0],
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=reach.offline(partition),
    )
