"""What can go wrong with the members of a Raft cluster: voters that lose their disk, and who repairs that."""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from distributedlog.model.errors import DlogError
from distributedlog.ports.executor import Outcome
from distributedlog.raft import AddObserver, Change, Membership, Promote, Remove
from tests.simulation.common_faults import SECOND_US, CommonFaults, World
from tests.simulation.raft_log_storage import first_batch_of_several
from tests.simulation.raft_process import RaftProcess
from tests.simulation.raft_storage import first_frame_of_several

RaftT = TypeVar("RaftT", bound=RaftProcess)
RaftT_co = TypeVar("RaftT_co", bound=RaftProcess, covariant=True)


class RaftWorld(World[RaftT_co], Protocol[RaftT_co]):
    @property
    def raft_hosts(self) -> Mapping[int, RaftT_co]:
        """Those that may be members."""
        ...


def membership_of(host: RaftProcess) -> Membership:
    assert host.driver is not None
    return host.driver.status.membership


class MemberFaults(CommonFaults[RaftT]):
    def __init__(self, world: RaftWorld[RaftT]) -> None:
        super().__init__(world)
        self.raft_world = world
        self.voters_wanted = 3
        """An operator adds members while there are fewer."""
        self.rot_share = 0.7
        """The share of disks that lose something which lose only a part."""

    def _replace_disk(self, host: RaftT) -> None:
        self.say("disk replaced", host.node_id)
        if host.driver is not None:
            host.crash("drop")
        host.wipe()
        host.forget()

    def lose_disk(self) -> None:
        """One voter at a time, of at least three, loses what it had synced: all, or the middle of its log."""
        leader = self.world.leader()
        if leader is None or not self._all_sound(leader) or len(membership_of(leader).voters) < 3:
            return
        host = self.raft_world.raft_hosts[self.chance.choice(list(membership_of(leader).voters))]
        first = first_batch_of_several if host.setup.on_log_engine else first_frame_of_several
        place = first(host.disk)
        if place is not None and self.chance.random() < self.rot_share:
            self.say("bit rot", host.node_id)
            if host.driver is not None:
                host.crash("drop")
            path, start, end = place
            host.disk.flip_bit(path, self.chance.randrange(start, end), self.chance.randrange(8))
            host.forget()
        else:
            self._replace_disk(host)
        self._restart_later(host)

    # --- leadership and membership -------------------------------------------------------------

    def transfer(self) -> None:
        leader = self.world.leader()
        if leader is None:
            return
        target = self.chance.choice(list(self.raft_world.raft_hosts))
        self.say("transfer", (leader.node_id, "to", target))

        def ask() -> None:
            if leader.driver is not None:
                leader.driver.transfer_leadership(target)

        self._try(leader, ask)

    def _all_sound(self, leader: RaftT) -> bool:
        """Whether every member is the one it was when it was added, and no change is under way."""
        assert leader.driver is not None
        core = leader.driver.node.core
        members = core.membership.members.items()
        settled = core.memberships.index <= core.commit_index
        return settled and all(self._incarnation(node_id) == number for node_id, number in members)

    def _incarnation(self, node_id: int) -> int:
        """-1 for a disk that lost something and that no process has opened since."""
        incarnation = self.raft_world.raft_hosts[node_id].incarnation
        return -1 if incarnation is None else incarnation

    def _change(self, leader: RaftT, change: Change) -> None:
        self.say("change", (leader.node_id, repr(change)))

        def ask() -> None:
            if leader.driver is not None:
                leader.driver.change_membership(change, self._changed)

        self._try(leader, ask)

    def _changed(self, outcome: Outcome[object]) -> None:
        self.say("changed", "unknown" if outcome.error else "ok")

    def _try(self, host: RaftT, ask: Callable[[], None]) -> None:
        def attempt() -> None:
            try:
                ask()
            except DlogError as error:
                self.say("refused", str(error))

        host.call(attempt)

    def repair_members(self) -> None:
        """What an operator does: a voter that lost its disk is removed, added and promoted again."""
        self.world.loop.call_after(SECOND_US, self.repair_members)
        leader = self.world.leader()
        if leader is None:
            return
        membership = membership_of(leader)
        for node_id, incarnation in membership.members.items():
            if self._incarnation(node_id) not in (-1, incarnation):
                self._change(leader, Remove(node_id))
                return
        if len(membership.voters) < self.voters_wanted:
            observers, members = list(membership.observers), membership.members
            hosts = self.raft_world.raft_hosts
            strangers = [n for n in hosts if n not in members and self._incarnation(n) >= 0]
            if observers:
                self._change(leader, Promote(observers[0]))
            elif strangers:
                self._change(leader, AddObserver(strangers[0], self._incarnation(strangers[0])))
