"""What drivers, attempts and readers of a sink may see; `SinkHistory` has the rest.

undecided row           a reader sees a row whose attempt no driver has named as a winner yet: of a batch that
                        is not decided, or of an attempt that lost
one lease, one attempt  a producer id and epoch are given to one attempt alone
replay is skipped       an attempt of a batch is given a lease although the batch is committed
a repeated end answers the same   that the batch is committed
visible after commit    when a driver has been told that its batch is committed, a reader finds every row
batch = f(batch)        of every batch all rows are read in the end, once, by one driver's attempts; or none,
                        if no driver was told that it is committed

That everybody gets on is checked by `Progress` and `StableOffsets`.
"""

from collections import Counter
from typing import TYPE_CHECKING, NoReturn

from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.protocol.messages.sink_transaction import SinkTransactionResponse
from distributedlog.statemachine.pending import Producer
from tests.reliability.history import Outcome, Place, Seen
from tests.simulation.brokers.sinks.rows import Batch, attempt_of, batch_of, row_of, tasks_of
from tests.simulation.brokers.transactions.flows import Meaning, meaning_of
from tests.simulation.brokers.transactions.wire import TransactionsWire, committed_records
from tests.simulation.checkers import InvariantError

if TYPE_CHECKING:
    from tests.simulation.brokers.sinks.attempts import SinkAttempt
    from tests.simulation.brokers.sinks.cluster import SinksCluster

READS_MAX = 20


class Ledger:
    def __init__(self, cluster: "SinksCluster") -> None:
        self._cluster = cluster
        self._leases: dict[Producer, str] = {}
        self._named: set[str] = set()
        """The attempts that some driver has named as winners."""
        self._committed: dict[Batch, int] = {}
        """Batches of which a driver was told that they are committed, and when."""
        self._tokens: dict[Batch, int] = {}
        """Under which token they were."""
        self._joins_us: dict[str, int] = {}

    def _fail(self, invariant: str, text: str) -> NoReturn:
        found = InvariantError(invariant, text)
        self._cluster.failure = self._cluster.failure or found
        raise found

    # --- what drivers and attempts tell --------------------------------------------------------

    def joining(self, attempt: "SinkAttempt") -> None:
        self._joins_us[attempt.name] = self._cluster.now_us

    def skipped(self, attempt: "SinkAttempt") -> None:
        self._cluster.trace.add(self._cluster.now_us, f"skips {attempt.batch}", attempt.name)

    def leased(self, attempt: "SinkAttempt") -> None:
        assert attempt.producer is not None
        holder = self._leases.setdefault(attempt.producer, attempt.name)
        if holder != attempt.name:
            self._fail(
                "one lease, one attempt", f"{attempt.name} is given {attempt.producer}, which {holder} has"
            )
        committed_us = self._committed.get(attempt.batch)
        if committed_us is not None and committed_us < self._joins_us[attempt.name]:
            self._fail(
                "replay is skipped", f"{attempt.name} is given a lease in {attempt.batch}, which is committed"
            )

    def ending(self, batch: Batch, winners: "list[SinkAttempt]") -> None:
        """A driver is about to name its winners."""
        self._named.update(each.name for each in winners)

    def committed(self, batch: Batch, token: int, winners: "list[SinkAttempt]") -> None:
        self._committed.setdefault(batch, self._cluster.now_us)
        self._tokens[batch] = token
        for attempt in winners:
            for place, values, _, offset in attempt.sent:
                if offset is not None:
                    end = self._cluster.observer.identical.committed_end(place)
                    self._cluster.clients_side.look_for(place, Seen(offset, values[0]), end)

    def is_committed_by(self, batch: Batch, token: int) -> bool:
        return self._tokens.get(batch) == token

    def answered_again(self, batch: Batch, told: SinkTransactionResponse) -> None:
        """The end of a committed batch was sent again; a later driver may have fenced who sent it."""
        if meaning_of(told.error_code) is Meaning.REFUSED:
            self._fail("a repeated end answers the same", f"of {batch}, which is committed: {told}")

    def ended(
        self,
        batch: Batch,
        attempts: "list[SinkAttempt]",
        winners: "list[SinkAttempt]",
        outcome: Outcome,
    ) -> None:
        """The driver has done what it does for the batch."""
        for attempt in attempts:
            if attempt.sent:
                become = outcome if attempt in winners else Outcome.FAIL
                self._cluster.history.transacted(attempt.wire.name, attempt.name, attempt.sent, become)

    # --- what readers see ----------------------------------------------------------------------

    def saw(self, process: str, place: Place, seen: tuple[Seen, ...]) -> None:
        for each in seen:
            if attempt_of(each.value) not in self._named:
                self._fail("undecided row", f"{process} reads {each} of {place}, and nobody has named it")

    async def look(self, wire: TransactionsWire, place: Place, wanted: Seen, end: int) -> None:
        """Reads a row of a committed batch from a leader that has all that was committed by then."""
        for _ in range(READS_MAX):
            await wire.refresh()
            try:
                data = await wire.fetch_committed(place, wanted.offset, wait_ms=0)
            except DlogError:
                continue
            if data.error_code != ErrorCode.NONE or data.high_watermark < end:
                await self._cluster.clients_side.pause(50)
                continue
            seen, _ = committed_records(data, wanted.offset)
            if wanted not in seen:
                self._fail(
                    "visible after commit",
                    f"{wanted} of {place} is committed, and the reader sees {seen[:3]} up to "
                    f"{data.last_stable_offset}, where all below {end} was committed",
                )
            return

    # --- the end -------------------------------------------------------------------------------

    def check_batches(self, final: dict[Place, list[Seen]]) -> None:
        read: dict[Batch, Counter[str]] = {}
        for place, records in final.items():
            self.saw("the last reader", place, tuple(records))
            for each in records:
                read.setdefault(batch_of(each.value), Counter())[row_of(each.value)] += 1
        for batch in read.keys() | self._committed.keys():
            self._check_batch(batch, read.get(batch, Counter()))

    def _check_batch(self, batch: Batch, found: Counter[str]) -> None:
        places = self._cluster.clients_side.places_of(batch.query_id)
        tasks = tasks_of(self._cluster.seed, batch, places)
        expected = Counter(row for task in tasks for piece in task for row in piece.rows)
        if found != expected and (found or batch in self._committed):
            missing, extra = expected - found, found - expected
            self._fail(
                "batch = f(batch)",
                f"{batch} lacks {sorted(missing)[:4]} and has {sorted(extra)[:4]} too many, of "
                f"{expected.total()} rows; a driver was told: {batch in self._committed}",
            )
