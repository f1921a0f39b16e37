"""Our own consumer as a member of a group: BOOTSTRAP TOPIC PARTITIONS GROUP.MEMBER.STRATEGY.

It tells what `grouping` tells.  The strategy is an assignor, or `consumer` for the protocol of KIP-848.
"""

import sys
import time
from collections import defaultdict
from collections.abc import Collection
from typing import Any

from distributedlog import Consumer, DlogError, TopicPartition
from tests.reliability.history import Place, Seen
from tests.reliability.journal import Journal
from tests.reliability.programs.stopping import step_until_stopped
from tests.reliability.programs.values import from_bytes

CLASSIC: dict[str, Any] = {
    "session_timeout_ms": 2_000,
    "heartbeat_interval_ms": 300,
    "max_poll_interval_ms": 3_000,
}
NEW: dict[str, Any] = {"group_protocol": "consumer", "max_poll_interval_ms": 3_000}
POLL_MS = 200


class GroupMember:
    def __init__(self, bootstrap: str, topic: str, name: str) -> None:
        self.group, _, strategy = name.split(".")
        self.journal = Journal(name)
        self.seat = 0
        self.consumer = Consumer(
            bootstrap,
            group_id=self.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            metadata_max_age_ms=1_000,
            request_timeout_ms=5_000,
            retry_backoff_ms=50,
            wait_for_cluster=True,
            **(NEW if strategy == "consumer" else {**CLASSIC, "assignor": strategy}),
        )
        self.consumer.subscribe([topic], on_assigned=self.on_assigned)

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Nothing is kept back from those that are revoked: every poll is committed before the next."""
        self.seat += 1
        generation = self.consumer.group_metadata().generation
        for each in partitions:
            self.journal.owned(self.group, generation, Place(each.topic, each.partition))

    def step(self) -> None:
        invoked_ns = time.monotonic_ns()
        try:
            polled = self.consumer.poll(POLL_MS)
        except DlogError as error:  # nobody to ask just now
            self.journal.met_exception("poll", error)
            return
        found: dict[TopicPartition, list[Seen]] = defaultdict(list)
        for record in polled:
            seen = Seen(record.offset, from_bytes(record.value or b""))
            found[TopicPartition(record.topic, record.partition)].append(seen)
        for where, records in found.items():
            self.journal.poll(Place(where.topic, where.partition), self.seat, records, invoked_ns)
        if not found:
            return
        positions = {where: records[-1].offset + 1 for where, records in found.items()}
        invoked_ns = time.monotonic_ns()
        try:
            self.consumer.commit(positions)
        except DlogError as error:  # fenced, no longer ours, or nobody to ask: somebody reads it again
            self.journal.met_exception("commit", error)
            return
        for where, offset in positions.items():
            self.journal.told(Place(where.topic, where.partition), self.group, offset, invoked_ns)


def main() -> None:
    bootstrap, topic, _, name = sys.argv[1:]
    member = GroupMember(bootstrap, topic, name)
    step_until_stopped(member.step)
    member.consumer.close()


if __name__ == "__main__":
    main()
