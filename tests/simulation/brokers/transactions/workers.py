"""What transactional clients do: write to some partitions and read others, or read, process and write.

A worker is one process of a client.  It may be paused in the middle of a transaction; somebody then starts
another with the same transactional id, and when the first one wakes it goes on as if nothing had happened: a
zombie, until it is told that it is fenced.  Or it gives up in the middle, and says nothing to anyone.

Nothing of that happens from when all has healed until every transactional id has committed something
(`checkers.stuck_producers`): what is to be seen then is whether the cluster lets them, and not their luck.
"""

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from tests.reliability.history import Outcome, Place, Seen
from tests.simulation.brokers.transactions.asking import AbortableError, FencedError
from tests.simulation.brokers.transactions.flows import Flow
from tests.simulation.brokers.transactions.session import Session
from tests.simulation.brokers.transactions.wire import TransactionsWire, committed_records

if TYPE_CHECKING:
    from tests.simulation.brokers.transactions.clients import TransactionClients

PAUSE_MS: Final = 500
"""The pause between two transactions, on average."""
AWAITED_PAUSE_MS: Final = 80
WAKE_SECONDS: Final = 0.25
PAUSE_SHARE: Final = 0.03
GIVE_UP_SHARE: Final = 0.04
ABORT_SHARE: Final = 0.15
GROUP: Final = "transformers"


class GivenUpError(Exception):
    """The client says nothing any more."""


class Worker(ABC):
    def __init__(
        self, clients: "TransactionClients", wire: TransactionsWire, transactional_id: str, flow: Flow
    ) -> None:
        self.clients = clients
        self.wire = wire
        self.session = Session(clients, wire, transactional_id, flow)
        self.chance = wire.chance
        self.transaction = ""
        self._count = 0
        self._has_successor = False
        self._sent: list[tuple[Place, list[str], int, int | None]] = []
        self.positions: dict[Place, int] = {}

    async def run(self) -> None:
        await self.wire.refresh()
        while not self.clients.is_over and not self._has_successor:
            if self.session.needs_epoch:
                if not await self.session.begin() or not await self.started():
                    self.session.producer = None
            else:
                await self._transact()
            if self.clients.is_awaited:
                await self.clients.pause(AWAITED_PAUSE_MS)
            else:
                await self._sleep(self.clients.draw_pause(PAUSE_MS))

    async def started(self) -> bool:
        """It has the transactional id; returns whether it can begin."""
        return True

    async def _transact(self) -> None:
        self._count += 1
        self.transaction = f"{self.wire.name}t{self._count}"
        self._sent = []
        outcome = Outcome.FAIL
        try:
            if not await self.work():
                return
            await self.hesitate()
            is_commit = self.chance.random() >= ABORT_SHARE or self.clients.is_awaited
            outcome = await self.session.end(is_commit=is_commit)
        except AbortableError:
            await self._abort()
        except FencedError:
            self.session.producer = None
        except GivenUpError:
            self.session.producer = None
        if outcome is Outcome.OK:
            self.clients.cluster.stuck_producers.committed(self.session.transactional_id)
        if self._sent:
            self.clients.cluster.history.transacted(self.wire.name, self.transaction, self._sent, outcome)
            self.clients.operations += 1
        await self.ended(outcome)

    async def _abort(self) -> None:
        if self.session.producer is not None:
            await self.session.end(is_commit=False)

    @abstractmethod
    async def work(self) -> bool:
        """Does what the transaction consists of; returns whether there was anything to do."""

    async def ended(self, outcome: Outcome) -> None:
        """The transaction is over, as far as this client knows."""
        return

    async def write(self, place: Place, values: list[str]) -> None:
        began_us = self.clients.cluster.now_us
        self._sent.append((place, values, began_us, None))
        offset = await self.session.write(place, values)
        self._sent[-1] = place, values, began_us, offset if offset >= 0 else None

    async def read(self, place: Place) -> tuple[Seen, ...]:
        """Reads what is committed, from where this worker has read to."""
        offset, began_us = self.positions.setdefault(place, 0), self.clients.cluster.now_us
        epoch = self.wire.epoch_of(place)
        try:
            data = await self.wire.fetch_committed(place, offset, wait_ms=50)
        except DlogError:
            await self.wire.refresh()
            return ()
        if data.error_code != ErrorCode.NONE:
            await self.wire.refresh()
            return ()
        seen, self.positions[place] = committed_records(data, offset)
        if seen:
            self.clients.cluster.history.polled_in(
                self.wire.name, place, self._count, seen, began_us, epoch, self.transaction
            )
        return seen

    async def _sleep(self, seconds: float) -> None:
        """Sleeps so long, but wakes when all has healed, and when all are to end: what it has open is to be
        decided by then."""
        while seconds > 0 and not self.clients.is_over and not self.clients.is_awaited:
            await asyncio.sleep(min(seconds, WAKE_SECONDS))
            seconds -= WAKE_SECONDS

    async def hesitate(self) -> None:
        """Something may happen to the client here."""
        drawn = self.chance.random()
        if self.clients.is_awaited:
            drawn = 1.0
        if drawn < PAUSE_SHARE:
            self.clients.cluster.trace.add(self.clients.cluster.now_us, "is paused", self.wire.name)
            if self.chance.random() < 0.7:
                self._has_successor = True
                self.clients.succeed(self)
            await self._sleep(self.chance.uniform(0.5, 6.0))
        elif drawn < PAUSE_SHARE + GIVE_UP_SHARE:
            raise GivenUpError
        if self.clients.is_over:
            raise GivenUpError


class Mixer(Worker):
    """Writes to some partitions, and reads others meanwhile."""

    async def work(self) -> bool:
        places = self.clients.places
        for number in range(self.chance.choice((1, 2, 2, 3, 4))):
            await self.hesitate()
            place = self.chance.choice(self.clients.inputs)
            count = self.chance.choice((1, 1, 2, 5))
            await self.write(place, [f"{self.transaction}.{number}.{each}" for each in range(count)])
            if self.chance.random() < 0.4:
                await self.read(self.chance.choice(places))
        return True


class Transformer(Worker):
    """Reads one partition and writes its function: one record for each."""

    def __init__(
        self,
        clients: "TransactionClients",
        wire: TransactionsWire,
        transactional_id: str,
        flow: Flow,
        source: Place,
    ) -> None:
        super().__init__(clients, wire, transactional_id, flow)
        self.source = source

    async def started(self) -> bool:
        offset = await self.wire.committed_offset(GROUP, self.source)
        if offset is None:
            self.clients.cluster.trace.add(self.clients.cluster.now_us, "knows no offset", self.wire.name)
            return False
        self.positions[self.source] = offset
        return True

    async def work(self) -> bool:
        seen = await self.read(self.source)
        if not seen:
            return False
        outputs = self.clients.outputs
        for half in (seen[::2], seen[1::2]):
            if half:
                await self.hesitate()
                values = [f"{self.transaction}:{each.value}" for each in half]
                await self.write(self.chance.choice(outputs), values)
        await self.hesitate()
        await self.session.commit_offset(GROUP, self.source, self.positions[self.source])
        return True

    async def ended(self, outcome: Outcome) -> None:
        if outcome is not Outcome.OK and self.session.producer is not None and not await self.started():
            self.session.producer = None


def source_of(value: str) -> str:
    """Returns what an output was made of."""
    return value.partition(":")[2]
