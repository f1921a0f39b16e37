"""What Spark's driver does with a query: batch after batch, each again until the checkpoint has it.

    token ──► tasks, their attempts retried and run twice ──► END with the winners ──► the checkpoint

A driver is one process.  It may be paused anywhere, and somebody starts another on the same checkpoint: the
first one goes on as if nothing had happened when it wakes, a zombie until it is fenced.  Or it dies: before
the decision, after it, or before the checkpoint has it; the next one plays the batch again.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from distributedlog.protocol.messages.sink_records import SinkWinner
from distributedlog.protocol.messages.sink_transaction import (
    SinkOperation,
    SinkTransactionRequest,
    SinkTransactionResponse,
)
from tests.reliability.history import Outcome
from tests.simulation.brokers.sinks.asking import SinkAsking
from tests.simulation.brokers.sinks.attempts import End, SinkAttempt
from tests.simulation.brokers.sinks.rows import Batch, Piece, tasks_of
from tests.simulation.brokers.transactions.flows import Meaning
from tests.simulation.brokers.transactions.wire import TransactionsWire

if TYPE_CHECKING:
    from tests.simulation.brokers.sinks.clients import SinkClients

PAUSE_MS: Final = 250
"""The pause between two batches, on average."""
HEALED_PAUSE_MS: Final = 800
"""The same when all has healed: what is to be seen then is that everybody gets on."""
HEALED_STOP_SECONDS: Final = 2.0
"""How long a driver is stopped then at most: all of them end before everything is read."""
END_PATIENCE_US: Final = 6_000_000
ATTEMPTS_MAX: Final = 3
SPECULATION_SHARE: Final = 0.3
PAUSE_SHARE: Final = 0.04
DEATH_SHARE: Final = 0.04
FORGOTTEN_SHARE: Final = 0.12
"""How often a driver dies between the sink's commit and that of the checkpoint."""


class DiedError(Exception):
    """The driver does nothing more."""


class Checkpoint:
    """How far a query has come, as Spark keeps it: whoever runs the query reads it first."""

    def __init__(self, query_id: str) -> None:
        self.query_id = query_id
        self.next_batch = 0

    def commit(self, batch: Batch) -> None:
        self.next_batch = max(self.next_batch, batch.number + 1)


