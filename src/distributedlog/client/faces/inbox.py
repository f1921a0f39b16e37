"""What threads have sent and the loop has not taken yet, in runs.  Pure; whoever calls holds a lock.

    add: t-0 --> [t-0: r r r r]  [t-1: r r]  [t-0: r] <-- the first run of t-0 was full, and takes no more
    take:            <-- the oldest run, whole

A record joins the last run of its partition, so that handing it over costs an append, and the loop moves
whole lists.  A run never has more than fits into a batch, unless it is a single record.  The runs of a
partition are taken in the order of their records.
"""

from collections import deque

from distributedlog.client.faces.delivery import BlockingDelivery, OnDelivery, Owner, Run
from distributedlog.model.ids import TopicPartition
from distributedlog.records.record import Record


class Inbox:
    def __init__(self, run_bytes_max: int) -> None:
        self.size_bytes = 0
        """The bytes of what was added.  Whoever takes it takes them off once it is in a batch."""
        self._run_bytes_max = run_bytes_max
        self._runs: deque[Run] = deque()
        self._open: dict[str, dict[int, Run]] = {}
        """The runs that take further records, by topic and partition."""

    def __len__(self) -> int:
        """How many runs there are."""
        return len(self._runs)

    def add(
        self,
        owner: Owner,
        topic: str,
        partition: int,
        record: Record,
        size: int,
        on_delivery: OnDelivery | None = None,
    ) -> BlockingDelivery:
        """Takes a record of that estimated size."""
        try:
            run = self._open[topic][partition]
        except KeyError:
            run = self._begin(owner, topic, partition)
        size_bytes = run.size_bytes + size
        if size_bytes > self._run_bytes_max and run.records:
            run = self._begin(owner, topic, partition)
            size_bytes = size
        run.size_bytes = size_bytes
        records = run.records
        index = len(records)
        records.append(record)
        if on_delivery is not None:
            run.callbacks.append((index, on_delivery))
        self.size_bytes += size
        return BlockingDelivery(run, index)

    def _begin(self, owner: Owner, topic: str, partition: int) -> Run:
        run = Run(owner, TopicPartition(topic, partition))
        self._runs.append(run)
        self._open.setdefault(topic, {})[partition] = run
        return run

    def take(self) -> Run:
        """The oldest run, which takes no further records."""
        run = self._runs.popleft()
        topic, partition = run.partition
        if self._open[topic].get(partition) is run:
            del self._open[topic][partition]
        return run
