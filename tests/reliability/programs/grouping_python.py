"""kafka-python's consumer as a member of a group: BOOTSTRAP TOPIC PARTITIONS GROUP.MEMBER.STRATEGY.

It tells what `grouping` tells.
"""

import logging
import sys
import time
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from tests.reliability.history import Place, Seen
from tests.reliability.journal import Journal
from tests.reliability.programs.stopping import step_until_stopped
from tests.reliability.programs.values import from_bytes

SESSION_MS = 2_000
POLL_INTERVAL_MS = 3_000
HEARTBEAT_MS = 300
POLL_MS = 200
RECORDS_MAX = 200
STRATEGIES = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class GroupMember(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, bootstrap: str, topic: str, name: str) -> None:
        self.group, _, strategy = name.split(".")
        self.journal = Journal(name)
        self.seat = 0
        self.consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=self.group,
            partition_assignment_strategy=(STRATEGIES[strategy],),
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            max_poll_interval_ms=POLL_INTERVAL_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            metadata_max_age_ms=1_000,
            retry_backoff_ms=50,
        )
        self.consumer.subscribe([topic], listener=self)

    def on_partitions_revoked(self, revoked: Any) -> None:
        """Nothing is kept back: every poll is committed before the next."""

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.seat += 1
        generation = self.consumer._coordinator._generation.generation_id
        for each in assigned:
            self.journal.owned(self.group, generation, Place(each.topic, each.partition))

    def step(self) -> None:
        invoked_ns = time.monotonic_ns()
        try:
            polled = self.consumer.poll(timeout_ms=POLL_MS, max_records=RECORDS_MAX)
        except KafkaError as error:  # the broker is being restarted
            self.journal.met_exception("poll", error)
            return
        positions = {}
        for where, messages in polled.items():
            seen = [Seen(each.offset, from_bytes(each.value)) for each in messages]
            self.journal.poll(Place(where.topic, where.partition), self.seat, seen, invoked_ns)
            positions[where] = OffsetAndMetadata(seen[-1].offset + 1, "", -1)
        if not positions:
            return
        invoked_ns = time.monotonic_ns()
        try:
            self.consumer.commit(positions)
        except KafkaError as error:  # fenced, or nobody to ask: somebody reads it again
            self.journal.met_exception("commit", error)
            return
        for where, position in positions.items():
            self.journal.told(Place(where.topic, where.partition), self.group, position.offset, invoked_ns)


def main() -> None:
    bootstrap, topic, _, name = sys.argv[1:]
    logging.disable(logging.CRITICAL)
    member = GroupMember(bootstrap, topic, name)
    step_until_stopped(member.step)
    member.consumer.close()


if __name__ == "__main__":
    main()
