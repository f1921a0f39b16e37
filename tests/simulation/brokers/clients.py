"""The clients of a simulated cluster, all in one process that nothing happens to; the network to it fails.

producers    idempotent with acks=all, one batch at a time, again and again until it is acknowledged or too
             old; one with acks=1 that asks once
consumers    each reads its partitions from the start, and asks for their latest offsets; now and then one
             says that it is a replica, which nothing proves
committer    a member of a group (`committers`)
watcher      asks every new leader at once for its latest offset, and for what it has behind that
mover        moves partitions, in some runs (`movers`)
admin        creates the topics, gives one more partitions, deletes records of another
at the end   a fresh client reads everything
"""

import asyncio
import contextlib
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from distributedlog.model.cluster_settings import MIN_INSYNC_REPLICAS
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from distributedlog.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from distributedlog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tests.reliability.history import Place
from tests.simulation.brokers.committers import Committer
from tests.simulation.brokers.host import PORT, BrokerHost
from tests.simulation.brokers.movers import MOVES, Mover
from tests.simulation.brokers.process_loop import ProcessLoop
from tests.simulation.brokers.producers import Producer
from tests.simulation.brokers.wire_client import EARLIEST, LATEST, WireClient, records_from
from tests.simulation.process import SimProcess

if TYPE_CHECKING:
    from tests.simulation.brokers.cluster import BrokersCluster

CLIENTS_ID: Final = 100
ORDERS: Final = "orders"
LENIENT: Final = "lenient"
"""One replica in sync is enough."""
TRIMMED: Final = "trimmed"
"""Its records are deleted now and then."""
TOPICS: Final = {ORDERS: (2, 2), LENIENT: (1, 1), TRIMMED: (1, 2)}
"""Partitions, and how many replicas must be in sync."""
REPLICAS: Final = 3
PRODUCERS: Final = 3
CONSUMERS: Final = 2
WATCH_MS: Final = (1, 4, 15, 60)
"""The pauses after which a new leader is asked again."""


class ClientProcess(SimProcess):
    is_up = True


