"""What a scrape shows of the transactions that this broker coordinates.

    dlog_transactional_ids                    by state     how many there are
    dlog_transaction_oldest_seconds                        how long the oldest is open; 0 without any
    dlog_transactions_aborted                 by reason    by their client, by a timeout, by another producer
    dlog_transaction_markers_waiting                       markers of decided transactions, not written yet
    dlog_transaction_coordinators_loading                  partitions whose transactions are being read back
    dlog_sink_queries                         by state     queries of exactly-once sinks
    dlog_sink_attempts                                     attempts of tasks that write in a sink's batch
    dlog_sink_pooled_producer_ids                          producer ids of sinks that are free
    dlog_transaction_unreadable_records                    records that could not be read and were skipped

Aborts are counted by this broker since it started; all else is as it is now.  A transaction that is open for
longer than its timeout, or markers that wait for long, say that a partition has no leader that can write.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from distributedlog.broker.observability.metrics import Family, FamilyKind, Sample, one
from distributedlog.transactions.machine import TransactionMachine
from distributedlog.transactions.requests import AbortReason
from distributedlog.transactions.sinks.query import SINK_STATES
from distributedlog.transactions.transaction import TransactionState


class TransactionMetrics:
    """Counts on the data loop.  `machines` are the active ones; `loading` how many are not yet."""

    def __init__(
        self,
        machines: Callable[[], Iterable[TransactionMachine]],
        *,
        loading: Callable[[], int],
        unreadable: Callable[[], int],
        markers_waiting: Callable[[], int],
        wall_ms: Callable[[], int],
    ) -> None:
        self._machines = machines
        self._loading = loading
        self._unreadable = unreadable
        self._markers_waiting = markers_waiting
        self._wall_ms = wall_ms
        self.aborted: Counter[AbortReason] = Counter()

    def families(self) -> Iterator[Family]:
        states: Counter[TransactionState] = Counter()
        sinks: Counter[TransactionState] = Counter()
        attempts = pooled = 0
        oldest_ms = wall_ms = self._wall_ms()
        for machine in self._machines():
            states.update(each.state for each in machine.transactions.values())
            oldest_ms = min(oldest_ms, min(machine.open_start_times_ms(), default=wall_ms))
            for sink in machine.sinks.states.values():
                sinks.update((sink.known.state,))
                attempts += sink.open_count
                pooled += len(sink.free)
        gauge, counter = FamilyKind.GAUGE, FamilyKind.COUNTER
        yield Family(
            gauge, "dlog_transactional_ids", "Transactional ids that this broker coordinates.",
            [Sample({"state": state.label}, states[state]) for state in TransactionState],
        )  # fmt: skip
        yield one(
            gauge, "dlog_transaction_oldest_seconds", "How long the oldest open transaction is open.",
            (wall_ms - oldest_ms) / 1000,
        )  # fmt: skip
        yield Family(
            counter, "dlog_transactions_aborted", "Transactions that were aborted.",
            [Sample({"reason": reason.value}, self.aborted[reason]) for reason in AbortReason],
        )  # fmt: skip
        waiting = self._markers_waiting()
        yield one(gauge, "dlog_transaction_markers_waiting", "Markers that are not written yet.", waiting)
        yield one(
            gauge, "dlog_transaction_coordinators_loading", "Coordinators that read transactions back.",
            self._loading(),
        )  # fmt: skip
        yield one(
            gauge, "dlog_transaction_unreadable_records", "Records of transactions that were skipped.",
            self._unreadable(),
        )  # fmt: skip
        yield Family(
            gauge, "dlog_sink_queries", "Queries that write through an exactly-once sink.",
            [Sample({"state": state.label}, sinks[state]) for state in SINK_STATES],
        )  # fmt: skip
        yield one(gauge, "dlog_sink_attempts", "Attempts that hold a producer id of a sink.", attempts)
        yield one(gauge, "dlog_sink_pooled_producer_ids", "Producer ids of sinks that nobody holds.", pooled)
