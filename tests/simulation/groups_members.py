"""Members of simulated groups of the classic protocol: each joins, reads, commits, and starts over if told.

It reads its partitions from where the group stands, a few records at a time, and commits where it is.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING

from distributedlog.groups.requests import (
    CommitReply,
    CommitRequest,
    CommittedOffset,
    FetchOffsetsReply,
    FetchOffsetsRequest,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    Leaver,
    LeaveRequest,
    Request,
    SupportedProtocol,
    SyncReply,
    SyncRequest,
)
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import TopicPartition
from tests.simulation.groups_process import Heard, Life, SimProcess, Sleep, Strand

if TYPE_CHECKING:
    from tests.simulation.groups_cluster import GroupsCluster

TOPIC = "t"
PARTITIONS = 5
BEAT_US = 400_000
OFFERS = (SupportedProtocol("range", TOPIC.encode()),)
COME_AGAIN = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.FENCED_INSTANCE_ID,
)


class SimMember(SimProcess):
    def __init__(self, cluster: "GroupsCluster", number: int, group: str, instance: str | None) -> None:
        super().__init__(cluster, number, group, instance)
        self.generation = -1
        self.owned: tuple[int, ...] = ()
        self.strands = (Strand(self, self._live),)

    # --- a life --------------------------------------------------------------------------------

    def _live(self) -> Life:
        while not self.is_fenced:
            if (yield from self._become_member()):
                yield from self._work()
            self.is_working = False
            if self.leaves:
                leaver = Leaver(self.member_id, self.instance)
                yield LeaveRequest(self.group, (leaver,))
                return
            yield Sleep(self.chance.randrange(10_000, 200_000))

    def _become_member(self) -> Generator[Request | Sleep, Heard, bool]:
        heard = yield self._join_request()
        reply = heard.reply
        if heard.code is ErrorCode.MEMBER_ID_REQUIRED and isinstance(reply, JoinReply):
            self.member_id = reply.member_id
            return False
        if heard.code is not ErrorCode.NONE or not isinstance(reply, JoinReply):
            self._refused(heard.code)
            return False
        self.member_id, self.generation = reply.member_id, reply.generation
        assignments: tuple[tuple[str, bytes], ...] = ()
        if reply.leader_id == reply.member_id and not reply.skip_assignment:
            assignments = assigned([each.member_id for each in reply.members])
        request = SyncRequest(
            self.group, self.member_id, self.instance, self.generation, None, None, assignments, 0
        )
        heard = yield request
        if heard.code is not ErrorCode.NONE or not isinstance(heard.reply, SyncReply):
            self._refused(heard.code)
            return False
        self.owned = tuple(heard.reply.assignment)
        self.cluster.told(self)
        return True

    def _join_request(self) -> JoinRequest:
        return JoinRequest(
            self.group, self.member_id, self.instance, "client", "/host", self.cluster.session_ms,
            self.cluster.rebalance_ms, "consumer", OFFERS, 0, may_skip_assignment=True,
        )  # fmt: skip

    def _refused(self, code: ErrorCode) -> None:
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            self.is_fenced = True

    def _work(self) -> Life:
        self.is_working = True
        positions = yield from self._positions()
        if positions is None:
            return
        while not self.leaves:
            heard = yield HeartbeatRequest(self.group, self.member_id, self.instance, self.generation)
            if heard.code in COME_AGAIN:
                self._refused(heard.code)
                return
            yield Sleep(self.chance.randrange(1_000, BEAT_US))
            for partition in self.owned:
                positions[partition] += self.chance.randrange(1, 4)
            heard = yield self._commit_request(positions)
            if heard.code in COME_AGAIN:
                self._refused(heard.code)
                return
            if heard.code is ErrorCode.NONE and isinstance(heard.reply, CommitReply):
                self.acknowledged_us = self.cluster.loop.now_us
                self.cluster.acknowledged(
                    self, {TopicPartition(TOPIC, at): positions[at] for at in self.owned}
                )
            elif (yield from self._positions()) is None:  # where does the group stand?
                return

    def _positions(self) -> Generator[Request | Sleep, Heard, dict[int, int] | None]:
        """Where the group stands in what this member owns."""
        wanted = tuple(TopicPartition(TOPIC, each) for each in self.owned)
        while True:
            before = self.cluster.acknowledged_until_now(self.group)
            heard = yield FetchOffsetsRequest(self.group, wanted)
            if heard.code is ErrorCode.NONE and isinstance(heard.reply, FetchOffsetsReply):
                found = {each.partition: each.offset for each in heard.reply.offsets}
                self.cluster.read(self.name, wanted, found, before)
                return {each.partition: found.get(each, 0) for each in wanted}
            yield Sleep(self.chance.randrange(10_000, 300_000))
            beat = yield HeartbeatRequest(self.group, self.member_id, self.instance, self.generation)
            if beat.code in COME_AGAIN:
                self._refused(beat.code)
                return None

    def _commit_request(self, positions: dict[int, int]) -> CommitRequest:
        places = tuple(
            CommittedOffset(TopicPartition(TOPIC, at), positions[at], -1, self.owner) for at in self.owned
        )
        return CommitRequest(self.group, self.member_id, self.instance, self.generation, places)


def assigned(members: list[str]) -> tuple[tuple[str, bytes], ...]:
    """Assigns as a leader does: the partitions in turn."""
    parts: dict[str, list[int]] = {each: [] for each in members}
    for partition in range(PARTITIONS):
        parts[members[partition % len(members)]].append(partition)
    return tuple((each, bytes(part)) for each, part in parts.items())
