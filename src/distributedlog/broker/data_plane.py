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
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeVar

from distributedlog.broker.addresses import WILDCARDS
from distributedlog.broker.addresses import Endpoint as Address
from distributedlog.broker.admission import ServerLimits
from distributedlog.broker.bridge import ControllerBridge, MetadataView
from distributedlog.broker.delayed import Delayed
from distributedlog.broker.descriptors import raise_limit, share
from distributedlog.broker.dispatch import HANDLERS
from distributedlog.broker.fetch_sessions import FetchSessionCache
from distributedlog.broker.gateway.late import GATEWAY_LISTENER, LateBrokerService
from distributedlog.broker.late_coordinators import LateCoordinators
from distributedlog.broker.loops import LoopScheduler
from distributedlog.broker.metrics import OTHER, TOPICS_MAX, BrokerMetrics, Family, FamilyKind, Sample, one
from distributedlog.broker.partitions import PartitionSet, PostingExecutor
from distributedlog.broker.producer_ids import ProducerIds
from distributedlog.broker.quotas import ClientQuotas
from distributedlog.broker.server import KafkaServer
from distributedlog.broker.services import Services
from distributedlog.broker.settings import NodeSettings
from distributedlog.broker.warming import PageWarmer
from distributedlog.controller.image import Endpoint, MetadataImage
from distributedlog.controller.persistent_map import changes
from distributedlog.controller.requests import AllocateProducerIdsRequest, ProducerIdBlock
from distributedlog.ports.clock import Clock
from distributedlog.ports.disk import Disk
from distributedlog.ports.executor import Done, Executor, Outcome, SystemExecutor
from distributedlog.ports.randomness import Randomness

if TYPE_CHECKING:
    from distributedlog.broker.coordinators import GroupCoordinators
    from distributedlog.broker.gateway.service import BrokerService

T = TypeVar("T")

BLOCKING_THREADS: Final = 4


