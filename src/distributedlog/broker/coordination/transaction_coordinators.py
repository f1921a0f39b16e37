"""The transaction coordinators of this broker: one for each partition of `__transaction_state` that it leads.

Each is a `transactions/machine` on the host that all machines share (`host`), with the partition as its log
(`coordinator_log`); the partition's leader epoch is the coordinator epoch that markers carry.  Why requests
fail, and what clients get for it, stands in `coordinators`; it is the same here.

What a coordinator does besides answering:

    a decision is committed     its markers are sent (`marker_sender`); when all are written the coordinator
                                is asked to note it, again and again until it has; who waits for that to begin
                                its next transaction is told (`completed`)
    a producer id is needed     it is fetched, and the request submitted again with it
    a sink's batch is decided   who ended it is answered when its last marker is written (`sink_ends`)
    it coordinates no more      its markers are cancelled: its successor sends them

Calls come and go on the data loop.  Nothing here survives a crash: the log does.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, cast

from distributedlog.broker.coordination.by_partition import CoordinatorsByPartition
from distributedlog.broker.coordination.coordinator_log import LOAD_AGAIN_MS, CoordinatorLog, RecordCodec
from distributedlog.broker.coordination.coordinators import ENTRY_SPARE_BYTES, map_error
from distributedlog.broker.coordination.host import Confirmed, Host, HostCallbacks
from distributedlog.broker.coordination.lease import CoordinatorLease
from distributedlog.broker.coordination.marker_sender import MarkerJob, MarkerSender
from distributedlog.broker.coordination.sink_ends import SinkEnds
from distributedlog.broker.coordination.transaction_metrics import TransactionMetrics
from distributedlog.controller.image import MetadataImage
from distributedlog.model.config import SECOND_MS
from distributedlog.model.errors import (
    ConcurrentTransactionsError,
    CoordinatorNotAvailableError,
    DlogError,
    InvalidTransactionStateError,
    LoadInProgressError,
    NotCoordinatorError,
)
from distributedlog.model.internal_topics import TRANSACTIONS_TOPIC
from distributedlog.ports.clock import Clock
from distributedlog.ports.executor import Done, Executor, Outcome
from distributedlog.ports.scheduler import Scheduler
from distributedlog.replication.contract import PartitionSignals
from distributedlog.replication.partition import Partition
from distributedlog.settings.node_settings import NodeSettings
from distributedlog.transactions.config import TransactionConfig
from distributedlog.transactions.machine import TransactionMachine
from distributedlog.transactions.records import (
    Record,
    decode_record,
    encode_records,
    record_key,
)
from distributedlog.transactions.requests import (
    READS,
    BeingAborted,
    Effect,
    EndRequest,
    InitRequest,
    MarkersWrittenRequest,
    NeedsProducerId,
    Reply,
    Request,
    SendMarkers,
)
from distributedlog.transactions.sinks.requests import (
    SinkCompleted,
    SinkDecided,
    SinkEnd,
    SinkJoin,
    WinnersRefused,
)

_logger = logging.getLogger("distributedlog.broker")

NOTE_TIMEOUT_MS: Final = 30 * SECOND_MS
NOTE_AGAIN_MS: Final = 100
"""The pause until the coordinator is asked again to note that markers are written."""
_CODEC: Final[RecordCodec[Record]] = RecordCodec(encode_records, decode_record, record_key)

NewProducerId = Callable[[], Awaitable[int]]
Completed = Callable[[str], None]
"""Is told the transactional id of which the next transaction may begin."""


def transaction_config(settings: NodeSettings) -> TransactionConfig:
    return TransactionConfig(
        timeout_ms_max=settings.transaction_timeout_ms_max,
        id_expiration_ms=settings.transactional_id_expiration_ms,
        id_expiration_check_ms=settings.transactional_id_check_ms,
    )


class TransactionCoordinator:
    """The coordinator of the transactional ids of one partition, for as long as this broker leads it."""

    def __init__(
        self,
        partition: Partition,
        new_machine: Callable[[], TransactionMachine],
        *,
        clock: Clock,
        scheduler: Scheduler,
        executor: Executor,
        lease: CoordinatorLease,
        sender: MarkerSender,
        new_producer_id: NewProducerId,
        completed: Completed,
    ) -> None:
        self.partition = partition
        self._clock = clock
        self._scheduler = scheduler
        self._lease = lease
        self._sender = sender
        self._new_producer_id = new_producer_id
        self._completed = completed
        self._log = CoordinatorLog(
            partition, _CODEC, clock=clock, executor=executor, begin_takeover=lease.begin_takeover
        )
        self.host: Host[Request, Record, Reply, Effect] = Host(
            new_machine,
            self._log,
            self._confirm_read,
            HostCallbacks(perform=self._perform, unloaded=self._unloaded, map_error=map_error),
            clock=clock,
            scheduler=scheduler,
            load_again_ms=LOAD_AGAIN_MS,
        )
        self._jobs: dict[MarkerJob, None] = {}
        self._sink_ends = SinkEnds()
        self._fetching: dict[asyncio.Task[int], None] = {}

    @property
    def is_active(self) -> bool:
        return self.host.is_active

    @property
    def machine(self) -> TransactionMachine:
        return cast(TransactionMachine, self.host.runtime.machine)

    @property
    def unreadable_count(self) -> int:
        return self._log.unreadable_count

    def on_progress(self) -> None:
        """Looks at the partition: it may have committed something, or lead in another epoch."""
        self.host.progressed()

    def close(self) -> None:
        """Ends the coordinator, for another leads or nobody: everyone who waits gets an error."""
        self.host.close()
        self._cancel_markers()
        for task in list(self._fetching):
            task.cancel()

    # --- requests ------------------------------------------------------------------------------

    def submit(self, request: Request, deadline_ms: int, done: Done[Reply]) -> None:
        if not self._log.is_writable() and not isinstance(request, READS):
            error = CoordinatorNotAvailableError(f"{self.partition.key} has too few replicas in sync")
            done(Outcome(error=error))
            return

        def replied(outcome: Outcome[Reply]) -> None:
            reply = None if outcome.error is not None else outcome.value()
            if isinstance(reply, NeedsProducerId):
                assert isinstance(request, InitRequest | EndRequest | SinkJoin), "others need none"
                self._fetch_producer_id(request, deadline_ms, done)
            elif isinstance(reply, BeingAborted):
                error = ConcurrentTransactionsError("the transaction before is being aborted: ask again")
                done(Outcome(error=error))
            elif isinstance(reply, WinnersRefused):
                done(Outcome(error=InvalidTransactionStateError(f"the batch is aborted: {reply.reason}")))
            elif isinstance(reply, SinkDecided):
                assert isinstance(request, SinkEnd), "nobody else decides"
                self._await_end(request, deadline_ms, done)
            else:
                done(outcome)

        self.host.submit(request, deadline_ms, replied)

    def _fetch_producer_id(
        self, request: InitRequest | EndRequest | SinkJoin, deadline_ms: int, done: Done[Reply]
    ) -> None:
        async def fetch() -> int:
            return await self._new_producer_id()

        def fetched(task: asyncio.Task[int]) -> None:
            """Not in the task itself: one that is cancelled before its first turn does nothing at all."""
            del self._fetching[task]
            error: BaseException | None
            if task.cancelled():
                error = NotCoordinatorError(f"{self.partition.key} is led elsewhere")
            else:
                error = task.exception()
                if isinstance(error, DlogError):
                    error = LoadInProgressError(f"no producer id could be had: {error}")
            if error is not None:
                done(Outcome(error=error))
            else:
                self.submit(request._replace(new_producer_id=task.result()), deadline_ms, done)

        task = asyncio.get_running_loop().create_task(fetch())
        self._fetching[task] = None
        task.add_done_callback(fetched)

    def _await_end(self, request: SinkEnd, deadline_ms: int, done: Done[Reply]) -> None:
        """Answers the end of a sink's batch when it is complete, as it may be by now."""
        if self.machine.sinks.is_being_ended(request.query_id):
            self._sink_ends.wait(request.query_id, done)
        else:
            self.submit(request, deadline_ms, done)

    def _confirm_read(self, confirmed: Confirmed) -> None:
        if self._lease.is_valid():
            confirmed(None)
        else:
            confirmed(NotCoordinatorError("another broker may coordinate this id: there is no lease"))

    # --- markers -------------------------------------------------------------------------------

    def _perform(self, effect: Effect, epoch: int) -> None:
        if isinstance(effect, SinkCompleted):
            self._sink_ends.completed(effect.query_id)
        elif epoch == self.host.epoch:
            self._send_markers(effect, epoch)

    def _send_markers(self, markers: SendMarkers, epoch: int) -> None:
        def written() -> None:
            self._jobs.pop(job, None)
            self._note_written(markers, epoch)

        job = self._sender.send(markers, written)
        self._jobs[job] = None

    def _note_written(self, markers: SendMarkers, epoch: int) -> None:
        """Has the coordinator note that all markers are written; one of a later epoch sends them itself."""
        if epoch != self.host.epoch:
            return

        def noted(outcome: Outcome[Reply]) -> None:
            if outcome.error is not None and epoch == self.host.epoch and self._is_prepared(markers):
                _logger.debug("that markers are written was not noted: %s", outcome.error)
                again_ms = self._clock.monotonic_ms() + NOTE_AGAIN_MS
                self._scheduler.call_at(again_ms, lambda: self._note_written(markers, epoch))

        request = MarkersWrittenRequest(markers.transactional_id, markers.producer)
        self.submit(request, self._clock.monotonic_ms() + NOTE_TIMEOUT_MS, noted)
        # Now, and not when it is committed: what follows in the log is committed with it, by the same sync.
        self._completed(markers.transactional_id)

    def _is_prepared(self, markers: SendMarkers) -> bool:
        """Returns whether the transaction may still wait for these markers: while it is loading nobody
        knows, and a machine that was loaded anew sends them again."""
        return self.is_active and self.machine.waits_for(markers)

    def _cancel_markers(self) -> None:
        jobs, self._jobs = self._jobs, {}
        self._sender.cancel(jobs)

    def _unloaded(self, has_lost: bool) -> None:
        self._cancel_markers()
        error: DlogError = CoordinatorNotAvailableError("the log could not be written")
        if has_lost:
            self._lease.note_lost()
            error = NotCoordinatorError(f"{self.partition.key} is led elsewhere")
        self._sink_ends.fail(error)


