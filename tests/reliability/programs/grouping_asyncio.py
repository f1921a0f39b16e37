"""aiokafka's consumer as a member of a group: BOOTSTRAP TOPIC PARTITIONS GROUP.MEMBER.STRATEGY.

It tells what `grouping` tells.
"""

import asyncio
import contextlib
import logging
import sys
import time
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError

from tests.reliability.history import Place, Seen
from tests.reliability.journal import Journal
from tests.reliability.programs.stopping import stopping
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
        self.topic = topic
        self.journal = Journal(name)
        self.seat = 0
        self.bootstrap = bootstrap
        self.strategy = STRATEGIES[strategy]
        self.consumer = self.new_consumer()

    def new_consumer(self) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            partition_assignment_strategy=(self.strategy,),
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            max_poll_interval_ms=POLL_INTERVAL_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            metadata_max_age_ms=1_000,
            retry_backoff_ms=50,
        )

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """Nothing is kept back: every poll is committed before the next."""

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self.seat += 1
        generation = self.consumer._coordinator.generation
        for each in assigned:
            self.journal.owned(self.group, generation, Place(each.topic, each.partition))

    async def run(self) -> None:
        stop = stopping()
        await self.start()
        try:
            while not stop.is_set():
                try:
                    await self.step()
                except KafkaError as error:  # aiokafka goes on, but for the end of its coordination
                    self.journal.met_exception("poll", error)
                    await self.begin_again_if_over()
                except asyncio.CancelledError:
                    if not await self.begin_again_if_over():
                        raise
                await asyncio.sleep(stop.doze_seconds)
                stop.doze_seconds = 0.0
        finally:
            await self.consumer.stop()

    async def start(self) -> None:
        await self.consumer.start()
        self.consumer.subscribe([self.topic], listener=self)

    async def begin_again_if_over(self) -> bool:
        """A consumer whose coordination has ended: it is as if its process had been started anew."""
        if not self.consumer._coordinator._coordination_task.done():
            return False
        self.journal.met("poll", "CoordinationEnded", None)
        task = asyncio.current_task()
        assert task is not None
        if task.cancelling():
            raise asyncio.CancelledError
        with contextlib.suppress(asyncio.CancelledError):
            await self.consumer.stop()
        self.consumer = self.new_consumer()
        await self.start()
        return True

    async def poll(self) -> Any:
        """aiokafka 0.14 ends its coordination for good if its heartbeat is cancelled while it leaves the
        group (it was slow to poll), or if the group is loading when it looks its offsets up.  A poll is told
        so by that error, or waits for ever to be assigned something."""
        coordination = self.consumer._coordinator._coordination_task
        polling = asyncio.ensure_future(self.consumer.getmany(timeout_ms=POLL_MS, max_records=RECORDS_MAX))
        await asyncio.wait((polling, coordination), return_when=asyncio.FIRST_COMPLETED)
        if not polling.done():
            polling.cancel()
        return await polling

    async def step(self) -> None:
        """What was polled before a rebalance may be somebody else's by now.  aiokafka rebalances beside us,
        and would commit it in the name of the new generation."""
        invoked_ns = time.monotonic_ns()
        generation = self.consumer._coordinator.generation
        polled = await self.poll()
        positions = {}
        for where, messages in polled.items():
            seen = [Seen(each.offset, from_bytes(each.value)) for each in messages]
            self.journal.poll(Place(where.topic, where.partition), self.seat, seen, invoked_ns)
            positions[where] = seen[-1].offset + 1
        if not positions or self.consumer._coordinator.generation != generation:
            return
        invoked_ns = time.monotonic_ns()
        try:
            await self.consumer.commit(positions)
        except (KafkaError, ValueError) as error:  # fenced, no longer ours, or nobody to ask: read again
            self.journal.met_exception("commit", error)
            return
        for where, offset in positions.items():
            self.journal.told(Place(where.topic, where.partition), self.group, offset, invoked_ns)


def main() -> None:
    bootstrap, topic, _, name = sys.argv[1:]
    logging.disable(logging.CRITICAL)

    async def run() -> None:
        await GroupMember(bootstrap, topic, name).run()

    asyncio.run(run())


if __name__ == "__main__":
    main()
