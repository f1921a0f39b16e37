"""The drivers, attempts and readers of sinks, all in one process that nothing happens to; the network to it
fails, and each driver and each attempt may die, or be paused.

drivers        of two queries, each with topics of its own; a driver that dies or hangs has a successor
consumers      read what is committed
late           sends copies of requests long after the first ones
at the end     when the last batch has ended, a fresh client reads all that is committed
"""

import random
from typing import TYPE_CHECKING, Final

from tests.reliability.history import Place, Seen
from tests.simulation.brokers.clients import Clients
from tests.simulation.brokers.sinks.drivers import Checkpoint, SinkDriver
from tests.simulation.brokers.transactions.clients import CONSUMERS, TransactionClients
from tests.simulation.brokers.transactions.wire import TransactionsWire

if TYPE_CHECKING:
    from tests.simulation.brokers.sinks.cluster import SinksCluster
    from tests.simulation.brokers.sinks.ledger import Ledger

TOPICS_OF: Final = {"q0": ("a", "b"), "q1": ("c",)}
"""What each query writes to: an open batch holds back all readers of a topic."""
TOPICS: Final = {"a": (1, 2), "b": (2, 2), "c": (2, 2)}
"""Partitions, and how many replicas must be in sync."""


class SinkClients(TransactionClients):
    cluster: "SinksCluster"
    topics = TOPICS

    @property
    def ledger(self) -> "Ledger":
        return self.cluster.ledger

    def places_of(self, query_id: str) -> list[Place]:
        return [place for place in self.places if place.topic in TOPICS_OF[query_id]]

    def attempt_wire(self, name: str, driver: TransactionsWire) -> TransactionsWire:
        return TransactionsWire(name, self.bootstrap, random.Random(driver.chance.getrandbits(64)))

    async def _begin(self) -> None:
        await self._create_topics(self.client("admin"))
        for number, query_id in enumerate(TOPICS_OF):
            self._start_driver(f"d{number}", Checkpoint(query_id))
        for number in range(CONSUMERS):
            self.loop.spawn(self._consume(self._wire(f"c{number}")))

    def _start_driver(self, name: str, checkpoint: Checkpoint) -> None:
        self._at_work += 1
        self.loop.spawn(self._drive(SinkDriver(self, self._wire(name), checkpoint)))

    async def _drive(self, driver: SinkDriver) -> None:
        try:
            await driver.run()
        finally:
            self._at_work -= 1

    def succeed_driver(self, driver: SinkDriver) -> None:
        """Somebody starts another process in the place of one that does not answer, or is dead."""
        self._lives += 1
        name = f"{driver.wire.name.partition('/')[0]}/{self._lives}"
        self._start_driver(name, driver.checkpoint)

    def look_for(self, place: Place, wanted: Seen, end: int) -> None:
        """Has a reader of its own look for a row that is committed."""
        wire = TransactionsWire(f"looks for {wanted.value}", self.bootstrap, random.Random(wanted.value))
        self.loop.spawn(self._look(wire, place, wanted, end))

    async def _look(self, wire: TransactionsWire, place: Place, wanted: Seen, end: int) -> None:
        await self.ledger.look(wire, place, wanted, end)
        wire.close()

    def read_everything(self) -> None:
        Clients.read_everything(self)
        self.loop.call_later(2.0, self._end_for_good)
