"""Members of simulated groups of the new consumer protocol: each is led to its part heartbeat by heartbeat.

A member has two strands, each with a connection of its own, as clients have a thread for each:

    heartbeats   joins, hears what is assigned to it, gives up what is not any more, and says so; starts over
                 when it is fenced
    reading      looks up where the group stands in what is new, reads a few records at a time, and commits

A partition that has to go is given up once no commit of it is under way, or when that takes too long: the
commit may arrive late then, and it is for the coordinator to tell that it is.  Whoever starts over closes
both connections first.

It says what is new for the coordinator, and everything after an answer that it did not get.
"""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from distributedlog.groups.consumer.member import IS_AWAY, JOINS, LEAVES
from distributedlog.groups.consumer.topics import NO_PARTITIONS, TopicIdPartition, TopicIdPartitions
from distributedlog.groups.requests import (
    CommitReply,
    CommitRequest,
    CommittedOffset,
    ConsumerHeartbeatReply,
    ConsumerHeartbeatRequest,
    FetchOffsetsReply,
    FetchOffsetsRequest,
)
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import TopicPartition
from tests.simulation.groups_process import Heard, Life, SimProcess, Sleep, Strand

if TYPE_CHECKING:
    from tests.simulation.groups_cluster import GroupsCluster

BEAT_US = 400_000
OUT = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)


class Subscription(NamedTuple):
    topics: tuple[str, ...]
    pattern: str = ""

    def names(self, topic: str) -> bool:
        return topic in self.topics or bool(self.pattern and re.fullmatch(self.pattern, topic))


SUBSCRIPTIONS = (
    Subscription(("t",)),
    Subscription(("u",)),
    Subscription(("t", "u")),
    Subscription((), "[tu]"),
    Subscription(("t",), "u.*"),
)


