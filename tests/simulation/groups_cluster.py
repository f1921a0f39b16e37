"""Coordinators and members in virtual time from one seed: brokers, groups, faults and checkers.

`GroupsCluster(seed).run(seconds)` either returns what it did or raises `InvariantError`; the trace says the
rest.  Three brokers have a copy of one partition of `__consumer_offsets`, which `_look` keeps led and in sync
as a controller would; the coordinators on it are the real ones.  Two groups of up to five members each read a
topic; the second has static members.  Faults strike until some seconds before the end; then all heals.

The truth is kept here: every committed batch, decoded from its bytes and from nothing that a broker says.
"""

import random
from collections.abc import Mapping

from distributedlog.groups.config import GroupConfig
from distributedlog.groups.records import decode_record
from distributedlog.records.record import decode_batch
from tests.simulation.checkers import InvariantError
from tests.simulation.checkers.groups import GroupsChecker
from tests.simulation.checkers.lasting_assignments import LastingAssignments
from tests.simulation.checkers.offset_regression import OffsetRegression
from tests.simulation.checkers.rising_generations import RisingGenerations
from tests.simulation.checkers.stuck_rebalance import StuckRebalance
from tests.simulation.checkers.two_owners import TwoOwners
from tests.simulation.control_cluster import Report
from tests.simulation.groups_host import GroupsHost, image_with_offsets_topic
from tests.simulation.groups_log import Copy, View
from tests.simulation.groups_members import SimMember
from tests.simulation.loop import SimLoop
from tests.simulation.trace import Trace

SECOND_US = 1_000_000
HEALED_US = 18 * SECOND_US
"""How long the groups have to become whole again: a new member may wait for as long as a rebalance takes."""
LOOK_US = 50_000
PATIENCE_US = 700_000
"""How long a leader, or a copy in the ISR, may be silent."""
LEASE_MS = PATIENCE_US // 1_000 * 98 // 100
"""How long a broker that was heard knows that it was; clocks differ a little."""
IN_SYNC_MIN = 2
MEMBERS_MAX = 5
GROUPS = ("g0", "g1")


class GroupsCluster:
    def __init__(self, seed: int, nodes: int | None = None, flavour: str | None = None) -> None:
        from tests.simulation.groups_faults import FLAVOURS, GroupsFaults

        self.seed = seed
        self.chance = chance = random.Random(seed)
        self.trace = Trace()
        self.loop = SimLoop()
        drawn = chance.choices(list(FLAVOURS), list(FLAVOURS.values()))[0]
        self.flavour = flavour or drawn
        self.image = image_with_offsets_topic()
        config = GroupConfig(
            session_timeout_ms_min=1_000,
            initial_rebalance_delay_ms=chance.choice((0, 0, 300)),
            new_member_timeout_ms=5_000,
        )
        self.session_ms, self.rebalance_ms = chance.choice((2_000, 5_000)), chance.choice((1_500, 3_000))
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
        self.isr = set(self.hosts)
        self._unhealthy_since_us: dict[int, int] = {}
        self._copied: dict[int, int] = {}
        """In this epoch: up to where each copy is the leader's."""
        self.committed_offset = 0
        self._acknowledged: dict[str, dict[int, int]] = {each: {} for each in GROUPS}
        self._commits = 0
        self.members: list[SimMember] = []
        self._next_member = 0
        self.asked = 0
        self._make_checkers()
        self.faults = GroupsFaults(self)

    def _make_checkers(self) -> None:
        self.stuck_rebalance = StuckRebalance(self)
        self.checkers: list[GroupsChecker] = [
            TwoOwners(self),
            OffsetRegression(self),
            RisingGenerations(self),
            LastingAssignments(self),
            self.stuck_rebalance,
        ]

    # --- a run ---------------------------------------------------------------------------------

    def run(self, seconds: int) -> Report:
        end_us = seconds * SECOND_US
        for host in self.hosts.values():
            host.start()
        self._look()
        for group in GROUPS:
            for _ in range(self.chance.randrange(1, MEMBERS_MAX)):
                self.add_member(group)
        self.faults.begin()
        events = self.loop.run_until(max(end_us - HEALED_US, 0))
        self.faults.heal()
        self.stuck_rebalance.healed()
        events += self.loop.run_until(end_us)
        for checker in self.checkers:
            checker.finish(self.members)
        return Report(
            self.seed, self.flavour, len(self.hosts), events, self.asked, self.committed_offset,
            self._commits, self.epoch,
        )  # fmt: skip

    # --- members -------------------------------------------------------------------------------

    def add_member(self, group: str, instance: str | None = None) -> SimMember | None:
        """One more, if there is room; in the second group under an instance id that nobody lives under."""
        living = [each for each in self.members if each.is_alive and each.group == group]
        if len(living) >= MEMBERS_MAX:
            return None
        if group == GROUPS[1] and instance is None:
            taken = {each.instance for each in living}
            instance = next(f"i{at}" for at in range(MEMBERS_MAX + 1) if f"i{at}" not in taken)
        self._next_member += 1
        member = SimMember(self, self._next_member, group, instance)
        self.members.append(member)
        self.trace.add(self.loop.now_us, "comes", member.name, instance or "")
        member.start()
        return member

    def coordinator_for(self, member: SimMember) -> GroupsHost:
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

    def acknowledged(self, member: SimMember, positions: Mapping[int, int]) -> None:
        self._commits += 1
        until_now = self._acknowledged[member.group]
        for partition, offset in positions.items():
            until_now[partition] = max(offset, until_now.get(partition, 0))

    def acknowledged_until_now(self, group: str) -> dict[int, int]:
        return dict(self._acknowledged[group])

    def read(self, member: SimMember, found: Mapping[int, int], before: Mapping[int, int]) -> None:
        for checker in self.checkers:
            checker.on_read(member, found, before)

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
            for stored in decode_batch(batch.data, 0):
                record = decode_record(stored.key, stored.value)
                assert record is not None
                self.trace.add(self.loop.now_us, "committed", f"at {stored.offset}", str(record))
                for checker in self.checkers:
                    checker.on_commit(record)

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
                host.lease_end_ms = host.clock.monotonic_ms() + LEASE_MS
            else:
                self._unhealthy_since_us.setdefault(broker_id, now_us)
        leader = self.hosts.get(self.leader_id)
        if leader is None or self._is_missed(leader) or (leader.is_up and leader.life != self._leader_life):
            self.elect()
        for host in self.hosts.values():
            if self._is_healthy(host) and host.copy.leader_epoch < self.epoch:
                host.follow(self.epoch)
            self._copy(self.epoch, host.broker_id)
        self._keep_in_sync()
        self.loop.call_after(LOOK_US, self._look)

    def _is_missed(self, host: GroupsHost) -> bool:
        since_us = self._unhealthy_since_us.get(host.broker_id)
        return since_us is not None and self.loop.now_us - since_us > PATIENCE_US

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
        leader.copy.view = View(is_short=len(self.isr) < min(IN_SYNC_MIN, len(self.hosts)))
        leader.lead(self.epoch)

    def _keep_in_sync(self) -> None:
        leader = self.hosts.get(self.leader_id)
        if leader is None or not self._is_healthy(leader) or not self._leads(leader):
            return
        gone = {each for each in self.isr if self._is_missed(self.hosts[each])} - {self.leader_id}
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
            leader.copy.view = View(is_short=len(isr) < min(IN_SYNC_MIN, len(self.hosts)))
            leader.state_changed()
        self._commit(leader)

    # --- what the checkers see -----------------------------------------------------------------

    @property
    def now_us(self) -> int:
        return self.loop.now_us
