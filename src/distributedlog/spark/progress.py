"""How far a query has come, told to a consumer group, so that lag is seen where people look for it.

Spark's checkpoint alone says where a query goes on: what is told here is never read back, and if it cannot be
told the query goes on without.  Spark says `commit(end)` only when it begins the next micro-batch, so a query
that has caught up would look one behind for as long as nothing comes: what `latestOffset` is asked to start
from has been worked through as well, and is told when there is nothing new.

A group with members is not ours: its coordinator refuses, and that is said once.
"""

from typing import Final

from distributedlog.client.group_offsets import GroupOffsets, Position
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition
from distributedlog.spark.connections import Link
from distributedlog.spark.kafka_options import warn_once
from distributedlog.spark.offsets import Positions

TIMEOUT_MS: Final = 5_000


class Progress:
    def __init__(self, link: Link, group_id: str) -> None:
        self._link = link
        self._group = GroupOffsets(link.cluster, group_id) if group_id else None
        self._told: dict[TopicPartition, int] = {}

    def tell(self, positions: Positions) -> None:
        """Everything before these has been worked through.  What was told already is not told again."""
        news = {
            partition: Position(offset)
            for partition, offset in positions.offsets.items()
            if self._told.get(partition) != offset
        }
        if self._group is None or not news:
            return
        try:
            self._link.run(self._group.commit(news, timeout_ms=TIMEOUT_MS))
        except DlogError as error:
            warn_once(f"the progress of group {self._group.group_id!r} could not be told: {error}")
            return
        self._told.update((partition, each.offset) for partition, each in news.items())
