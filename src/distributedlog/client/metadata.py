"""A cluster as a client sees it: the brokers it is connected to, the view of topics and leaders, and retries.

The first contact goes through the bootstrap list, one address after the other; if nobody there answers, that
is told at once.  Once the cluster was reached, its own brokers are asked, and what fails is tried again
until its time is over: leaders move, brokers restart, and that is no reason to bother the caller.

**Brokers that are gone** (`reachability`).  One that could not be reached is not tried again for a while;
whoever wants it meanwhile is told at once, and others are asked for metadata instead.

**Bootstrapping again** (KIP-899, KIP-1102).  All that is known is forgotten, and the bootstrap list asked,
when

| what                                                              | then                              |
|-------------------------------------------------------------------|-----------------------------------|
| none of the known brokers can be reached, and one of the list can | the list's cluster is the cluster |
| the metadata could not be renewed for `rebootstrap_after_ms`      | connections are closed, too       |
| a broker answers REBOOTSTRAP_REQUIRED                             | connections are closed, too       |

so that a cluster may be moved to other machines while clients run.  None of it with `rebootstraps` false.

The view is renewed when it is too old, when a broker says that it is stale, and when it has no response.
Several callers that find it stale at once cause one request.

`retrying` is the one place where failures are judged: `errors.is_retriable` says whether to try again, and
between two tries lies a pause that doubles, with jitter.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, TypeVar

from distributedlog.client.addresses import Address
from distributedlog.client.connection import Connection, connect
from distributedlog.client.errors import code_of, error_from, is_retriable, is_stale_view
from distributedlog.client.options import ClientOptions
from distributedlog.client.reachability import Reachability, all_failed
from distributedlog.client.view import (
    BrokerView,
    ClusterView,
    LeaderHint,
    NodeHint,
    PartitionView,
    SeenEpochs,
    TopicView,
    view_of,
)
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import (
    BrokerAvoidedError,
    BrokerUnreachableError,
    ClientClosedError,
    DlogError,
    RequestTimedOutError,
    UnknownTopicError,
)
from distributedlog.model.ids import TopicPartition, Uuid, check_topic_name
from distributedlog.ports.clock import Clock, SystemClock
from distributedlog.ports.randomness import Randomness, SystemRandomness
from distributedlog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from distributedlog.protocol.schema import Message

T = TypeVar("T")
M = TypeVar("M", bound=Message)

CREATION_TIMEOUT_MS: Final = 5_000
"""A broker that creates a topic on first use may deny that it exists while it does so."""

NAMED_MAX: Final = 3
"""How many addresses a message has."""


class Cluster:
    """Connections and metadata, shared by all clients of one program.  To be used with `async with`."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        options: ClientOptions | None = None,
        *,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        self.options = options or ClientOptions()
        self.clock: Clock = clock or SystemClock()
        self.view = ClusterView()
        self._seen_epochs = SeenEpochs()
        self._bootstrap = tuple(bootstrap)
        self._randomness: Randomness = randomness or SystemRandomness()
        self._connections: dict[Address, Connection] = {}
        self._connecting: dict[Address, asyncio.Lock] = {}
        self._reachability = Reachability(self.options, self._randomness.between)
        self._unrenewed_since_ms: int | None = None
        """The time of the first of the tries to renew the view that have all failed; None after a success."""
        self.rebootstraps = 0
        self._renewing = asyncio.Lock()
        self._renewed_ms = 0
        self._renewals = 0
        self._is_stale = True
        self._is_reached = False
        """Whether any broker of it has ever answered."""
        self._is_closed = False
        self._names: set[str] = set()
        """The topics that callers have asked about: a renewal is about these."""

    async def __aenter__(self) -> "Cluster":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes all connections; no other is made from here on."""
        self._is_closed = True
        connections = list(self._connections.values())
        self._connections.clear()
        for connection in connections:
            connection.close()
        for connection in connections:
            await connection.wait_closed()

    # --- connections ---------------------------------------------------------------------------

    async def connection_to(self, address: Address) -> Connection:
        """An open one, or a new one; callers that want the same one at once share it."""
        async with self._connecting.setdefault(address, asyncio.Lock()):
            known = self._connections.get(address)
            if known is not None and not known.is_closed:
                return known
            self._check_open()
            self._reachability.check(address, self.clock.monotonic_ms())
            try:
                made = await connect(
                    address.host,
                    address.port,
                    client_id=self.options.client_id,
                    timeout_ms=self.options.connect_timeout_ms,
                    frame_bytes_max=self.options.frame_bytes_max,
                )
            except BrokerUnreachableError as error:
                self._reachability.failed(address, error, self.clock.monotonic_ms())
                raise
            self._reachability.succeeded(address)
            if self._is_closed:  # meanwhile
                made.close()
            self._check_open()
            self._connections[address] = made
            self._is_reached = True
            return made

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosedError("the client is closed")

    async def connection(self, node_id: int) -> Connection:
        broker = self.view.brokers.get(node_id)
        if broker is None:
            raise error_from(ErrorCode.LEADER_NOT_AVAILABLE, f"broker {node_id} is not in the cluster")
        return await self.connection_to(broker.address)

    async def any_connection(self) -> Connection:
        """Connects to whichever broker answers first: of the open ones that which owes nothing, or not for
        long, as one that hangs does; then those we know, then the bootstrap list."""
        opened = [each for each in self._connections.values() if not each.is_closed]
        if opened:
            return min(opened, key=lambda each: each.silent_s)
        brokers = [each.address for each in self.view.brokers.values()]
        others = self._bootstrap if self.options.rebootstraps or not brokers else ()
        failures: list[BrokerUnreachableError] = []
        for address in dict.fromkeys([*brokers, *others]):
            try:
                found = await self.connection_to(address)
            except BrokerUnreachableError as error:
                failures.append(error)
                continue
            if brokers and address not in brokers:
                self._rebootstrap()
            return found
        raise all_failed(failures) from failures[-1]

    def _rebootstrap(self) -> None:
        """Forgets what is known of the cluster: what the bootstrap list leads to may be another one."""
        self.rebootstraps += 1
        self.view = ClusterView()
        self._is_stale = True
        self._unrenewed_since_ms = None

    def _leave_all(self) -> None:
        """Begins with the bootstrap list again, though brokers that are known may be connected."""
        if self.options.rebootstraps:
            self._rebootstrap()
            for connection in self._connections.values():
                connection.close()
            self._connections.clear()

    async def controller(self) -> Connection:
        """Connects to the broker that the cluster names as its controller, or any that will pass requests on
        to it."""
        await self._renew_if_stale()
        if self.view.controller_id in self.view.brokers:
            return await self.connection(self.view.controller_id)
        return await self.any_connection()

    async def call(self, connection: Connection, request: Message, response: type[M], extra_ms: int = 0) -> M:
        """One request; `extra_ms` is what the broker may wait by itself before it answers."""
        timeout_ms = self.options.request_timeout_ms + extra_ms
        return await connection.call(request, response, timeout_ms=timeout_ms)

    # --- the view ------------------------------------------------------------------------------

    @property
    def is_stale(self) -> bool:
        age_ms = self.clock.monotonic_ms() - self._renewed_ms
        return self._is_stale or age_ms > self.options.metadata_age_ms_max

    def mark_stale(self) -> None:
        """Has the view renewed before it is next used."""
        self._is_stale = True

    def learn_leader(
        self, partition: TopicPartition, leader: LeaderHint | None, nodes: Iterable[NodeHint]
    ) -> None:
        """Takes over what a broker said of a leader, without asking for metadata."""
        moved = None if leader is None else self.view.moved(partition, leader, nodes)
        if moved is not None:
            self.view = moved
            self._seen_epochs.note(moved)

    async def refresh(
        self, names: Collection[str] | None = None, *, allow_creation: bool = False
    ) -> ClusterView:
        """Asks now.  None: about all topics."""
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in sorted(names)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=allow_creation)
        newer = await self._ask_metadata(request)
        self.view = self._seen_epochs.checked(self.view.merged(newer, is_complete=names is None))
        self._seen_epochs.note(self.view)
        self._renewed_ms = self.clock.monotonic_ms()
        self._renewals += 1
        self._is_stale = False
        return self.view

    async def _ask_metadata(self, request: MetadataRequest) -> ClusterView:
        begun_ms = self.clock.monotonic_ms()
        try:
            response = await self.call(await self.any_connection(), request, MetadataResponse)
            newer = view_of(response)
        except DlogError as error:
            if self._unrenewed_since_ms is None:
                self._unrenewed_since_ms = begun_ms
            failing_ms = self.clock.monotonic_ms() - self._unrenewed_since_ms
            is_required = code_of(error) is ErrorCode.REBOOTSTRAP_REQUIRED
            if is_required or failing_ms >= self.options.rebootstrap_after_ms:
                self._leave_all()
            raise
        self._unrenewed_since_ms = None
        return newer

    async def names_of(self, topic_ids: Collection[Uuid]) -> dict[Uuid, str]:
        """The names of topics, as far as there are such; those that are not known yet are asked for."""
        known = {each.topic_id: each.name for each in self.view.topics.values()}
        missing = sorted(set(topic_ids) - known.keys())
        if missing:
            topics = [MetadataRequestTopic(topic_id=each, name=None) for each in missing]
            request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
            response = await self.call(await self.any_connection(), request, MetadataResponse)
            known.update((each.topic_id, each.name) for each in response.topics if each.name)
        return {each: known[each] for each in topic_ids if each in known}

    async def _renew_if_stale(self) -> None:
        if not self.is_stale:
            return
        seen = self._renewals
        async with self._renewing:
            if self._renewals == seen:  # else somebody else has done it while we waited
                await self.refresh(self._names)

    async def topic(self, name: str, *, allow_creation: bool = False) -> TopicView:
        """The topic once each of its partitions has a leader, or `UnknownTopicError`."""
        return await self._topic(name, lambda topic: topic.is_led, allow_creation)

    async def partition_count(self, name: str, *, allow_creation: bool = False) -> int:
        """How many partitions the topic has, though some may have no leader, or `UnknownTopicError`."""
        return len((await self._topic(name, lambda topic: bool(topic.partitions), allow_creation)).partitions)

    async def _topic(
        self, name: str, is_enough: Callable[[TopicView], bool], allow_creation: bool
    ) -> TopicView:
        self._names.add(check_topic_name(name))
        known = self.view.topics.get(name)
        if known is not None and is_enough(known) and not self.is_stale:
            return known
        begun_ms = self.clock.monotonic_ms()

        def is_worth_waiting(error: DlogError) -> bool:
            if not isinstance(error, UnknownTopicError):
                return is_retriable(error)
            return allow_creation and self.clock.monotonic_ms() - begun_ms < CREATION_TIMEOUT_MS

        return await self.retrying(
            lambda: self._ask_topic(name, is_enough, allow_creation), is_worth_waiting=is_worth_waiting
        )

    async def _ask_topic(
        self, name: str, is_enough: Callable[[TopicView], bool], allow_creation: bool
    ) -> TopicView:
        view = await self.refresh({name}, allow_creation=allow_creation)
        topic = view.topics.get(name)
        if topic is None or topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise UnknownTopicError(f"there is no topic {name!r}")
        if topic.error is not ErrorCode.NONE:
            raise error_from(topic.error, f"topic {name!r}")
        if not is_enough(topic):
            without = [each.index for each in topic.partitions if not each.has_leader]
            raise error_from(ErrorCode.LEADER_NOT_AVAILABLE, f"partitions {without} of {name!r}")
        return topic

    async def partition(self, partition: TopicPartition) -> PartitionView:
        """The partition and its leader.  What is not known is asked once; the caller retries."""
        self._names.add(partition.topic)
        await self._renew_if_stale()
        found = self.view.partition(partition)
        if found is None or not found.has_leader:
            await self.refresh({partition.topic})
            found = self.view.partition(partition)
        topic = self.view.topics.get(partition.topic)
        if topic is None or topic.error is not ErrorCode.NONE or found is None:
            raise error_from(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {partition}")
        if not found.has_leader:
            raise error_from(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition}")
        return found

    async def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Returns who leads what, by broker."""
        found: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            view = await self.partition(partition)
            found.setdefault(view.leader_id, []).append(partition)
        return found

    def by_known_leader(self, partitions: Iterable[TopicPartition]) -> dict[int | None, list[TopicPartition]]:
        """Returns the same as the view has it, without asking; None where it has no leader, or is stale."""
        found: dict[int | None, list[TopicPartition]] = {}
        for partition in partitions:
            leader = None if self.is_stale else self.view.leader_of(partition)
            found.setdefault(leader, []).append(partition)
        return found

    async def brokers(self) -> tuple[BrokerView, ...]:
        await self._renew_if_stale()
        return tuple(self.view.brokers[node_id] for node_id in sorted(self.view.brokers))

    # --- retries -------------------------------------------------------------------------------

    def pause_ms(self, attempt: int, error: DlogError | None = None) -> int:
        """How long to wait before try number `attempt`, after such an error."""
        if isinstance(error, BrokerAvoidedError):  # then it is known when there is any use in it
            return max(1, error.again_in_ms)
        return self._randomness.between(*self.options.pause_ms_range(attempt))

    def draw(self, count: int) -> int:
        """Draws one of 0 to `count` - 1."""
        return self._randomness.between(0, count - 1)

    def new_uuid(self) -> Uuid:
        return self._randomness.new_uuid()

    async def retrying(
        self,
        attempt: Callable[[], Awaitable[T]],
        *,
        timeout_ms: int | None = None,
        is_worth_waiting: Callable[[DlogError], bool] = is_retriable,
    ) -> T:
        """The result of the first try that succeeds; the last failure when the time is over."""
        limit_ms = self.options.call_timeout_ms if timeout_ms is None else timeout_ms
        deadline_ms = self.clock.monotonic_ms() + limit_ms
        tries = 0
        while True:
            try:
                return await attempt()
            except DlogError as error:
                tries += 1
                pause_ms = self.pause_ms(tries, error)
                if not is_worth_waiting(error) or self._was_never_reached(error):
                    raise
                if self.clock.monotonic_ms() + pause_ms >= deadline_ms:
                    raise
                if is_stale_view(error):
                    self.mark_stale()
            await asyncio.sleep(pause_ms / 1000)

    async def until(self, deadline_ms: int, work: Coroutine[Any, Any, T], limit: str) -> T:
        """Waits for it until that time of the clock, however long a request may take; `limit` is what sets
        the time."""
        left_ms = deadline_ms - self.clock.monotonic_ms()
        try:
            async with asyncio.timeout(max(0, left_ms) / 1000):
                return await work
        except TimeoutError:
            raise RequestTimedOutError(f"{self._named()} did not answer within {limit}") from None

    def _named(self) -> str:
        """Those who could be asked, for messages."""
        known = [str(each.address) for each in self.view.brokers.values()] or list(map(str, self._bootstrap))
        return " or ".join([*known[:NAMED_MAX], *(["others"] if len(known) > NAMED_MAX else [])])

    def _was_never_reached(self, error: DlogError) -> bool:
        """A wrong address is told at once, unless somebody has said that the cluster may yet come."""
        is_first = not self._is_reached and not self.options.waits_for_first_contact
        return isinstance(error, BrokerUnreachableError) and is_first