class TransactionCoordinators(CoordinatorsByPartition[TransactionCoordinator]):
    """All transaction coordinators of this broker."""

    def __init__(
        self,
        config: TransactionConfig,
        signals: PartitionSignals,
        image: Callable[[], MetadataImage],
        *,
        broker_id: int,
        clock: Clock,
        scheduler: Scheduler,
        executor: Executor,
        lease: CoordinatorLease,
        sender: MarkerSender,
        new_producer_id: NewProducerId,
        completed: Completed,
    ) -> None:
        """`executor` calls back on the loop."""
        super().__init__(TRANSACTIONS_TOPIC, self._lead, signals, image, broker_id=broker_id)
        self._config = config
        self._clock = clock
        self._scheduler = scheduler
        self._executor = executor
        self._lease = lease
        self._sender = sender
        self._new_producer_id = new_producer_id
        self._completed = completed
        self.metrics = TransactionMetrics(
            lambda: (each.machine for each in self.all_active()),
            loading=lambda: self.loading_count,
            unreadable=lambda: sum(self.unreadable_counts().values()),
            markers_waiting=lambda: sender.waiting_count,
            wall_ms=clock.wall_ms,
        )

    def _lead(self, partition: Partition) -> TransactionCoordinator:
        def new_machine() -> TransactionMachine:
            entry_bytes_max = partition.log.config.max_message_bytes - ENTRY_SPARE_BYTES
            config = self._config.with_entry_bytes_max(entry_bytes_max)
            return TransactionMachine(config, self._clock.wall_ms, self.metrics.aborted)

        return TransactionCoordinator(
            partition,
            new_machine,
            clock=self._clock,
            scheduler=self._scheduler,
            executor=self._executor,
            lease=self._lease,
            sender=self._sender,
            new_producer_id=self._new_producer_id,
            completed=self._completed,
        )

    def brokers_changed(self) -> None:
        self._sender.brokers_changed()

    def close(self) -> None:
        super().close()
        self._sender.close()

    # --- asking --------------------------------------------------------------------------------

    def submit(self, transactional_id: str, request: Request, deadline_ms: int, done: Done[Reply]) -> None:
        """Submits a request to a coordinator; `done` gets the reply once what it says is committed, or the
        error for the client."""
        try:
            coordinator = self.of_key(transactional_id)
        except DlogError as error:
            done(Outcome(error=error))
            return
        coordinator.submit(request, deadline_ms, done)