class SimConsumer(SimProcess):
    def __init__(self, cluster: "GroupsCluster", number: int, group: str, instance: str | None) -> None:
        super().__init__(cluster, number, group, instance)
        self._makes_its_id = self.chance.random() < 0.8
        self.subscription = self.chance.choice(SUBSCRIPTIONS)
        self.said = self.subscription
        """What the coordinator was last told, as far as the member knows."""
        self.assignor = self.chance.choice((None, None, "uniform", "range"))
        self._host = "/host"
        self.epoch = JOINS
        self.assigned = NO_PARTITIONS
        """The assignment as it was last told."""
        self.owned = NO_PARTITIONS
        """What it reads."""
        self.is_coming_back = False
        """It leaves for a while only."""
        self.beat_us = BEAT_US
        self._patient_until_us = 0
        self._said_owned: TopicIdPartitions | None = None
        self._going = NO_PARTITIONS
        self._going_until_us = 0
        self._positions: dict[TopicIdPartition, int] = {}
        self._tenures: dict[TopicIdPartition, int] = {}
        """How often each partition was taken: what was looked up before that says nothing."""
        self._committing = NO_PARTITIONS
        self._reading = Strand(self, self._read)
        self._heartbeats = Strand(self, self._live)
        self.strands = (self._heartbeats, self._reading)
        self._start_over()
        self.heals()

    def heals(self) -> None:
        self.beat_us = BEAT_US
        self._reading.held_up_us = self._heartbeats.deaf_until_us = 0
        self._patient_until_us = self.cluster.now_us + 2_000 * self.cluster.session_ms

    def commits_late(self, delay_us: int) -> None:
        self._reading.held_up_us = delay_us

    def turns_deaf(self, duration_us: int) -> None:
        self._heartbeats.deaf_until_us = self.cluster.now_us + duration_us

    def changes_its_mind(self) -> None:
        self.subscription = self.chance.choice(SUBSCRIPTIONS)

    def changes_its_address(self) -> None:
        self._host = f"/host{self.chance.randrange(9)}"

    def _start_over(self) -> None:
        self._reading.stop()
        self.is_working = False
        self.epoch = JOINS
        self.assigned = self.owned = self._going = self._committing = NO_PARTITIONS
        self._positions.clear()
        self._says_all = True

    # --- heartbeats ----------------------------------------------------------------------------

    def _live(self) -> Life:
        if self._makes_its_id:
            self.member_id = f"id-{self.name}"
        while not self.is_fenced:
            heard = yield self._heartbeat()
            if heard.code is ErrorCode.NONE:
                self._hear(heard)
                self.is_working = True
                self._reading.start()
                yield from self._stay()
                self._start_over()
            elif heard.code is ErrorCode.UNRELEASED_INSTANCE_ID:
                # Whoever had it may be gone: then its session ends.  If not, there is one too many.
                self.is_fenced = self.cluster.now_us > self._patient_until_us
            if self.leaves:
                yield self._farewell()
                return
            yield Sleep(self.chance.randrange(10_000, 200_000))

    def _stay(self) -> Life:
        while not self.leaves:
            if self._reconcile():
                yield Sleep(self.chance.randrange(1_000, self.beat_us))
            heard = yield self._heartbeat()
            if heard.code is ErrorCode.NONE:
                self._hear(heard)
            elif heard.code in OUT:
                return
            elif heard.code is ErrorCode.FENCED_INSTANCE_ID:
                self.is_fenced = True
                return
            else:
                self._says_all = True
                yield Sleep(self.chance.randrange(10_000, 300_000))

    def _heartbeat(self) -> ConsumerHeartbeatRequest:
        everything = self._says_all
        says_topics = everything or self.said != self.subscription
        self.said, self._saying_owned = self.subscription, self.owned
        return ConsumerHeartbeatRequest(
            self.group,
            self.member_id,
            self.epoch,
            instance_id=self.instance,
            client_id="client",
            client_host=self._host,
            rebalance_timeout_ms=self.cluster.rebalance_ms if everything else -1,
            topics=self.said.topics if says_topics else None,
            pattern=self.said.pattern if says_topics else None,
            assignor=self.assignor if everything else None,
            owned=self.owned if everything or self.owned != self._said_owned else None,
        )

    def _farewell(self) -> ConsumerHeartbeatRequest:
        epoch = IS_AWAY if self.is_coming_back and self.instance is not None else LEAVES
        return ConsumerHeartbeatRequest(self.group, self.member_id, epoch, instance_id=self.instance)

    def _hear(self, heard: Heard) -> None:
        reply = heard.reply
        assert isinstance(reply, ConsumerHeartbeatReply)
        self.member_id, self.epoch = reply.member_id, reply.epoch
        self._said_owned, self._says_all = self._saying_owned, False
        if reply.assignment is not None:
            self.assigned = reply.assignment
            self.cluster.told_consumer(self)

    def _reconcile(self) -> bool:
        """A step towards what is assigned; whether there is nothing to say of it."""
        going = self.owned - self.assigned
        now_us = self.cluster.now_us
        if going != self._going:
            self._going = going
            timeout_ms = self.chance.choice(
                (0, self.cluster.rebalance_ms // 2, 2 * self.cluster.rebalance_ms)
            )
            self._going_until_us = now_us + 1_000 * timeout_ms
        if going & self._committing and now_us < self._going_until_us:
            return True
        for tp in going:
            self._positions.pop(tp, None)
        coming = self.assigned - self.owned
        for tp in coming:
            self._tenures[tp] = self._tenures.get(tp, 0) + 1
        self.owned = self.assigned
        self._going = NO_PARTITIONS
        if coming:
            self.cluster.took(self, coming)
        return not going and not coming

    # --- reading -------------------------------------------------------------------------------

    def _read(self) -> Life:
        while True:
            yield Sleep(self.chance.randrange(1_000, BEAT_US))
            new = [tp for tp in sorted(self.owned) if tp not in self._positions]
            if new:
                yield from self._resolve_patterns(new)
            for tp in self._positions:
                if tp in self.assigned:
                    self._positions[tp] += self.chance.randrange(1, 4)
            yield from self._commit()

    def _resolve_patterns(self, tps: list[TopicIdPartition]) -> Life:
        """Where the group stands in what is new to this member."""
        tenures = {tp: self._tenures[tp] for tp in tps}
        wanted = tuple(self._named(tps))
        before = self.cluster.acknowledged_until_now(self.group)
        heard = yield FetchOffsetsRequest(self.group, wanted, self.member_id, self.epoch)
        if heard.code is not ErrorCode.NONE or not isinstance(heard.reply, FetchOffsetsReply):
            return
        found = {each.partition: each.offset for each in heard.reply.offsets}
        self.cluster.read(self.name, wanted, found, before)
        for tp, partition in zip(tps, wanted, strict=True):
            if tp in self.owned and self._tenures[tp] == tenures[tp]:
                self._positions[tp] = found.get(partition, 0)

    def _commit(self) -> Life:
        tps = sorted(tp for tp in self._positions if tp in self.assigned)
        if not tps:
            return
        positions = dict(zip(self._named(tps), (self._positions[tp] for tp in tps), strict=True))
        places = tuple(CommittedOffset(each, offset, -1, self.name) for each, offset in positions.items())
        self._committing = frozenset(tps)
        heard = yield CommitRequest(self.group, self.member_id, self.instance, self.epoch, places)
        self._committing = NO_PARTITIONS
        if heard.code is ErrorCode.NONE and isinstance(heard.reply, CommitReply):
            assert set(heard.reply.errors) == {ErrorCode.NONE}, heard.reply
            self.acknowledged_us = self.cluster.now_us
            self.cluster.acknowledged(self, positions)

    def _named(self, tps: Iterable[TopicIdPartition]) -> list[TopicPartition]:
        return [TopicPartition(self.cluster.topic_names[tp.topic_id], tp.partition) for tp in tps]
