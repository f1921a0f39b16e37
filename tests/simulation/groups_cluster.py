"""Coordinators and members in virtual time from one seed: brokers, groups, faults and checkers.

`GroupsCluster(seed).run(seconds)` either returns what it did or raises `InvariantError`; the trace says the
rest.  Three brokers have a copy of one partition of `__consumer_offsets`, which `_look` keeps led and in sync
as a controller would; the coordinators on it are the real ones.  Two groups of up to five members each read
topics; the second has static members.  Which protocols they speak is the seed's choice: the classic one
(`g0`, `g1`), the new one (`c0`, `c1`), or one each.  Faults strike until some seconds before the end; then
all heals.

The truth is kept here: every committed batch, decoded from its bytes and from nothing that a broker says.
"""

import random
from collections.abc import Mapping, Sequence
from functools import partial

from distributedlog.broker.cluster.lease_grant import LeaseGrant, lease_ms
from distributedlog.controller.records import PartitionChanged
from distributedlog.controller.sessions.leases import Leases
from distributedlog.groups.config import GroupConfig
from distributedlog.groups.consumer.topics import TopicIdPartitions
from distributedlog.groups.records import ConsumerRecord, GroupRecord, decode_record, encode_record
from distributedlog.model.ids import TopicPartition, Uuid
from distributedlog.records.record import decode_batch
from tests.simulation.checkers import InvariantError
from tests.simulation.checkers.consumer_groups import (
    EpochsRise,
    OnlyWhatIsSubscribed,
    PartsLast,
    TwoOwnersAtOnce,
)
from tests.simulation.checkers.consumer_log import ConsumerLog
from tests.simulation.checkers.groups import GroupsChecker
from tests.simulation.checkers.lasting_assignments import LastingAssignments
from tests.simulation.checkers.offset_regression import OffsetRegression
from tests.simulation.checkers.reads_from_the_past import ReadsFromThePast
from tests.simulation.checkers.replay_equals_state import ReplayEqualsState
from tests.simulation.checkers.rising_generations import RisingGenerations
from tests.simulation.checkers.stuck_rebalance import StuckRebalance
from tests.simulation.checkers.stuck_reconciliation import StuckReconciliation
from tests.simulation.checkers.two_owners import TwoOwners
from tests.simulation.control_cluster import Report
from tests.simulation.groups_consumers import SimConsumer
from tests.simulation.groups_host import OFFSETS_ID, GroupsHost, made, simulated_image
from tests.simulation.groups_log import Batch, Copy, View
from tests.simulation.groups_members import SimMember
from tests.simulation.groups_process import Readers, SimProcess
from tests.simulation.loop import SimLoop
from tests.simulation.trace import Trace

SECOND_US = 1_000_000
HEALED_US = 18 * SECOND_US
"""How long the groups have to become whole again: a new member may wait for as long as a rebalance takes."""
LOOK_US = 50_000
TIMEOUT_US = 700_000
"""How long a leader, or a copy in the ISR, may be silent: a session."""
BEHIND_US = 150_000
"""How long a copy in the ISR may not follow its leader."""
ANSWER_US_MAX = 40_000
"""How long the answer to a heartbeat takes."""
IN_SYNC_MIN = 2
MEMBERS_MAX = 5
POPULATIONS = (("c0", "c1"), ("c0", "g1"), ("g0", "g1"), ("g0", "c1"))
NEW_PROTOCOL = ("c0", "c1")
COMPARE_US = 1_000_000
"""How often a coordinator's memory is compared with its log."""


