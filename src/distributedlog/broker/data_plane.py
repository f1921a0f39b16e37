"""Everything of a broker that runs on the data loop: partitions, what waits on them, and the server.

    made     the logs are recovered; blocks, before anything runs
    start    the addresses are taken
    follow   from the first image that has caught up with the cluster, partitions are what the image says
    serve    clients are served; what they may do is decided by the image
    drain    no more clients; what was begun is answered
    close    everything synced and marked as a clean stop, or let go as it is

Called on the data loop only, in this order.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from distributedlog.broker.bridge import ControllerBridge, MetadataView
from distributedlog.broker.cluster.isolation import Isolation
from distributedlog.broker.cluster.lease_grant import LeaseGrant
from distributedlog.broker.coordination.late_coordinators import LateCoordinators
from distributedlog.broker.coordination.late_transactions import LateTransactions
from distributedlog.broker.coordination.lease import CoordinatorLease
from distributedlog.broker.coordination.producer_ids import ProducerIds
from distributedlog.broker.loops import LoopScheduler, PostingExecutor
from distributedlog.broker.net.acceptor import Acceptor
from distributedlog.broker.net.admission import ServerLimits
from distributedlog.broker.net.descriptors import DescriptorBudget
from distributedlog.broker.net.dispatch import HANDLERS
from distributedlog.broker.net.local_requests import LocalRequests
from distributedlog.broker.net.server import KafkaServer
from distributedlog.broker.net.warming import PageWarmer
from distributedlog.broker.observability.metrics import (
    OTHER,
    TOPICS_MAX,
    BrokerMetrics,
    Family,
    FamilyKind,
    Sample,
    one,
)
from distributedlog.broker.peers.authentication import SecretHolder
from distributedlog.broker.peers.late_verifier import LateVerifier
from distributedlog.broker.quotas.client_quotas import ClientQuotas
from distributedlog.broker.quotas.replication_quotas import ReplicationQuotas
from distributedlog.broker.replicas.delayed import Purgatory
from distributedlog.broker.replicas.fetch_sessions import FetchSessionCache
from distributedlog.broker.replicas.healing import Healing, SegmentReader
from distributedlog.broker.replicas.isr_changes import IsrChanges
from distributedlog.broker.replicas.leaderless import LeaderlessReplicas
from distributedlog.broker.replicas.partitions import PartitionSet
from distributedlog.broker.replicas.replica_fetcher_manager import FetchLimits, ReplicaFetcherManager
from distributedlog.broker.replicas.replication_metrics import ReplicationMetrics
from distributedlog.broker.replicas.scrub import Scrub
from distributedlog.broker.replicas.step_queue import StepQueue
from distributedlog.broker.services import Services
from distributedlog.controller.cluster_settings import session_timeout_ms
from distributedlog.controller.image import Endpoint, MetadataImage
from distributedlog.controller.persistent_map import changes
from distributedlog.controller.requests import UNKNOWN_EPOCH, AllocateProducerIdsRequest, ProducerIdBlock
from distributedlog.model.cluster_secret import ClusterSecrets
from distributedlog.model.errors import BrokerUnreachableError
from distributedlog.ports.clock import Clock
from distributedlog.ports.disk import Disk
from distributedlog.ports.executor import Executor, run_side_by_side
from distributedlog.ports.randomness import Randomness
from distributedlog.ports.round_executor import RoundPool
from distributedlog.settings.addresses import WILDCARDS
from distributedlog.settings.addresses import Endpoint as Address
from distributedlog.settings.node_settings import NodeSettings
from distributedlog.storage.syncs.opening import run_in_turn

if TYPE_CHECKING:
    from distributedlog.broker.coordination.coordinators import GroupCoordinators
    from distributedlog.broker.coordination.transaction_coordinators import TransactionCoordinators
    from distributedlog.broker.peers.transaction_verifier import TransactionVerifier
    from distributedlog.client.connection import Connection
    from distributedlog.protocol.messages.write_txn_markers import (
        WriteTxnMarkersRequest,
        WriteTxnMarkersResponse,
    )

BLOCKING_THREADS: Final = 4
"""How many threads the executor of a data plane needs."""
PREPARATIONS_MAX: Final = 2
"""How many batches are prepared at a time; beside a search, a thread is left to those who load."""
PEER_CONNECT_TIMEOUT_MS: Final = 5_000
FRAME_OVERHEAD: Final = 1024 * 1024
"""What a fetch response has beside records."""


class DataPlane:
    def __init__(
        self,
        settings: NodeSettings,
        loop: asyncio.AbstractEventLoop,
        *,
        disk: Disk,
        clock: Clock,
        randomness: Randomness,
        metrics: BrokerMetrics,
        secrets: Callable[[], ClusterSecrets],
        failed: Callable[[BaseException], None],
        executor: Executor,
        acceptor: Acceptor,
        descriptors: DescriptorBudget,
        draw: Callable[[int], bytes],
        sync_threads: int = 0,
    ) -> None:
        """`failed` is called on the loop when the data directory is out of use.  `executor` calls back on any
        thread, and is closed with the data plane.  `draw` draws that many bytes which nobody can guess.
        `sync_threads` threads do nothing but sync logs; with 0 that is work of `executor`, too."""
        self._settings = settings
        self._loop = loop
        self._clock = clock
        self._randomness = randomness
        self._metrics = metrics
        self._executor = executor
        self._acceptor = acceptor
        self._draw = draw
        self._scheduler = LoopScheduler(loop, clock)
        self._syncer: RoundPool | None = None
        if sync_threads:
            self._syncer = RoundPool(self._scheduler.post, threads=sync_threads, measured=metrics.synced)
        self._follows = False
        self._server: KafkaServer | None = None
        self._is_accepting = False
        self._services: Services | None = None
        self._producer_ids: ProducerIds | None = None
        self._groups: LateCoordinators | None = None
        self._transactions: LateTransactions | None = None
        self._lease: CoordinatorLease | None = None
        self._quotas = ClientQuotas()
        self._isolation = Isolation(clock, self._scheduler, self._set_heard)
        self._replication_quotas = ReplicationQuotas(settings)
        self._secrets = secrets
        self._fetchers: ReplicaFetcherManager | None = None
        self._isr_changes: IsrChanges | None = None
        self._verifier: LateVerifier | None = None
        self._local_requests: LocalRequests | None = None
        self._descriptors = descriptors
        self.partitions = PartitionSet.open(
            disk,
            settings,
            open_files_max=self._descriptors.open_files_max,
            clock=clock,
            randomness=randomness,
            scheduler=self._scheduler,
            executor=PostingExecutor(self._executor, self._scheduler),
            maker=PostingExecutor(self._executor, self._scheduler),
            syncer=self._syncer,
            run_all=partial(run_side_by_side, threads=sync_threads) if sync_threads else run_in_turn,
            on_failure=failed,
        )
        self._healing, self._scrub = self._make_healing(disk)
        self.leaderless = LeaderlessReplicas(self.partitions.signals, self._scheduler)
        metrics.add_source(self._families)
        metrics.add_source(self.partitions.maintenance.families)
        metrics.add_source(self.partitions.faults.families)
        metrics.add_source(self._quotas.families)
        metrics.add_source(lambda: self._replication_quotas.families(clock.monotonic_ms()))

    def _make_healing(self, disk: Disk) -> tuple[Healing, Scrub]:
        settings, clock, scheduler = self._settings, self._clock, self._scheduler
        posting = PostingExecutor(self._executor, scheduler)
        reader = SegmentReader(posting, disk)
        healing = Healing(
            self.partitions, node_id=settings.node_id, clock=clock, scheduler=scheduler, reader=reader
        )
        scrub = Scrub(
            self.partitions,
            healing,
            bytes_per_second=settings.scrub_bytes_per_second,
            interval_ms=settings.scrub_interval_ms,
            clock=clock,
            scheduler=scheduler,
            executor=posting,
            reader=reader,
        )
        self._metrics.add_source(healing.families)
        self._metrics.add_source(scrub.families)
        return healing, scrub

    # --- starting ------------------------------------------------------------------------------

    def start(
        self,
        view: MetadataView,
        controller: ControllerBridge,
        cluster_id: str,
        broker_epoch: Callable[[], int],
        *,
        tell_applied: Callable[[int, bool], None],
        await_settled: Callable[[int], None],
    ) -> tuple[Endpoint, ...]:
        """Takes the addresses under which clients will find this broker.

        The callbacks tell the controller what this loop has applied, and ask it what others have
        (`CoordinatorLease`).
        """
        settings = self._settings

        async def fetch_block() -> ProducerIdBlock:
            request = AllocateProducerIdsRequest(settings.node_id, broker_epoch())
            block = await controller.ask(request, settings.request_timeout_ms)
            assert isinstance(block, ProducerIdBlock)
            return block

        holder = SecretHolder(cluster_id, settings.node_id, self._secrets, self._draw)
        self.partitions.is_registered = partial(self._is_registered, broker_epoch)
        self._start_replication(view, controller, broker_epoch, holder)
        self._producer_ids = ProducerIds(fetch_block)
        lease = self._lease = CoordinatorLease(
            lambda: view.image,
            clock=self._clock,
            scheduler=self._scheduler,
            tell_applied=tell_applied,
            await_settled=await_settled,
        )
        self._groups = LateCoordinators(partial(self._new_coordinators, view, lease), self.partitions.signals)
        self._metrics.add_source(self._groups.families)
        connect = partial(self._connect_to_peer, view, broker_epoch, holder)
        self._transactions = LateTransactions(
            partial(self._new_transaction_coordinators, view, lease, connect), self.partitions.signals
        )
        self._verifier = LateVerifier(partial(self._new_verifier, view, connect))
        self._metrics.add_source(self._transactions.families)
        executor = PostingExecutor(self._executor, self._scheduler)
        purgatory = Purgatory(self.partitions.signals, clock=self._clock, scheduler=self._scheduler)
        services = self._services = Services(
            settings=settings,
            clock=self._clock,
            metadata=view,
            controller=controller,
            partitions=self.partitions,
            purgatory=purgatory,
            searches=StepQueue(executor),
            preparations=StepQueue(executor, running_max=PREPARATIONS_MAX),
            fetch_sessions=FetchSessionCache(
                settings.fetch_session_slots_max, randomness=self._randomness, idle=purgatory.idle
            ),
            replication_quotas=self._replication_quotas,
            producer_ids=self._producer_ids,
            groups=self._groups,
            transactions=self._transactions,
            transaction_verifier=self._verifier,
            metrics=self._metrics,
            secret_holder=holder,
            isolation=self._isolation,
        )
        self._local_requests = LocalRequests(services, HANDLERS, broker_epoch)
        return self._bind_server(services, executor)

    def _bind_server(self, services: Services, executor: Executor) -> tuple[Endpoint, ...]:
        settings = self._settings
        limits = replace(ServerLimits.of(settings), connections_max=self._descriptors.connections_max)
        self._server = KafkaServer(
            settings,
            services,
            self._loop,
            metrics=self._metrics,
            limits=limits,
            warmer=PageWarmer(executor),
            quotas=self._quotas,
            acceptor=self._acceptor,
        )
        self._server.bind()
        return advertised(settings, self._server.addresses)

    def _start_replication(
        self,
        view: MetadataView,
        controller: ControllerBridge,
        broker_epoch: Callable[[], int],
        holder: SecretHolder,
    ) -> None:
        settings, signals = self._settings, self.partitions.signals
        limits = FetchLimits(
            partition_bytes=settings.replica_fetch_bytes_max,
            response_bytes=settings.replica_fetch_response_bytes_max,
            wait_ms=settings.replica_fetch_wait_ms_max,
            timeout_ms=settings.replica_socket_timeout_ms,
        )

        self._fetchers = ReplicaFetcherManager(
            signals,
            node_id=settings.node_id,
            broker_epoch=broker_epoch,
            connect=partial(self._connect_to_peer, view, broker_epoch, holder),
            clock=self._clock,
            scheduler=self._scheduler,
            limits=limits,
            lower_checkpoints=self.partitions.maintenance.lower,
            quota=self._replication_quotas.follower,
        )
        self._isr_changes = IsrChanges(
            settings.node_id,
            signals,
            ask=controller.submit,
            image=lambda: view.image,
            broker_epoch=broker_epoch,
            clock=self._clock,
            scheduler=self._scheduler,
            lag_ms_max=settings.replica_lag_ms_max,
            timeout_ms=settings.request_timeout_ms,
        )
        self._metrics.add_source(
            ReplicationMetrics(
                self.partitions, self._fetchers, self._isr_changes, lambda: view.image, self._clock
            ).families
        )

    async def _connect_to_peer(
        self, view: MetadataView, broker_epoch: Callable[[], int], holder: SecretHolder, broker_id: int
    ) -> "Connection":
        """Connects to another broker, as this one."""
        from distributedlog.broker.peers.connecting import connect_to_peer  # with one broker nobody does

        settings = self._settings
        broker = view.image.brokers.get(broker_id)
        if broker is None:
            raise BrokerUnreachableError(f"broker {broker_id} is not registered")
        records_bytes = settings.replica_fetch_response_bytes_max + settings.log.max_message_bytes
        return await connect_to_peer(
            broker,
            settings.listeners[0].name,
            holder,
            broker_epoch(),
            timeout_ms=PEER_CONNECT_TIMEOUT_MS,
            frame_bytes_max=records_bytes + FRAME_OVERHEAD,
        )

    def _new_transaction_coordinators(
        self, view: MetadataView, lease: CoordinatorLease, connect: "Callable[[int], Awaitable[Connection]]"
    ) -> "TransactionCoordinators":
        from distributedlog.broker.coordination.marker_sender import MarkerSender
        from distributedlog.broker.coordination.transaction_coordinators import (
            TransactionCoordinators,
            transaction_config,
        )

        producer_ids = self._producer_ids
        assert producer_ids is not None

        async def new_producer_id() -> int:
            return (await producer_ids.new_producer()).producer_id

        sender = MarkerSender(
            lambda: view.image,
            broker_id=self._settings.node_id,
            connect=connect,
            write_here=self._write_markers_here,
            clock=self._clock,
            scheduler=self._scheduler,
            timeout_ms=self._settings.request_timeout_ms,
        )
        return TransactionCoordinators(
            transaction_config(self._settings),
            self.partitions.signals,
            lambda: view.image,
            broker_id=self._settings.node_id,
            clock=self._clock,
            scheduler=self._scheduler,
            executor=PostingExecutor(self._executor, self._scheduler),
            lease=lease,
            sender=sender,
            new_producer_id=new_producer_id,
            completed=self._transaction_completed,
        )

    def _transaction_completed(self, transactional_id: str) -> None:
        if self._verifier is not None:
            self._verifier.completed(transactional_id)

    async def _write_markers_here(self, request: "WriteTxnMarkersRequest") -> "WriteTxnMarkersResponse":
        from distributedlog.protocol.messages.write_txn_markers import WriteTxnMarkersResponse

        assert self._local_requests is not None
        version, timeout_ms = request.versions[1], self._settings.request_timeout_ms
        return await self._local_requests.ask(request, WriteTxnMarkersResponse, version, timeout_ms)

    def _new_coordinators(self, view: MetadataView, lease: CoordinatorLease) -> "GroupCoordinators":
        from distributedlog.broker.coordination.coordinators import GroupCoordinators, group_config

        return GroupCoordinators(
            group_config(self._settings),
            self.partitions.signals,
            lambda: view.image,
            broker_id=self._settings.node_id,
            clock=self._clock,
            scheduler=self._scheduler,
            executor=PostingExecutor(self._executor, self._scheduler),
            randomness=self._randomness,
            lease=lease,
        )

    def _new_verifier(
        self, view: MetadataView, connect: "Callable[[int], Awaitable[Connection]]"
    ) -> "TransactionVerifier":
        from distributedlog.broker.peers.transaction_verifier import TransactionVerifier
        from distributedlog.protocol.messages.add_partitions_to_txn import (
            AddPartitionsToTxnRequest,
            AddPartitionsToTxnResponse,
        )

        timeout_ms = self._settings.request_timeout_ms

        async def ask_self(request: AddPartitionsToTxnRequest, version: int) -> AddPartitionsToTxnResponse:
            assert self._local_requests is not None
            return await self._local_requests.ask(request, AddPartitionsToTxnResponse, version, timeout_ms)

        return TransactionVerifier(
            lambda: view.image,
            broker_id=self._settings.node_id,
            connect=connect,
            ask_self=ask_self,
            clock=self._clock,
            scheduler=self._scheduler,
            timeout_ms=timeout_ms,
        )

    def serve(self) -> None:
        """Accepts clients, from the first call on.  Not before the image shows this broker as one that
        serves: a client that asks a broker for brokers and finds none forgets the only one it knew."""
        if self._server is not None and not self._is_accepting:
            self._is_accepting = True
            self._server.serve()

    def settle(self) -> Iterator[None]:
        """Imports what the start did not wait for, a piece at a time."""
        for _ in HANDLERS.load():
            yield
        import distributedlog.records.codecs  # noqa: F401 - the first compressed batch needs it at once

        yield
        if self._groups is not None:
            self._groups.load()
        yield
        if self._transactions is not None:
            self._transactions.load()

    @property
    def client_address(self) -> str:
        """Where the first listener is bound."""
        assert self._server is not None
        return str(self._server.addresses[self._settings.listeners[0].name])

    def follow(self, view: MetadataView, done: Callable[[], None]) -> None:
        """Makes the partitions what the present image says, and then what every later one says."""
        if self._follows:
            self.partitions.apply_image(view.image, done)
            return
        self._follows = True
        self.partitions.apply_image(view.image, done)
        self.partitions.start()
        self._scrub.start()
        view.on_change(self._image_changed)

    def _is_registered(self, broker_epoch: Callable[[], int], image: MetadataImage) -> bool:
        broker = image.brokers.get(self._settings.node_id)
        return broker is not None and broker.epoch == broker_epoch()

    def take_broker_epoch(self, broker_epoch: int) -> None:
        """The broker epoch is another: what another process leads under our id is not ours."""
        self.partitions.maintenance.take_broker_epoch(broker_epoch)
        self.partitions.take_roles_again()

    @property
    def synced_epoch(self) -> int:
        """The broker epoch in which the last process committed nothing here that was not synced."""
        partitions = self.partitions
        is_known = partitions.store.are_checkpoints_sound
        return partitions.maintenance.synced_commits.previous_epoch if is_known else UNKNOWN_EPOCH

    def _image_changed(self, old: MetadataImage, image: MetadataImage) -> None:
        self.partitions.apply_image(image)
        if old.quotas is not image.quotas:
            self._quotas.follow({entity: dict(each.items()) for entity, each in image.quotas.items()})
        if self._replication_quotas.follow(old, image) and self._fetchers is not None:
            self._fetchers.throttles_changed()
        if old.topic_ids is not image.topic_ids:
            removed = [each.key for each in changes(old.topic_ids, image.topic_ids) if each.new is None]
            for name in removed:
                self._metrics.forget_topic(name)
            if removed and self._groups is not None:
                self._groups.topics_removed(removed)
        if old.brokers is not image.brokers:
            if self._transactions is not None:
                self._transactions.brokers_changed()
            if self._verifier is not None:
                self._verifier.brokers_changed()
        if self._lease is not None:
            self._lease.note_applied(image.offset)
            if self._lease.is_valid():
                self._tell_isolation(self._lease)

    def _set_heard(self, heard: frozenset[int] | None) -> bool:
        """Returns whether any partition is isolated by it."""
        for partition in self.partitions:
            partition.set_heard(heard)
        return any(partition.is_isolated for partition in self.partitions)

    def take_lease(self, grant: LeaseGrant) -> None:
        if self._lease is not None:
            self._lease.take(grant)
            self._tell_isolation(self._lease)

    def _tell_isolation(self, lease: CoordinatorLease) -> None:
        """A broker that was fenced is granted a lease before it knows here what was taken from it."""
        if self._services is not None:
            timeout_ms = session_timeout_ms(self._services.metadata.image)
            self._isolation.take_lease(lease.end_ms, timeout_ms)

    def _families(self) -> Iterator[Family]:
        """Returns what a scrape shows of the partitions."""
        sizes: dict[str, int] = {}
        leading = 0
        for partition in self.partitions:
            leading += partition.is_leader
            topic = partition.topic if partition.topic in sizes or len(sizes) < TOPICS_MAX else OTHER
            sizes[topic] = sizes.get(topic, 0) + partition.log.size_bytes
        gauge = FamilyKind.GAUGE
        yield one(gauge, "dlog_partitions", "Replicas on this broker.", len(self.partitions))
        yield one(gauge, "dlog_partitions_leading", "Partitions that this broker leads.", leading)
        unavailable = len(self.partitions.unavailable)
        yield one(gauge, "dlog_partitions_unavailable", "Replicas whose log cannot be opened.", unavailable)
        strays = len(self.partitions.store.strays.since_ms)
        yield one(gauge, "dlog_stray_logs", "Logs of no known topic, kept for a while.", strays)
        samples = [Sample({"topic": topic}, size) for topic, size in sizes.items()]
        yield Family(gauge, "dlog_log_size_bytes", "Bytes of a topic's logs on this broker.", samples)
        counter, rounds = FamilyKind.COUNTER, self.partitions.sync_rounds
        yield one(counter, "dlog_sync_rounds", "Hand-overs of logs to be synced.", rounds.round_count)
        yield one(counter, "dlog_sync_round_logs", "Logs in all rounds of syncs.", rounds.log_count)

    # --- stopping ------------------------------------------------------------------------------

    async def drain(self, timeout_ms: int) -> None:
        if self._server is not None:
            await self._server.stop(timeout_ms)
        if self._services is not None:
            # What was not prepared by now is not appended any more: the logs are closed next.
            self._services.searches.close()
            self._services.preparations.close()

    def close(self, *, broker_epoch: int, cleanly: bool) -> None:
        """Blocks until the logs are closed."""
        if self._fetchers is not None:
            self._fetchers.close()
        if self._isr_changes is not None:
            self._isr_changes.close()
        self._scrub.stop()
        self._healing.close()
        if self._verifier is not None:
            self._verifier.close()
        if self._producer_ids is not None:
            self._producer_ids.close()
        if self._groups is not None:
            self._groups.close()
        if self._transactions is not None:
            self._transactions.close()
        if cleanly:
            self.partitions.close(broker_epoch=broker_epoch)
        else:
            self.partitions.store.abandon()
        if self._syncer is not None:
            self._syncer.close()
        self._executor.close()


def advertised(settings: NodeSettings, bound: dict[str, Address]) -> tuple[Endpoint, ...]:
    """Returns what clients are told to connect to.  A port that was chosen free is known only now."""
    found = []
    for name, host, port in settings.advertised_listeners:
        assert host not in WILDCARDS, "the settings refuse these"
        found.append(Endpoint(name, host, port or bound[name].port))
    return tuple(found)
