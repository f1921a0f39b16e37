"""Who asks the control plane for something: administrators, and the leaders of partitions.

Administrators create, delete and grow topics, write and read settings, and check what is there, through any
broker.  Every value they write is written by one request only, so a record tells whose it is.

The leaders of partitions are what a broker's own replication would be: they look at the image that their node
has, decide who is in sync, and propose it with the epochs they know.  What they know of a follower is the
epoch in which it last fetched, which may be an earlier life of it.
"""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from distributedlog.broker.cluster.lifecycle import LifecycleState
from distributedlog.controller.configs import ConfigEdit
from distributedlog.controller.elections import all_partitions
from distributedlog.controller.features import LEVEL_MAX, METADATA_FEATURE
from distributedlog.controller.image import (
    CLUSTER_DEFAULT,
    ConfigResource,
    MetadataImage,
    Partition,
    ResourceType,
)
from distributedlog.controller.requests import (
    UNKNOWN_EPOCH,
    AllocateProducerIdsRequest,
    AlterConfigsRequest,
    AlterPartitionsRequest,
    ConfigsReply,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ElectionType,
    ElectLeadersRequest,
    IncrementalAlterConfigsRequest,
    IsrChange,
    IsrMember,
    MorePartitions,
    NewTopic,
    ReadImageRequest,
    Request,
    Response,
    TopicsReply,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from distributedlog.model.cluster_settings import MIN_INSYNC_REPLICAS, UNCLEAN_ELECTION
from distributedlog.model.config_ops import ConfigOp
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError, LeadershipLostError, RequestTimedOutError
from distributedlog.model.ids import TopicPartition, Uuid
from distributedlog.ports.executor import Outcome
from tests.simulation.checkers.administration import MARK_OF_TOPIC, SETTING_PREFIX
from tests.simulation.checkers.control import Administration

if TYPE_CHECKING:
    from tests.simulation.control_cluster import ControlCluster
    from tests.simulation.control_host import ControlHost

UNCLEAN_TOPIC = "reckless"
"""Allows unclean elections."""
FORCED_TOPIC = "forced"
"""The only one for which anybody asks for an unclean election."""
SINGLE_NAMES = ("orders", "payments", "clicks", UNCLEAN_TOPIC, FORCED_TOPIC)
PAIRS = (("left", "right"), ("bride", "groom"))
"""Created and deleted together, always."""
SETTINGS = tuple(SETTING_PREFIX + each for each in ("red", "green"))
DEFAULTS = ConfigResource(ResourceType.BROKER, CLUSTER_DEFAULT)
TIMEOUTS_MS = (500, 1_500, 4_000)
_UNKNOWN = (LeadershipLostError, RequestTimedOutError)


class Client:
    """Asks one broker, waits for the answer or long enough, thinks, and asks again."""

    def __init__(self, cluster: "ControlCluster", number: int) -> None:
        self.cluster = cluster
        self.name = f"c{number}"
        self._chance = random.Random(cluster.chance.getrandbits(64))
        self._sequence = 0
        self._kinds: list[tuple[int, Callable[[ControlHost], tuple[Administration, Request] | None]]] = [
            (6, self._create),
            (4, self._delete),
            (3, self._grow),
            (5, self._set),
            (2, self._replace),
            (5, self._read),
            (3, self._check),
            (2, self._take_producer_ids),
            (1, self._elect),
            (1, self._force),
            (1, self._upgrade),
        ]

    # --- one after the other -------------------------------------------------------------------

    def think(self) -> None:
        self._sequence += 1
        delay_us = 20_000 + int(self._chance.expovariate(1 / 300_000))
        self.cluster.loop.call_after(delay_us, self._ask, self._sequence)

    def stop(self) -> None:
        self._sequence += 1

    def _ask(self, sequence: int) -> None:
        if sequence != self._sequence:
            return
        host = self._chance.choice(list(self.cluster.hosts.values()))
        weights = [weight for weight, _ in self._kinds]
        made = self._chance.choices(self._kinds, weights)[0][1](host) if host.is_up else None
        if made is None:
            self.think()
            return
        operation, request = made
        timeout_ms = self._chance.choice(TIMEOUTS_MS)
        self.cluster.operations.append(operation)
        self.cluster.trace.add(self.cluster.loop.now_us, str(operation), self.name, ("at", host.node_id))
        self.cluster.loop.call_after(1_500 * timeout_ms, self._give_up, sequence)

        def done(outcome: Outcome[Response]) -> None:
            self._answered(host, operation, sequence, outcome)

        host.call(lambda: host.forwarder.ask(request, timeout_ms, done))

    def _give_up(self, sequence: int) -> None:
        if sequence == self._sequence:
            self.think()

    def _answered(
        self, host: "ControlHost", operation: Administration, sequence: int, outcome: Outcome[Response]
    ) -> None:
        operation.completed_us = self.cluster.loop.now_us
        operation.visible = host.replica.image
        error = outcome.error
        if error is None:
            _read_reply(operation, outcome.value())
        elif not isinstance(error, _UNKNOWN):
            assert isinstance(error, DlogError), error
            operation.outcome, operation.error = "refused", error.code
        told = f"{operation.outcome} {operation.error.name} {error or ''}"
        self.cluster.trace.add(self.cluster.loop.now_us, str(operation), self.name, told)
        self.cluster.answered(operation)
        if sequence == self._sequence:
            self.think()

    def _begin(self, kind: str, *names: str, marks: tuple[str, ...] = ()) -> Administration:
        return Administration(kind, names, marks, self.cluster.loop.now_us)

    # --- topics --------------------------------------------------------------------------------

    def _draw_names(self) -> tuple[str, ...]:
        chance = self._chance
        return chance.choice(PAIRS) if chance.random() < 0.3 else (chance.choice(SINGLE_NAMES),)

    def _new_topics(self, names: tuple[str, ...], mark: str) -> tuple[NewTopic, ...]:
        count, factor = self._chance.choice((1, 2)), self._chance.choice((1, 2, 3))
        configs = [(MARK_OF_TOPIC, mark), (MIN_INSYNC_REPLICAS, str(self._chance.choice((1, 2))))]
        if names == (UNCLEAN_TOPIC,):
            configs.append((UNCLEAN_ELECTION, "true"))
        return tuple(
            NewTopic(name=name, num_partitions=count, replication_factor=factor, configs=tuple(configs))
            for name in names
        )

    def _create(self, host: "ControlHost") -> tuple[Administration, Request]:
        names, mark = self._draw_names(), self.cluster.next_mark()
        operation = self._begin("create", *names, marks=(mark,))
        return operation, CreateTopicsRequest(self._new_topics(names, mark))

    def _check(self, host: "ControlHost") -> tuple[Administration, Request]:
        names = self._draw_names()
        request = CreateTopicsRequest(self._new_topics(names, self.cluster.next_mark()), validate_only=True)
        return self._begin("check", *names), request

    def _delete(self, host: "ControlHost") -> tuple[Administration, Request]:
        names = self._draw_names()
        return self._begin("delete", *names), DeleteTopicsRequest(names)

    def _grow(self, host: "ControlHost") -> tuple[Administration, Request] | None:
        topic = host.replica.image.topic_named(self._chance.choice(SINGLE_NAMES))
        if topic is None:
            return None
        operation = self._begin("grow", topic.name)
        operation.topic_ids, operation.partitions = (topic.topic_id,), len(topic.partitions) + 1
        return operation, CreatePartitionsRequest((MorePartitions(topic.name, operation.partitions),))

    # --- settings ------------------------------------------------------------------------------

    def _set(self, host: "ControlHost") -> tuple[Administration, Request]:
        name, mark = self._chance.choice(SETTINGS), self.cluster.next_mark()
        edit = ConfigEdit(name, ConfigOp.SET, mark)
        operation = self._begin("set", name, marks=(mark,))
        return operation, IncrementalAlterConfigsRequest(((DEFAULTS, (edit,)),))

    def _replace(self, host: "ControlHost") -> tuple[Administration, Request]:
        mark = self.cluster.next_mark()
        operation = self._begin("set", *SETTINGS, marks=(mark,))
        return operation, AlterConfigsRequest(((DEFAULTS, dict.fromkeys(SETTINGS, mark)),))

    def _read(self, host: "ControlHost") -> tuple[Administration, Request]:
        return self._begin("read"), ReadImageRequest()

    # --- the rest ------------------------------------------------------------------------------

    def _take_producer_ids(self, host: "ControlHost") -> tuple[Administration, Request]:
        request = AllocateProducerIdsRequest(host.broker_id, host.lifecycle.epoch)
        return self._begin("take producer ids"), request

    def _elect(self, host: "ControlHost") -> tuple[Administration, Request]:
        if self._chance.random() < 0.3 and not self.cluster.faults.is_healing:
            gone = UnregisterBrokerRequest(self._chance.choice(list(self.cluster.hosts)))
            return self._begin("unregister", str(gone.broker_id)), gone
        return self._begin("elect"), ElectLeadersRequest(ElectionType.PREFERRED)

    def _force(self, host: "ControlHost") -> tuple[Administration, Request]:
        self.cluster.clean_leaders.unclean_asked.add(FORCED_TOPIC)
        partitions = (TopicPartition(FORCED_TOPIC, 0),)
        return self._begin("force"), ElectLeadersRequest(ElectionType.UNCLEAN, partitions)

    def _upgrade(self, host: "ControlHost") -> tuple[Administration, Request]:
        return self._begin("upgrade"), UpdateFeaturesRequest(((METADATA_FEATURE, LEVEL_MAX),))


def _read_reply(operation: Administration, reply: Response) -> None:
    operation.outcome = "ok"
    if isinstance(reply, TopicsReply):
        operation.error = next(
            (each.outcome.error for each in reply.topics if each.outcome.error is not ErrorCode.NONE),
            ErrorCode.NONE,
        )
        if operation.kind in ("create", "delete"):
            operation.topic_ids = tuple(each.topic_id for each in reply.topics)
    elif isinstance(reply, ConfigsReply):
        operation.error = reply.resources[0][1].error
    elif isinstance(reply, MetadataImage):
        operation.seen = reply
    if operation.error is not ErrorCode.NONE:
        operation.outcome = "refused"


class PartitionLeaders:
    """One broker, as far as it leads partitions."""

    def __init__(self, cluster: "ControlCluster", host: "ControlHost") -> None:
        self.cluster = cluster
        self.host = host
        self._chance = random.Random(cluster.chance.getrandbits(64))
        self._fetched: dict[int, int] = {}
        """The broker epoch in which each follower fetched last."""

    def look_later(self) -> None:
        self.cluster.loop.call_after(self._chance.randrange(200_000, 1_500_000), self._look)

    def _look(self) -> None:
        host = self.host
        if host.is_up and not host.paused and host.lifecycle.state is LifecycleState.RUNNING:
            self._hear_followers()
            request = self._draw_changes(host.replica.image)
            if request.changes:
                delay_us = self._chance.choice((0, 0, 400_000, 1_200_000))
                self.cluster.loop.call_after(delay_us, self._propose, host.life, request)
        self.look_later()

    def _hear_followers(self) -> None:
        """Who can be reached fetches, most of the time."""
        for other in self.cluster.hosts.values():
            apart = self.cluster.wire.is_cut(self.host.node_id, other.node_id)
            reachable = other.is_up and not other.paused and not apart
            if reachable and self._chance.random() < 0.6:
                self._fetched[other.broker_id] = other.lifecycle.epoch
            elif self._chance.random() < 0.2:
                self._fetched.pop(other.broker_id, None)

    def _draw_changes(self, image: MetadataImage) -> AlterPartitionsRequest:
        changes = []
        for topic, partition_id, partition in all_partitions(image):
            if partition.leader == self.host.broker_id:
                change = self._draw_change(topic.topic_id, partition_id, partition)
                if change is not None:
                    changes.append(change)
        return AlterPartitionsRequest(self.host.broker_id, self.host.lifecycle.epoch, tuple(changes))

    def _draw_change(self, topic_id: Uuid, partition_id: int, partition: Partition) -> IsrChange | None:
        in_sync = [each for each in partition.replicas if each in self._fetched]
        if self._chance.random() < 0.05:  # a leader with a defect: not all it says must be believed
            in_sync.append(self._chance.choice(list(self.cluster.hosts)))
        isr = tuple(dict.fromkeys((partition.leader, *in_sync)))
        if set(isr) == set(partition.isr):
            return None
        return IsrChange(
            topic_id=topic_id,
            partition_id=partition_id,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            isr=tuple(IsrMember(each, self._epoch_of(each)) for each in isr),
        )

    def _epoch_of(self, broker_id: int) -> int:
        own = broker_id == self.host.broker_id
        return self.host.lifecycle.epoch if own else self._fetched.get(broker_id, UNKNOWN_EPOCH)

    def _propose(self, life: int, request: AlterPartitionsRequest) -> None:
        def ask() -> None:
            self.cluster.proposed(request)
            self.host.forwarder.ask(request, 2_000, lambda _: None)

        self.host.run(life, ask)
