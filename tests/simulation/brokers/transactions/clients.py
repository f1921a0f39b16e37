"""The transactional clients of a simulated cluster, all in one process that nothing happens to; the network
to it fails, and each worker may be paused, or give up.

mixers         write to the inputs in transactions, and read; of both flows
transformers   read one input each and write its function to the outputs; of both flows
consumers      read what is committed
late           sends copies of requests long after the first ones
at the end     when the last one has ended, a fresh client reads all that is committed, and the offsets
"""

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from tests.reliability.history import Place
from tests.simulation.brokers.clients import Clients
from tests.simulation.brokers.transactions.flows import CLASSIC, V2, Flow
from tests.simulation.brokers.transactions.wire import TransactionsWire, committed_records
from tests.simulation.brokers.transactions.workers import GROUP, Mixer, Transformer, Worker
from tests.simulation.brokers.wire_client import EARLIEST, LATEST, WireClient

if TYPE_CHECKING:
    from tests.simulation.brokers.transactions.cluster import TransactionsCluster

INPUT: Final = "input"
OUTPUT: Final = "output"
TOPICS: Final = {INPUT: (2, 2), OUTPUT: (2, 2)}
"""Partitions, and how many replicas must be in sync."""
MIXERS: Final = (V2, V2, CLASSIC)
TRANSFORMERS: Final = (V2, CLASSIC)
CONSUMERS: Final = 2


class TransactionClients(Clients):
    cluster: "TransactionsCluster"
    topics = TOPICS
    watches_elections = False

    def __init__(self, cluster: "TransactionsCluster", seed: int) -> None:
        super().__init__(cluster, seed)
        self.inputs = [place for place in self.places if place.topic == INPUT]
        self.outputs = [place for place in self.places if place.topic == OUTPUT]
        self.late = self._wire("late")
        self.is_over_for_good = False
        """Whether nothing more is tried again."""
        self._at_work = 0
        self._lives = 0

    def _wire(self, name: str) -> TransactionsWire:
        made = self.client(name)
        return TransactionsWire(name, self.bootstrap, made.chance)

    async def _begin(self) -> None:
        admin = self.client("admin")
        await self._create_topics(admin)
        for number, flow in enumerate(MIXERS):
            self._start(Mixer(self, self._wire(f"m{number}"), f"mixer-{number}", flow))
        for number, flow in enumerate(TRANSFORMERS):
            self._start(self._transformer(f"f{number}", f"transformer-{number}", flow, self.inputs[number]))
        for number in range(CONSUMERS):
            self.loop.spawn(self._consume(self._wire(f"c{number}")))

    def _transformer(self, name: str, transactional_id: str, flow: Flow, source: Place) -> Transformer:
        return Transformer(self, self._wire(name), transactional_id, flow, source)

    def _start(self, worker: Worker) -> None:
        self.cluster.stuck_producers.started(worker.session.transactional_id)
        self._at_work += 1
        self.loop.spawn(self._run(worker))

    async def _run(self, worker: Worker) -> None:
        try:
            await worker.run()
        finally:
            self._at_work -= 1

    def succeed(self, worker: Worker) -> None:
        """Somebody starts another process in the place of one that does not answer."""
        self._lives += 1
        session = worker.session
        name = f"{worker.wire.name.partition('/')[0]}/{self._lives}"
        if isinstance(worker, Transformer):
            self._start(self._transformer(name, session.transactional_id, session.flow, worker.source))
        else:
            self._start(Mixer(self, self._wire(name), session.transactional_id, session.flow))

    @property
    def is_awaited(self) -> bool:
        """Whether nothing befalls them now, for it is looked whether the cluster lets all of them get on."""
        return self.cluster.stuck_producers.is_awaiting

    # --- consumers -----------------------------------------------------------------------------

    async def _consume(self, client: WireClient) -> None:
        assert isinstance(client, TransactionsWire)
        positions: dict[Place, int] = {}
        seats: dict[Place, int] = {}
        while not self.is_over:
            place = self.chance.choice(self.places)
            if self.chance.random() < 0.03:
                positions[place], seats[place] = 0, seats.get(place, 0) + 1
            await self._poll(client, place, positions, seats)
            await self.pause(130)

    async def _poll(
        self, client: WireClient, place: Place, positions: dict[Place, int], seats: dict[Place, int]
    ) -> None:
        assert isinstance(client, TransactionsWire)
        offset, began_us, epoch = positions.setdefault(place, 0), self.cluster.now_us, client.epoch_of(place)
        try:
            data = await client.fetch_committed(place, offset, wait_ms=100)
        except DlogError:
            await client.refresh()
            return
        self.operations += 1
        if data.error_code != ErrorCode.NONE:
            await client.refresh()
            return
        seen, positions[place] = committed_records(data, offset)
        if seen:
            self.cluster.history.polled(client.name, place, seats.get(place, 0), seen, began_us, epoch)

    # --- the end -------------------------------------------------------------------------------

    def read_everything(self) -> None:
        super().read_everything()
        self.loop.call_later(2.0, self._end_for_good)
        for source in self.inputs:
            self._unread.add(Place(f"offsets of {source}", 0))
            self.loop.call_soon(partial(self._start_task, source))

    def _end_for_good(self) -> None:
        self.is_over_for_good = True

    def _start_task(self, source: Place) -> None:
        self.loop.spawn(self._read_offset(self._wire(f"final {source}"), source))

    async def _all_ended(self) -> None:
        while self._at_work:
            await asyncio.sleep(0.05)

    async def _read_offset(self, client: TransactionsWire, source: Place) -> None:
        await self._all_ended()
        offset = None
        while offset is None:
            await client.refresh()
            offset = await client.committed_offset(GROUP, source)
            await asyncio.sleep(0.05)
        self.cluster.history.committed(source, offset)
        self._unread.discard(Place(f"offsets of {source}", 0))

    async def _read(self, client: WireClient, place: Place) -> None:
        """Reads when no transaction is open any more."""
        wire = self._wire(client.name)
        await self._all_ended()
        start = end = stable = None
        while start is None or end is None or stable != end:
            await wire.refresh()
            start = await wire.list_offset(place, EARLIEST)
            end = await wire.list_offset(place, LATEST)
            stable = await wire.list_stable(place)
            await asyncio.sleep(0.05)
        self.cluster.history.begin_final(place, start)
        position = start
        while position < end:
            try:
                data = await wire.fetch_committed(place, position, wait_ms=100)
            except DlogError:
                data = None
            if data is None or data.error_code != ErrorCode.NONE:
                await wire.refresh()
                continue
            seen, position = committed_records(data, position)
            self.cluster.history.read_finally(place, seen)
        self._unread.discard(place)