class TimedExecutor(PostingExecutor):
    """Tells how long each piece of blocking work took: on this loop all of it is there to sync something."""

    def __init__(self, executor: Executor, scheduler: LoopScheduler, tell: Callable[[float], None]) -> None:
        super().__init__(executor, scheduler)
        self._tell = tell

    def run_blocking(self, work: Callable[[], T], done: Done[T]) -> None:
        seconds = 0.0

        def timed() -> T:
            nonlocal seconds
            started = perf_counter()
            try:
                return work()
            finally:
                seconds = perf_counter() - started

        def told(outcome: Outcome[T]) -> None:
            self._tell(seconds)
            done(outcome)

        super().run_blocking(timed, told)


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
        failed: Callable[[BaseException], None],
    ) -> None:
        """`failed` is told on the loop when the data directory is out of use."""
        self._settings = settings
        self._loop = loop
        self._clock = clock
        self._randomness = randomness
        self._metrics = metrics
        self._executor = SystemExecutor(threads=BLOCKING_THREADS)
        self._scheduler = LoopScheduler(loop, clock)
        self._follows = False
        self._server: KafkaServer | None = None
        self._is_accepting = False
        self._services: Services | None = None
        self._producer_ids: ProducerIds | None = None
        self._groups: LateCoordinators | None = None
        self._quotas = ClientQuotas(default_partitions=settings.num_partitions)
        self._descriptors = share(raise_limit(), settings.connections_max)
        self.partitions = PartitionSet.open(
            disk,
            settings,
            open_files_max=self._descriptors.open_files_max,
            clock=clock,
            randomness=randomness,
            scheduler=self._scheduler,
            executor=TimedExecutor(self._executor, self._scheduler, metrics.synced),
            on_failure=failed,
        )
        metrics.add_source(self._families)
        metrics.add_source(self.partitions.upkeep.families)
        metrics.add_source(self._quotas.families)

    # --- starting ------------------------------------------------------------------------------

    def start(
        self,
        view: MetadataView,
        controller: ControllerBridge,
        broker_epoch: Callable[[], int],
        lease_end_ms: Callable[[], int],
    ) -> tuple[Endpoint, ...]:
        """Takes the addresses under which clients will find this broker."""
        settings = self._settings

        async def fetch_block() -> ProducerIdBlock:
            request = AllocateProducerIdsRequest(settings.node_id, broker_epoch())
            block = await controller.ask(request, settings.request_timeout_ms)
            assert isinstance(block, ProducerIdBlock)
            return block

        self._producer_ids = ProducerIds(fetch_block)
        self._groups = LateCoordinators(
            partial(self._new_coordinators, view, lease_end_ms), self.partitions.signals
        )
        self._metrics.add_source(self._groups.families)
        services = self._services = Services(
            settings=settings,
            clock=self._clock,
            metadata=view,
            controller=controller,
            partitions=self.partitions,
            delayed=Delayed(self.partitions.signals, clock=self._clock, scheduler=self._scheduler),
            fetch_sessions=FetchSessionCache(settings.fetch_session_slots_max, randomness=self._randomness),
            producer_ids=self._producer_ids,
            groups=self._groups,
            metrics=self._metrics,
        )
        warmer = PageWarmer(PostingExecutor(self._executor, self._scheduler))
        limits = replace(ServerLimits.of(settings), connections_max=self._descriptors.connections_max)
        self._server = KafkaServer(
            settings,
            services,
            self._loop,
            metrics=self._metrics,
            limits=limits,
            warmer=warmer,
            quotas=self._quotas,
        )
        self._server.bind()
        return advertised(settings, self._server.addresses)

    def _new_coordinators(self, view: MetadataView, lease_end_ms: Callable[[], int]) -> "GroupCoordinators":
        from distributedlog.broker.coordinators import GroupCoordinators, group_config

        return GroupCoordinators(
            group_config(self._settings),
            self.partitions.signals,
            lambda: view.image,
            clock=self._clock,
            scheduler=self._scheduler,
            executor=PostingExecutor(self._executor, self._scheduler),
            randomness=self._randomness,
            lease_end_ms=lease_end_ms,
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

    @property
    def client_address(self) -> str:
        """Where the first listener is bound."""
        assert self._server is not None
        return str(self._server.addresses[self._settings.listeners[0].name])

    def gateway_service(self, why_not_ready: Callable[[], str | None]) -> LateBrokerService:
        """What the gateway serves, on the control loop, of what is here.  After `start`."""
        assert self._services is not None
        services = self._services

        def make() -> "BrokerService":
            from distributedlog.broker.gateway.bridge import GatewayBridge
            from distributedlog.broker.gateway.service import BrokerService

            executor = PostingExecutor(self._executor, self._scheduler)
            bridge = GatewayBridge(services, self._loop, executor, self._metrics, why_not_ready, self._quotas)
            return BrokerService(bridge, first_partition=self._settings.node_id)

        return LateBrokerService(make)

    def follow(self, view: MetadataView, done: Callable[[], None]) -> None:
        """Makes the partitions what the present image says, and then what every later one says."""
        if self._follows:
            self.partitions.apply_image(view.image, done)
            return
        self._follows = True
        self.partitions.apply_image(view.image, done)
        self.partitions.start()
        view.on_change(self._image_changed)

    def _image_changed(self, old: MetadataImage, image: MetadataImage) -> None:
        self.partitions.apply_image(image)
        if old.quotas is not image.quotas:
            self._quotas.follow({entity: dict(each.items()) for entity, each in image.quotas.items()})
        if old.topic_ids is not image.topic_ids:
            removed = [each.key for each in changes(old.topic_ids, image.topic_ids) if each.new is None]
            for name in removed:
                self._metrics.forget_topic(name)
            if removed and self._groups is not None:
                self._groups.topics_removed(removed)

    def _families(self) -> Iterator[Family]:
        """What a scrape shows of the partitions."""
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
        samples = [Sample({"topic": topic}, size) for topic, size in sizes.items()]
        yield Family(gauge, "dlog_log_size_bytes", "Bytes of a topic's logs on this broker.", samples)

    # --- stopping ------------------------------------------------------------------------------

    async def drain(self, timeout_ms: int) -> None:
        if self._server is not None:
            await self._server.stop(timeout_ms)

    def close(self, *, broker_epoch: int, cleanly: bool) -> None:
        """Blocks until the logs are closed."""
        if self._producer_ids is not None:
            self._producer_ids.close()
        if self._groups is not None:
            self._groups.close()
        if cleanly:
            self.partitions.close(broker_epoch=broker_epoch)
        else:
            self.partitions.store.abandon()
        self._executor.close()


def advertised(settings: NodeSettings, bound: dict[str, Address]) -> tuple[Endpoint, ...]:
    """What clients are told to connect to.  A port that was chosen free is known only now."""
    found = []
    for name, host, port in settings.advertised_listeners:
        assert host not in WILDCARDS, "the settings refuse these"
        found.append(Endpoint(name, host, port or bound[name].port))
    return tuple(found)


def advertised_gateway(settings: NodeSettings, bound: Address) -> Endpoint:
    """Where other brokers tell their callers to find this one's gateway."""
    host = settings.advertised_listeners[0].host if bound.host in WILDCARDS else bound.host
    return Endpoint(GATEWAY_LISTENER, host, bound.port)