class Clients:
    watches_elections = True
    topics: Mapping[str, tuple[int, int]] = TOPICS

    def __init__(self, cluster: "BrokersCluster", seed: int) -> None:
        self.cluster = cluster
        self.chance = random.Random(seed)
        self.process = ClientProcess(cluster.loop, cluster.trace, CLIENTS_ID, self.chance.getrandbits(64), 0)
        self.loop = ProcessLoop(self.process, cluster.streams)  # type: ignore[abstract]
        self.bootstrap = [(host.name, PORT) for host in cluster.hosts.values()]
        self.places = [
            Place(topic, number) for topic, (count, _) in self.topics.items() for number in range(count)
        ]
        self.operations = 0
        self.is_over = False
        """Whether nothing more is to be produced."""
        self._unread: set[Place] = set()
        self._watchers_chance = random.Random(f"watchers {seed}")
        self._watchers = 0
        self.mover: Mover | None = None

    def client(self, name: str) -> WireClient:
        return WireClient(name, self.bootstrap, random.Random(self.chance.getrandbits(64)))

    def start(self) -> None:
        self.loop.call_soon(lambda: self.loop.spawn(self._begin()))

    async def _begin(self) -> None:
        admin = self.client("admin")
        await self._create_topics(admin)
        for number in range(PRODUCERS):
            client = self.client(f"p{number}")
            self.loop.spawn(Producer(self, client, acks=-1).run())
        self.loop.spawn(Producer(self, self.client("weak"), acks=1).run())
        for number in range(CONSUMERS):
            self.loop.spawn(self._consume(self.client(f"c{number}")))
        self.loop.spawn(Committer(self, self.client("g0"), Place(ORDERS, 0)).run())
        self.loop.spawn(self._administrate(admin))
        if self.cluster.flavour == MOVES:
            self.mover = Mover(self, self.client("mover"))
            self.loop.spawn(self.mover.run())

    async def pause(self, mean_ms: int) -> None:
        await asyncio.sleep(self.draw_pause(mean_ms))

    def draw_pause(self, mean_ms: int) -> float:
        return 0.001 + self.chance.expovariate(1000 / mean_ms)

    # --- the administrator ---------------------------------------------------------------------

    async def _create_topics(self, admin: WireClient) -> None:
        wanted = set(self.topics)
        while wanted:
            topics = [_new_topic(name, *self.topics[name]) for name in self.topics if name in wanted]
            try:
                found = await admin.ask_any(
                    CreateTopicsRequest(topics=topics, timeout_ms=2_000), CreateTopicsResponse
                )
                for each in found.topics:
                    if each.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                        wanted.discard(each.name)
            except DlogError:
                pass
            await self.pause(200)

    async def _administrate(self, admin: WireClient) -> None:
        await self.pause(2_500)
        while not self.is_over:
            await admin.refresh()
            if self.chance.random() < 0.7:
                await self._delete_records(admin)
            else:
                await self._add_partition(admin)
            await self.pause(2_500)

    async def _delete_records(self, admin: WireClient) -> None:
        place = Place(TRIMMED, 0)
        latest = await admin.list_offset(place, LATEST)
        if not latest:
            return
        offset = self.chance.randrange(max(1, latest - 10), latest + 1)
        topic = DeleteRecordsTopic(
            name=place.topic,
            partitions=[DeleteRecordsPartition(partition_index=place.partition, offset=offset)],
        )
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=2_000)
        epoch = admin.epoch_of(place)
        self.cluster.observer.log_starts.asked(place, offset)
        try:
            found = await admin.ask_leader(place, request, DeleteRecordsResponse)
        except DlogError:
            return
        told = found.topics[0].partitions[0]
        self.cluster.trace.add(
            self.cluster.now_us, f"delete below {offset}", admin.name, (told.low_watermark, told.error_code)
        )
        self.operations += 1
        if told.error_code == ErrorCode.NONE:
            self.cluster.history.deleted(place, offset, epoch)
            self.cluster.faults.deleted(place)

    async def _add_partition(self, admin: WireClient) -> None:
        count = sum(place.topic == ORDERS for place in self.places)
        if count >= 3 or self.cluster.faults.is_healing:
            return
        topic = CreatePartitionsTopic(name=ORDERS, count=count + 1, assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=2_000, validate_only=False)
        try:
            found = await admin.ask_any(request, CreatePartitionsResponse)
        except DlogError:
            return
        if found.results[0].error_code == ErrorCode.NONE:
            self.places.append(Place(ORDERS, count))

    # --- consumers -----------------------------------------------------------------------------

    async def _consume(self, client: WireClient) -> None:
        positions: dict[Place, int] = {}
        seats: dict[Place, int] = {}
        while not self.is_over:
            place = self.chance.choice(self.places)
            if self.chance.random() < 0.15:
                await self._ask_latest(client, place)
            if self.chance.random() < 0.03:
                positions[place], seats[place] = 0, seats.get(place, 0) + 1
            if self.chance.random() < 0.1:
                await client.fetch_as_replica(place, positions.get(place, 0) + self.chance.randrange(6))
            await self._poll(client, place, positions, seats)
            await self.pause(130)

    async def _ask_latest(self, client: WireClient, place: Place) -> None:
        began_us = self.cluster.now_us
        latest = await client.list_offset_and_epoch(place, LATEST)
        if latest is not None:
            self.cluster.history.told_latest(client.name, place, *latest, began_us)

    async def _poll(
        self, client: WireClient, place: Place, positions: dict[Place, int], seats: dict[Place, int]
    ) -> None:
        offset, began_us, epoch = positions.setdefault(place, 0), self.cluster.now_us, client.epoch_of(place)
        try:
            data = await client.fetch(place, offset, wait_ms=100)
        except DlogError:
            await client.refresh()
            return
        self.operations += 1
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            start = await client.list_offset(place, EARLIEST)
            if start is not None:
                self.cluster.history.out_of_range(client.name, place, offset, start, epoch)
                positions[place], seats[place] = start, seats.get(place, 0) + 1
            await client.refresh()
        elif data.error_code != ErrorCode.NONE:
            await client.refresh()
        else:
            seen, positions[place] = records_from(data, offset)
            if seen:
                self.cluster.history.polled(client.name, place, seats.get(place, 0), seen, began_us, epoch)

    # --- elections -----------------------------------------------------------------------------

    def elected(self, host: BrokerHost, place: Place, epoch: int) -> None:
        """A broker begins to lead."""
        if self.watches_elections and place in self.places and not self.is_over:
            self.loop.call_soon(lambda: self.loop.spawn(self._watch(host, place, epoch)))

    async def _watch(self, host: BrokerHost, place: Place, epoch: int) -> None:
        """Asks as a client of its own: whoever leads late is told of nothing that others were told."""
        self._watchers += 1
        name = f"watcher-{self._watchers}"
        client = WireClient(name, self.bootstrap, random.Random(self._watchers_chance.getrandbits(64)))
        client.learn_leader(place, host.broker_id, (host.name, PORT), epoch)
        for seat, pause_ms in enumerate(WATCH_MS):
            await self._ask_latest(client, place)
            began_us = self.cluster.now_us
            committed = self.cluster.observer.identical.committed_end(place)
            with contextlib.suppress(DlogError):
                data = await client.fetch(place, committed, wait_ms=0)
                seen, _ = records_from(data, committed)
                if seen and data.error_code == ErrorCode.NONE:
                    self.cluster.history.polled(name, place, seat, seen, began_us, epoch)
            await asyncio.sleep(pause_ms / 1000)

    # --- the end -------------------------------------------------------------------------------

    def read_everything(self) -> None:
        """Producers end; a fresh client reads."""
        self.is_over = True
        self._unread = set(self.places)
        for number, place in enumerate(self.places):
            reader = self.client(f"final{number}")
            self.loop.call_soon(lambda reader=reader, place=place: self.loop.spawn(self._read(reader, place)))

    async def _read(self, client: WireClient, place: Place) -> None:
        await asyncio.sleep(1.0)  # what is under way ends
        history = self.cluster.history
        start = end = None
        while start is None or end is None:
            await client.refresh()
            start = await client.list_offset(place, EARLIEST)
            end = await client.list_offset(place, LATEST)
            await asyncio.sleep(0.05)
        history.begin_final(place, start)
        position = start
        while position < end:
            try:
                data = await client.fetch(place, position, wait_ms=100)
            except DlogError:
                data = None
            if data is None or data.error_code != ErrorCode.NONE:
                await client.refresh()
                continue
            seen, position = records_from(data, position)
            history.read_finally(place, seen)
        self._unread.discard(place)

    def finish(self) -> None:
        progress = self.cluster.observer.progress
        unread = self._unread - progress.waiting_for_operator
        if unread:
            progress.fail(f"nobody could read all of {', '.join(map(str, sorted(unread)))}")


def _new_topic(name: str, partitions: int, in_sync: int) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=REPLICAS,
        assignments=[],
        configs=[CreatableTopicConfig(name=MIN_INSYNC_REPLICAS, value=str(in_sync))],
    )
