"""Members of simulated groups: each is a process that joins, reads, commits, and starts over when told to.

A member's life is a generator: it yields what it asks of the coordinator, or how long it sleeps, and goes on
with the answer.  So a pause is an answer that is held back, and a crash a generator that is dropped.  It
reads its partitions from where the group stands, a few records at a time, and commits where it is.

A connection keeps its order; when it breaks, what was under way on it and not read yet is lost, and nobody
knows what became of the rest.
"""

import random
from collections.abc import Generator
from typing import TYPE_CHECKING, NamedTuple

from distributedlog.groups.requests import (
    CommitReply,
    CommitRequest,
    FetchOffsetsReply,
    FetchOffsetsRequest,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    Leaver,
    LeaveRequest,
    Offer,
    Position,
    Reply,
    Request,
    SyncReply,
    SyncRequest,
)
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition
from distributedlog.ports.executor import Outcome

if TYPE_CHECKING:
    from tests.simulation.groups_cluster import GroupsCluster
    from tests.simulation.groups_host import GroupsHost

PARTITIONS = 5
ANSWER_US_MAX = 6_000_000
BEAT_US = 400_000
OFFERS = (Offer("range", b"t"),)
SILENCE = ErrorCode.NETWORK_EXCEPTION
"""The connection broke, or no answer came in time."""
COME_AGAIN = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.FENCED_INSTANCE_ID,
)


class Sleep(NamedTuple):
    us: int


class Heard(NamedTuple):
    """An answer."""

    code: ErrorCode
    reply: Reply = None


Life = Generator[Request | Sleep, Heard, None]
Part = Generator[Request | Sleep, Heard, Heard]


class SimMember:
    def __init__(self, cluster: "GroupsCluster", number: int, group: str, instance: str | None) -> None:
        self.cluster = cluster
        self.name = f"{group}/{number}"
        self.group = group
        self.instance = instance
        self.chance = random.Random(cluster.chance.getrandbits(64))
        self.member_id = ""
        self.generation = -1
        self.owned: tuple[int, ...] = ()
        self.is_working = False
        """It owns what it was assigned, and reads it."""
        self.is_alive = True
        self.is_fenced = False
        self.leaves = False
        self.paused = False
        self.acknowledged_us = -1
        """When a commit of its own was last acknowledged."""
        self._held: list[Heard] = []
        self._life = self._live()
        self._asked = 0
        self._broker: GroupsHost | None = None
        self._arrives_us = 0

    @property
    def owner(self) -> str:
        """Whom partitions belong to: a static member stays the same over restarts."""
        return self.name if self.instance is None else f"{self.group}/{self.instance}"

    # --- being run -----------------------------------------------------------------------------

    def start(self) -> None:
        self._go(Heard(ErrorCode.NONE), first=True)

    def crash(self) -> None:
        self.is_alive = self.is_working = False
        self._asked += 1
        self._life.close()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        held, self._held = self._held, []
        for heard in held:
            self._go(heard)

    def _go(self, heard: Heard, *, first: bool = False) -> None:
        if not self.is_alive:
            return
        if self.paused:
            self._held.append(heard)
            return
        try:
            wanted = next(self._life) if first else self._life.send(heard)
        except StopIteration:
            self.is_alive = self.is_working = False
            return
        if isinstance(wanted, Sleep):
            self.cluster.loop.call_after(wanted.us, self._go, Heard(ErrorCode.NONE))
        else:
            self._ask(wanted)

    # --- the wire ------------------------------------------------------------------------------

    def _ask(self, request: Request) -> None:
        cluster = self.cluster
        self._asked += 1
        number = self._asked
        if self._broker is None:
            self._broker = cluster.coordinator_for(self)
        broker = self._broker
        cluster.loop.call_after(ANSWER_US_MAX, self._silence, number)
        if cluster.is_lost():
            return
        # One after the other: what is sent later arrives later.
        self._arrives_us = max(self._arrives_us, cluster.loop.now_us + cluster.delay_us()) + 1

        def answered(outcome: Outcome[Reply]) -> None:
            if not cluster.is_lost():
                cluster.loop.call_after(cluster.delay_us(), self._answered, number, request, outcome)

        def arrived() -> None:
            if number == self._asked:  # else the connection is gone, and what was on it
                broker.submit(self.group, request, answered)

        cluster.loop.call_at(self._arrives_us, arrived)

    def _silence(self, number: int) -> None:
        if number == self._asked:
            self._asked += 1
            self._broker = None
            self._go(Heard(SILENCE))

    def _answered(self, number: int, request: Request, outcome: Outcome[Reply]) -> None:
        if number != self._asked:
            return
        self._asked += 1
        heard = _heard(outcome)
        self.cluster.trace.add(
            self.cluster.loop.now_us, type(request).__name__, self.name, f"{heard.code.name} {heard.reply}"
        )
        if heard.code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._broker = None
        self._go(heard)

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
                self.cluster.acknowledged(self, positions)
            elif (yield from self._positions()) is None:  # where does the group stand?
                return

    def _positions(self) -> Generator[Request | Sleep, Heard, dict[int, int] | None]:
        """Where the group stands in what this member owns."""
        wanted = tuple(TopicPartition("t", each) for each in self.owned)
        while True:
            before = self.cluster.acknowledged_until_now(self.group)
            heard = yield FetchOffsetsRequest(self.group, wanted)
            if heard.code is ErrorCode.NONE and isinstance(heard.reply, FetchOffsetsReply):
                found = {each.partition.partition: each.offset for each in heard.reply.positions}
                self.cluster.read(self, found, before)
                return {each: found.get(each, 0) for each in self.owned}
            yield Sleep(self.chance.randrange(10_000, 300_000))
            beat = yield HeartbeatRequest(self.group, self.member_id, self.instance, self.generation)
            if beat.code in COME_AGAIN:
                self._refused(beat.code)
                return None

    def _commit_request(self, positions: dict[int, int]) -> CommitRequest:
        places = tuple(Position(TopicPartition("t", at), positions[at], -1, self.owner) for at in self.owned)
        return CommitRequest(self.group, self.member_id, self.instance, self.generation, places)


def assigned(members: list[str]) -> tuple[tuple[str, bytes], ...]:
    """By a leader: the partitions in turn."""
    parts: dict[str, list[int]] = {each: [] for each in members}
    for partition in range(PARTITIONS):
        parts[members[partition % len(members)]].append(partition)
    return tuple((each, bytes(part)) for each, part in parts.items())


def _heard(outcome: Outcome[Reply]) -> Heard:
    if outcome.error is not None:
        assert isinstance(outcome.error, DlogError), outcome.error
        return Heard(outcome.error.code)
    reply = outcome.value()
    code = reply.error if isinstance(reply, JoinReply | SyncReply) else ErrorCode.NONE
    return Heard(code, reply)
