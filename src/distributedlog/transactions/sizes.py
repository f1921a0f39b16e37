"""How many bytes a record of `__transaction_state` may take."""

from collections.abc import Iterable
from typing import Final

from distributedlog.model.ids import TopicPartition

RECORD_OVERHEAD_BYTES: Final = 128
"""More than a record needs besides its texts and partitions."""
PARTITION_BYTES: Final = 5
TOPIC_OVERHEAD_BYTES: Final = 16


def size_bound(transactional_id: str, partitions: Iterable[TopicPartition]) -> int:
    """Returns at least as many bytes as a record with these partitions takes in a batch."""
    size = RECORD_OVERHEAD_BYTES + len(transactional_id.encode())
    topics = set()
    for topic, _ in partitions:
        size += PARTITION_BYTES
        topics.add(topic)
    return size + sum(TOPIC_OVERHEAD_BYTES + len(topic.encode()) for topic in topics)
