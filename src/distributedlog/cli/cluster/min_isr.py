"""The min.insync.replicas of topics that may be short of it."""

from collections.abc import Iterable
from typing import Final

from distributedlog.client.admin.admin import Admin
from distributedlog.client.view import PartitionView, TopicView

MIN_ISR: Final = "min.insync.replicas"


async def find_min_isr(admin: Admin, topics: Iterable[TopicView]) -> dict[str, int]:
    """Asks only for topics with partitions that are not all in sync."""
    found = {}
    for topic in topics:
        if any(each.is_under_replicated for each in topic.partitions):
            for entry in await admin.topic_configs(topic.name) or ():
                if entry.name == MIN_ISR and (entry.value or "").isdigit():
                    found[topic.name] = int(entry.value or "1")
    return found


def is_under_min_isr(partition: PartitionView, min_isr: int) -> bool:
    """Returns whether acks=all is refused: no more are needed than there are replicas."""
    return len(partition.isr) < min(min_isr, len(partition.replicas))