class SinkDriver(SinkAsking):
    def __init__(self, clients: "SinkClients", wire: TransactionsWire, checkpoint: Checkpoint) -> None:
        super().__init__(clients, wire, checkpoint.query_id)
        self.checkpoint = checkpoint
        self._count = 0
        self._has_successor = False

    async def run(self) -> None:
        await self.wire.refresh()
        try:
            while not self._clients.is_over:
                await self._play(Batch(self.query_id, self.checkpoint.next_batch))
                await self._pause()
        except DiedError:
            self._say("dies")
            self.wire.close()
            if not self._has_successor and not self._clients.is_over:
                self._clients.succeed_driver(self)

    async def _pause(self) -> None:
        """Waits between two batches, but not at the end, when everybody waits for this driver."""
        if not self._clients.is_over:
            await self._clients.pause(HEALED_PAUSE_MS if self._is_healed else PAUSE_MS)

    @property
    def _is_healed(self) -> bool:
        return self._clients.cluster.faults.is_healing

    async def _play(self, batch: Batch) -> None:
        _, told, _ = await self.ask_until_known(self.make(SinkOperation.TOKEN))
        if told is None:
            return
        token, attempts = told.token, list[SinkAttempt]()
        winners, is_whole = await self._run_tasks(batch, token, attempts)
        outcome, is_fenced = Outcome.FAIL, False
        try:
            await self._hesitate()
            if is_whole:
                outcome, is_fenced = await self._commit(batch, token, winners)
            elif self._clients.is_over or (winners and self.wire.chance.random() < 0.7):
                await self.ask_until_known(self.make(SinkOperation.ABORT, token))
        finally:
            self._clients.ledger.ended(batch, attempts, winners if is_whole else [], outcome)
        self._clients.operations += 1
        if is_fenced and self._has_successor:
            raise DiedError

    # --- tasks ---------------------------------------------------------------------------------

    async def _run_tasks(
        self, batch: Batch, token: int, attempts: list[SinkAttempt]
    ) -> tuple[list[SinkAttempt], bool]:
        """Returns the attempts that count, and whether every task has come to its end."""
        tasks = tasks_of(self._clients.cluster.seed, batch, self._clients.places_of(self.query_id))
        running = [self._run_task(batch, token, pieces, attempts) for pieces in tasks if pieces]
        ended = await asyncio.gather(*running)
        winners = [winner for winner, _ in ended if winner is not None]
        return winners, all(is_done for _, is_done in ended)

    async def _run_task(
        self, batch: Batch, token: int, pieces: list[Piece], attempts: list[SinkAttempt]
    ) -> tuple[SinkAttempt | None, bool]:
        """Runs attempts, one after the other or two at a time, until one has ended well."""
        for _ in range(ATTEMPTS_MAX):
            count = 2 if self.wire.chance.random() < SPECULATION_SHARE else 1
            made = [self._make_attempt(batch, token, pieces) for _ in range(count)]
            attempts += made
            ends = await asyncio.gather(*(each.run() for each in made))
            if End.SKIPPED in ends:
                return None, True
            good = [each for each, end in zip(made, ends, strict=True) if end is End.WRITTEN]
            if good:
                return self.wire.chance.choice(good), True
            if End.FENCED in ends or self._clients.is_over:
                break
        return None, False

    def _make_attempt(self, batch: Batch, token: int, pieces: list[Piece]) -> SinkAttempt:
        self._count += 1
        name = f"{self.wire.name}-{self._count}"
        wire = self._clients.attempt_wire(name, self.wire)
        return SinkAttempt(self._clients, wire, batch, token, name, pieces)

    # --- the end -------------------------------------------------------------------------------

    async def _commit(self, batch: Batch, token: int, winners: list[SinkAttempt]) -> tuple[Outcome, bool]:
        """Ends the batch, and returns what became of it, and whether the driver is fenced.  There is nothing
        to end where no task had rows, or all were skipped."""
        if not winners:
            self.checkpoint.commit(batch)
            return Outcome.FAIL, False
        request = self._make_end(batch, token, winners)
        self._clients.ledger.ending(batch, winners)
        is_copied = self._send_again_later(lambda wire: self._end_again(batch, request, wire))
        meaning, told, is_in_doubt = await self.ask_until_known(request, END_PATIENCE_US)
        if told is None:
            is_unknown = is_in_doubt or is_copied or meaning is Meaning.AGAIN
            return Outcome.UNKNOWN if is_unknown else Outcome.FAIL, meaning is Meaning.FENCED
        self._clients.ledger.committed(batch, token, winners)
        if self.wire.chance.random() >= FORGOTTEN_SHARE:
            self.checkpoint.commit(batch)
        return Outcome.OK, False

    async def _end_again(
        self, batch: Batch, request: SinkTransactionRequest, wire: TransactionsWire
    ) -> SinkTransactionResponse:
        is_committed = self._clients.ledger.is_committed_by(batch, request.token)
        told = await self.ask_sink(request, wire)
        if is_committed:
            self._clients.ledger.answered_again(batch, told)
        return told

    def _make_end(self, batch: Batch, token: int, winners: list[SinkAttempt]) -> SinkTransactionRequest:
        request = self.make(SinkOperation.END, token, batch.number)
        producers = [each.producer for each in winners if each.producer is not None]
        request.winners = [SinkWinner(producer_id=each[0], producer_epoch=each[1]) for each in producers]
        return request

    async def _hesitate(self) -> None:
        """Something may happen to the driver here."""
        drawn = self.wire.chance.random()
        if drawn < PAUSE_SHARE:
            self._say("is paused")
            if not self._has_successor:
                self._has_successor = True
                self._clients.succeed_driver(self)
            stopped_seconds = self.wire.chance.uniform(0.5, 6.0)
            await asyncio.sleep(
                min(stopped_seconds, HEALED_STOP_SECONDS) if self._is_healed else stopped_seconds
            )
        elif drawn < PAUSE_SHARE + DEATH_SHARE:
            raise DiedError