class GroupsCluster:
    def __init__(self, seed: int, nodes: int | None = None, flavour: str | None = None) -> None:
        from tests.simulation.groups_faults import FLAVOURS, GroupsFaults

        self.seed = seed
        self.chance = chance = random.Random(seed)
        self.trace = Trace()
        self.loop = SimLoop()
        drawn = chance.choices(list(FLAVOURS), list(FLAVOURS.values()))[0]
        self.flavour = flavour or drawn
        self.groups = POPULATIONS[seed % len(POPULATIONS)]
        self.image = simulated_image(TIMEOUT_US // 1_000)
        self.topic_names = {
            topic_id: topic.name for topic_id, topic in self.image.topics.items() if len(topic.name) == 1
        }
        initial_delay_ms = chance.choice((0, 0, 300))
        self.session_ms, self.rebalance_ms = chance.choice((2_000, 5_000)), chance.choice((1_500, 3_000))
        config = GroupConfig(
            session_timeout_ms_min=1_000,
            initial_rebalance_delay_ms=initial_delay_ms,
            new_member_timeout_ms=5_000,
            consumer_session_timeout_ms=self.session_ms,
        )
        brokers = nodes or 3
        self.hosts = {
            each: GroupsHost(self, each, chance.getrandbits(64), config) for each in range(1, brokers + 1)
        }
        self.loss = 0.0
        self.delay_us_max = 3_000
        self.copying_us_max = 3_000
        self.epoch = 0
        self.leader_id = 0
        self._leader_life = 0
        self._leases = Leases()
        self._behind_since_us: dict[int, int] = {}
        self.isr = set(self.hosts)
        self._unhealthy_since_us: dict[int, int] = {}
        self._copied: dict[int, int] = {}
        """The offset up to which each copy is the leader's, in this epoch."""
        self.committed_offset = 0
        self.consumer_log = ConsumerLog()
        self._compacted: dict[bytes, GroupRecord] = {}
        """What compaction would leave of the committed log."""
        self._acknowledged: dict[str, dict[TopicPartition, int]] = {each: {} for each in self.groups}
        self._commits = 0
        self.members: list[SimMember] = []
        self.consumers: list[SimConsumer] = []
        self._next_member = 0
        self.asked = 0
        self._make_checkers()
        self.faults = GroupsFaults(self)
        self.readers = Readers(self, seed)

    def _make_checkers(self) -> None:
        self.stuck_rebalance = StuckRebalance(self)
        self.stuck_reconciliation = StuckReconciliation(self)
        self.checkers: list[GroupsChecker] = [
            TwoOwners(self),
            OffsetRegression(self),
            ReadsFromThePast(self),
            RisingGenerations(self),
            LastingAssignments(self),
            self.stuck_rebalance,
            TwoOwnersAtOnce(self),
            PartsLast(self),
            EpochsRise(self),
            OnlyWhatIsSubscribed(self),
            ReplayEqualsState(self),
            self.stuck_reconciliation,
        ]

    # --- a run ---------------------------------------------------------------------------------

    def run(self, seconds: int) -> Report:
        end_us = seconds * SECOND_US
        for host in self.hosts.values():
            host.start()
        self._look()
        self._compare()
        for group in self.groups:
            for _ in range(self.chance.randrange(1, MEMBERS_MAX)):
                self.add_member(group)
        self.readers.start()
        self.faults.begin()
        events = self.loop.run_until(max(end_us - HEALED_US, 0))
        self.faults.heal()
        self.stuck_rebalance.healed()
        self.stuck_reconciliation.healed()
        events += self.loop.run_until(end_us)
        for checker in self.checkers:
            checker.finish(self.members)
            checker.finish_consumers(self.consumers)
        return Report(
            self.seed, self.flavour, len(self.hosts), events, self.asked, self.committed_offset,
            self._commits, self.epoch,
        )  # fmt: skip

    # --- members -------------------------------------------------------------------------------

    @property
    def processes(self) -> Sequence[SimProcess]:
        return [*self.members, *self.consumers]

    def add_member(self, group: str, instance: str | None = None) -> SimProcess | None:
        """One more, if there is room; in the second group under an instance id that nobody lives under."""
        living = [each for each in self.processes if each.is_alive and each.group == group]
        if len(living) >= MEMBERS_MAX:
            return None
        if group == self.groups[1] and instance is None:
            taken = {each.instance for each in living}
            instance = next(f"i{at}" for at in range(MEMBERS_MAX + 1) if f"i{at}" not in taken)
        self._next_member += 1
        member = self._new_member(group, instance)
        self.trace.add(self.loop.now_us, "comes", member.name, instance or "")
        member.start()
        return member

    def _new_member(self, group: str, instance: str | None) -> SimProcess:
        if group in NEW_PROTOCOL:
            consumer = SimConsumer(self, self._next_member, group, instance)
            self.consumers.append(consumer)
            return consumer
        member = SimMember(self, self._next_member, group, instance)
        self.members.append(member)
        return member

    def coordinator_for(self, member: SimProcess) -> GroupsHost:
        """Whom the cluster names, which may be out of date."""
        self.asked += 1
        if self.leader_id and member.chance.random() < 0.9:
            return self.hosts[self.leader_id]
        return self.hosts[member.chance.choice(list(self.hosts))]

    def is_lost(self) -> bool:
        self.asked += 1
        return bool(self.loss) and self.chance.random() < self.loss

    def delay_us(self) -> int:
        return 200 + int(self.chance.random() * self.delay_us_max)

    def told(self, member: SimMember) -> None:
        for checker in self.checkers:
            checker.on_told(member)

    def told_consumer(self, consumer: SimConsumer) -> None:
        for checker in self.checkers:
            checker.on_consumer_told(consumer)

    def took(self, consumer: SimConsumer, tps: TopicIdPartitions) -> None:
        for checker in self.checkers:
            checker.on_taken(consumer, tps)

    def acknowledged(self, member: SimProcess, positions: Mapping[TopicPartition, int]) -> None:
        self._commits += 1
        until_now = self._acknowledged[member.group]
        for partition, offset in positions.items():
            until_now[partition] = max(offset, until_now.get(partition, 0))

    def acknowledged_until_now(self, group: str) -> dict[TopicPartition, int]:
        return dict(self._acknowledged[group])

    def read(
        self,
        who: str,
        wanted: Sequence[TopicPartition],
        found: Mapping[TopicPartition, int],
        before: Mapping[TopicPartition, int],
    ) -> None:
        for checker in self.checkers:
            checker.on_read(who, wanted, found, before)

    # --- topics --------------------------------------------------------------------------------

    def partition_count(self, topic_id: Uuid) -> int:
        return len(self.image.topics[topic_id].partitions)

    def grow(self, topic_id: Uuid) -> None:
        """One more partition.  Brokers hear of it one after the other."""
        record = made(topic_id, self.partition_count(topic_id))
        self.image = self.image.apply([record], self.image.offset + 1)
        for host in self.hosts.values():
            self.loop.call_after(
                self.chance.randrange(1_000, SECOND_US), host.run, partial(host.see, self.image), host.life
            )

    # --- the partition -------------------------------------------------------------------------

    def appended(self, copy: Copy) -> None:
        """The leader's own disk, and the others', have it a while later."""
        if copy.leader_epoch != self.epoch or copy.broker_id != self.leader_id:
            return
        for broker_id in self.hosts:
            delay_us = 300 + int(self.chance.random() * self.copying_us_max)
            self.loop.call_after(delay_us, self._copy, self.epoch, broker_id)

    def _copy(self, epoch: int, broker_id: int) -> None:
        leader = self.hosts.get(self.leader_id)
        if epoch != self.epoch or leader is None or not self._is_healthy(leader) or not self._leads(leader):
            return
        host = self.hosts[broker_id]
        if host is leader:
            host.copy.synced_offset = host.copy.log_end_offset
        elif self._is_healthy(host) and host.copy.leader_epoch == epoch:
            host.copy.take(leader.copy)
        else:
            return
        self._copied[broker_id] = host.copy.log_end_offset
        self._commit(leader)

    def _commit(self, leader: GroupsHost) -> None:
        if len(self.isr) < min(IN_SYNC_MIN, len(self.hosts)):
            return
        high_watermark = min(self._copied.get(each, 0) for each in self.isr)
        if high_watermark <= leader.copy.high_watermark:
            return
        leader.copy.high_watermark = high_watermark
        self._note_committed(leader.copy)
        leader.commit_advanced()

    def _note_committed(self, copy: Copy) -> None:
        for batch in copy.batches:
            if batch.base_offset < self.committed_offset or batch.next_offset > copy.high_watermark:
                continue
            if batch.base_offset != self.committed_offset:
                raise InvariantError("sound log", f"{batch.base_offset} follows {self.committed_offset}")
            self.committed_offset = batch.next_offset
            groups: set[str] = set()
            for record in _records_of(batch):
                self.trace.add(self.loop.now_us, "committed", f"at {batch.base_offset}", str(record))
                self.consumer_log.note(record)
                _compact(self._compacted, record)
                if isinstance(record, ConsumerRecord):
                    groups.add(record.key.group_id)  # type: ignore[attr-defined]  # every kind has it
                for checker in self.checkers:
                    checker.on_commit(record)
            for checker in self.checkers:
                checker.on_entry(groups & self.consumer_log.groups.keys())

    def _compare(self) -> None:
        """What the coordinator has in memory with what the log would make of a new one."""
        leader = self.hosts.get(self.leader_id)
        if leader is not None and not leader.paused and leader.machine is not None and self._leads(leader):
            kept = dict(self._compacted)
            for batch in leader.copy.batches:
                if batch.base_offset >= self.committed_offset:
                    for record in _records_of(batch):
                        _compact(kept, record)
            replayed = leader.new_machine()
            replayed.replay([record for record in kept.values() if record.value is not None], 0)
            state, wanted = (
                {encode_record(record) for record in machine.durable_records()}
                for machine in (leader.machine, replayed)
            )
            for checker in self.checkers:
                checker.on_state(state, wanted)
        self.loop.call_after(COMPARE_US, self._compare)

    # --- who leads -----------------------------------------------------------------------------

    def _is_healthy(self, host: GroupsHost) -> bool:
        return host.is_up and not host.paused and not host.is_cut

    def _leads(self, host: GroupsHost) -> bool:
        return host.copy.is_leader and host.copy.leader_epoch == self.epoch and host.life == self._leader_life

    def _look(self) -> None:
        """Now and then, as a controller."""
        now_us = self.loop.now_us
        for broker_id, host in self.hosts.items():
            if self._is_healthy(host):
                self._unhealthy_since_us.pop(broker_id, None)
                self._answer_heartbeat(host)
            else:
                self._unhealthy_since_us.setdefault(broker_id, now_us)
        leader = self.hosts.get(self.leader_id)
        if leader is None or self._is_missed(leader) or (leader.is_up and leader.life != self._leader_life):
            self.elect()
        for host in self.hosts.values():
            if self._is_healthy(host):
                host.see(self.image)
            self._copy(self.epoch, host.broker_id)
        self._keep_in_sync()
        self.loop.call_after(LOOK_US, self._look)

    def _answer_heartbeat(self, host: GroupsHost) -> None:
        """Answers as the controller, which the host's lifecycle has asked just now."""
        broker_id = host.broker_id
        self._leases.note_applied(broker_id, host.applied_offset)
        active = [each for each in self.hosts if not self._is_missed(self.hosts[each])]
        grant = LeaseGrant(
            host.clock.monotonic_ms() + lease_ms(TIMEOUT_US // 1_000),
            self._leases.lease_offset(broker_id),
            self._leases.settled_offset(active, broker_id, self.image.offset),
        )
        lease = host.lease
        delay_us = self.chance.randrange(ANSWER_US_MAX)
        self.loop.call_after(delay_us, host.run, lambda: lease.take(grant), host.life)

    def _is_missed(self, host: GroupsHost) -> bool:
        since_us = self._unhealthy_since_us.get(host.broker_id)
        return since_us is not None and self.loop.now_us - since_us > TIMEOUT_US

    def elect(self, besides: int = 0) -> None:
        """Somebody in the ISR leads in a new epoch, if there is anybody."""
        able = [each for each in sorted(self.isr) if each != besides and self._is_healthy(self.hosts[each])]
        if not able:
            return
        self.epoch += 1
        self.leader_id = self.chance.choice(able)
        leader = self.hosts[self.leader_id]
        self._leader_life = leader.life
        self.isr = {
            each for each in self.isr if each == self.leader_id or not self._is_missed(self.hosts[each])
        }
        self._copied = {self.leader_id: leader.copy.synced_offset}
        self.trace.add(self.loop.now_us, f"leads in epoch {self.epoch}", f"broker {self.leader_id}")
        leader.copy.view = View(is_under_min_isr=len(self.isr) < min(IN_SYNC_MIN, len(self.hosts)))
        change = PartitionChanged(partition_id=0, topic_id=OFFSETS_ID, leader=self.leader_id)
        self._leases.note_changes(self.image, [change], self.image.offset + 1)
        self.image = self.image.apply([change], self.image.offset + 1)
        leader.is_lagging = False
        leader.see(self.image)

    def _keep_in_sync(self) -> None:
        leader = self.hosts.get(self.leader_id)
        if leader is None or not self._is_healthy(leader) or not self._leads(leader):
            return
        gone = {each for each in self.isr if self._is_missed(self.hosts[each]) or self._is_behind(each)}
        gone.discard(self.leader_id)
        end = leader.copy.log_end_offset
        caught_up = {
            each
            for each, host in self.hosts.items()
            if self._is_healthy(host)
            and self._copied.get(each) == end
            and host.copy.leader_epoch == self.epoch
        }
        isr = (self.isr - gone) | caught_up
        if isr != self.isr:
            self.isr = isr
            self.trace.add(self.loop.now_us, "in sync", "isr", str(sorted(isr)))
            leader.copy.view = View(is_under_min_isr=len(isr) < min(IN_SYNC_MIN, len(self.hosts)))
            leader.state_changed()
        self._commit(leader)

    def _is_behind(self, broker_id: int) -> bool:
        """Returns whether a copy has not followed the leader for too long: its image stands still."""
        if self.hosts[broker_id].copy.leader_epoch == self.epoch:
            self._behind_since_us.pop(broker_id, None)
            return False
        since_us = self._behind_since_us.setdefault(broker_id, self.loop.now_us)
        return self.loop.now_us - since_us > BEHIND_US

    # --- what the checkers see -----------------------------------------------------------------

    @property
    def now_us(self) -> int:
        return self.loop.now_us


def _records_of(batch: Batch) -> list[GroupRecord]:
    records = [decode_record(stored.key, stored.value) for stored in decode_batch(batch.data, 0)]
    return [record for record in records if record is not None]


def _compact(kept: dict[bytes, GroupRecord], record: GroupRecord) -> None:
    """The newest of a key stands where it was written."""
    key, _ = encode_record(record)
    kept.pop(key, None)
    kept[key] = record
