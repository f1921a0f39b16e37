"""A group coordinator on a log in memory, with time that goes on when the test says.

Entries are kept as bytes: what is replayed went through Kafka's formats.  `Stage.failover` puts another
coordinator in its place, which has only the log.
"""

from collections.abc import Sequence

from distributedlog.groups.config import GroupConfig
from distributedlog.groups.machine import GroupMachine
from distributedlog.groups.member_bytes import MEMBER_OVERHEAD_BYTES, PARTITION_BYTES
from distributedlog.groups.records import GroupRecord, decode_record, encode_record
from distributedlog.groups.requests import (
    CommitReply,
    CommitRequest,
    CommittedOffset,
    Deferred,
    DeferredReply,
    FetchOffsetsReply,
    FetchOffsetsRequest,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    Leaver,
    LeaveReply,
    LeaveRequest,
    Reply,
    Request,
    SupportedProtocol,
    SyncReply,
    SyncRequest,
)
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from distributedlog.protocol.versioned import encode_versioned
from distributedlog.statemachine import Runtime
from distributedlog.statemachine.runtime import NO_OFFSET

GROUP = "g"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
WALL_MS = 1_700_000_000_000
NO_DELAY = GroupConfig(initial_rebalance_delay_ms=0)
DEADLINE_MS = 1_000_000_000

Stored = list[tuple[bytes, bytes | None]]


def subscription(*topics: str) -> bytes:
    return encode_versioned(ConsumerProtocolSubscription(topics=list(topics)), 0)


RANGE = (SupportedProtocol("range", subscription("t")),)


class MemoryLog:
    def __init__(self) -> None:
        self.entries: list[Stored] = []

    def next_offset(self) -> int:
        return len(self.entries)

    def append(self, records: Sequence[GroupRecord]) -> int:
        self.entries.append([encode_record(record) for record in records])
        return len(self.entries) - 1


def decoded(entry: Stored) -> list[GroupRecord]:
    found = (decode_record(key, value) for key, value in entry)
    return [record for record in found if record is not None]


class Waiting:
    """A request of a member: its answer, once it has come."""

    def __init__(self, waiter: int) -> None:
        self.waiter = waiter
        self.reply: JoinReply | SyncReply | None = None
        self.error = ErrorCode.NONE

    @property
    def is_answered(self) -> bool:
        return self.reply is not None or self.error is not ErrorCode.NONE

    @property
    def code(self) -> ErrorCode:
        """What it came to."""
        assert self.is_answered, "it still waits"
        return self.error if self.reply is None else self.reply.error

    @property
    def joined(self) -> JoinReply:
        assert isinstance(self.reply, JoinReply), f"it was answered with {self.reply}, {self.error}"
        return self.reply

    @property
    def assignment(self) -> bytes:
        assert isinstance(self.reply, SyncReply)
        assert self.reply.error is ErrorCode.NONE
        return self.reply.assignment


def check_member_bytes(machine: GroupMachine) -> None:
    """What was counted, turn by turn, is what the members hold."""
    held = [each.size for group in machine.groups.values() for each in group.members.values()]
    held += [
        MEMBER_OVERHEAD_BYTES + len(group.group_id) + len(member_id)
        for group in machine.groups.values()
        for member_id in group.pending
    ]
    held += [
        each.size + PARTITION_BYTES * len(each.holds)
        for consumer in machine.consumers.by_id.values()
        for each in consumer.members.values()
    ]
    assert machine.member_bytes.total == sum(held)


class Stage:
    def __init__(self, config: GroupConfig = NO_DELAY, *, commits: bool = True) -> None:
        self.config = config
        self.log = MemoryLog()
        self.now_ms = 0
        self.commits = commits
        """Entries commit as soon as they are appended."""
        self.committed_offset = NO_OFFSET
        """Over all coordinators that there were: what is committed stays so."""
        self.epoch = 0
        self._ids = 0
        self._waiter = 0
        self.failover()

    def _new_id(self, prefix: str) -> str:
        self._ids += 1
        return f"{prefix}-{self._ids}"

    def failover(self, *, keep: int | None = None) -> None:
        """Another takes over; of the log it has `keep` entries, or all."""
        del self.log.entries[len(self.log.entries) if keep is None else keep :]
        self.committed_offset = min(self.committed_offset, len(self.log.entries) - 1)
        self.waiting: dict[int, Waiting] = {}
        self.answers: dict[int, Reply | DlogError] = {}
        self.tickets: dict[int, Waiting] = {}
        self.epoch += 1
        self.runtime: Runtime[Request, GroupRecord, Reply, DeferredReply] = Runtime(
            self.new_machine, self.log
        )
        self.runtime.elected(self.epoch)
        for offset, entry in enumerate(self.log.entries):
            self.runtime.replay(decoded(entry), offset)
        self.runtime.loaded(self.now_ms)
        self.runtime.committed(self.committed_offset)
        self.settle()

    def new_machine(self) -> GroupMachine:
        return GroupMachine(self.config, self._new_id, self._wall_ms)

    def _wall_ms(self) -> int:
        return WALL_MS + self.now_ms

    @property
    def machine(self) -> GroupMachine:
        machine = self.runtime.machine
        assert isinstance(machine, GroupMachine)
        return machine

    # --- going on ------------------------------------------------------------------------------

    def settle(self, *, commit: bool | None = None) -> None:
        if self.commits if commit is None else commit:
            self.runtime.committed(self.log.next_offset() - 1)
            self.committed_offset = self.runtime.committed_offset
        check_member_bytes(self.machine)
        outbox = self.runtime.take()
        for waiter, reply in outbox.effects:
            assert not self.waiting[waiter].is_answered, "nobody is answered twice"
            self.waiting[waiter].reply = reply
        for ticket, response, error, _ in outbox.replies:
            waiting = self.tickets.pop(ticket, None)
            if waiting is None:
                self.answers[ticket] = response if error is None else error
            elif error is not None:
                waiting.error = error.code
            elif not isinstance(response, Deferred):
                assert isinstance(response, JoinReply | SyncReply)
                waiting.reply = response

    def advance(self, ms: int) -> None:
        """Time goes on, and every deadline is dealt with when it comes."""
        end_ms = self.now_ms + ms
        while (due_ms := self.runtime.next_deadline_ms()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.runtime.tick(self.now_ms)
            self.settle()
        self.now_ms = end_ms

    # --- asking --------------------------------------------------------------------------------

    def begin(self, request: Request) -> int:
        ticket = self.runtime.submit(request, self.now_ms, DEADLINE_MS)
        self.settle()
        return ticket

    def ask(self, request: Request) -> Reply:
        """The reply; an error is raised."""
        reply = self.answers.pop(self.begin(request))
        if isinstance(reply, DlogError):
            raise reply
        return reply

    def _wait(self, request: JoinRequest | SyncRequest) -> Waiting:
        waiting = self.waiting[request.waiter] = Waiting(request.waiter)
        ticket = self.runtime.submit(request, self.now_ms, DEADLINE_MS)
        self.tickets[ticket] = waiting
        self.settle()
        return waiting

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: tuple[SupportedProtocol, ...] = RANGE,
        must_know_id: bool = False,
        group: str = GROUP,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        may_skip: bool = True,
    ) -> Waiting:
        self._waiter += 1
        return self._wait(
            JoinRequest(
                group_id=group,
                member_id=member_id,
                instance_id=instance,
                client_id="client",
                client_host="/host",
                session_timeout_ms=session_ms,
                rebalance_timeout_ms=rebalance_ms,
                protocol_type=protocol_type,
                protocols=protocols,
                waiter=self._waiter,
                must_know_id=must_know_id,
                may_skip_assignment=may_skip,
            )
        )

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol: str | None = None,
    ) -> Waiting:
        self._waiter += 1
        given = tuple((assignments or {}).items())
        return self._wait(
            SyncRequest(GROUP, member_id, instance, generation, None, protocol, given, self._waiter)
        )

    def heartbeat(self, member_id: str, generation: int, instance: str | None = None) -> ErrorCode:
        return self.code_of(HeartbeatRequest(GROUP, member_id, instance, generation))

    def begin_quietly(self, member_id: str, generation: int, instance: str | None) -> None:
        """A heartbeat whose answer nobody waits for."""
        self.begin(HeartbeatRequest(GROUP, member_id, instance, generation))

    def code_of(self, request: Request) -> ErrorCode:
        """How a request ends that says nothing else."""
        try:
            self.ask(request)
        except DlogError as error:
            return error.code
        return ErrorCode.NONE

    def leave(self, *leavers: Leaver | str) -> list[ErrorCode]:
        asked = tuple(Leaver(each) if isinstance(each, str) else each for each in leavers)
        reply = self.ask(LeaveRequest(GROUP, asked))
        assert isinstance(reply, LeaveReply)
        return list(reply.errors)

    def commit(
        self,
        offset: int,
        member_id: str = "",
        generation: int = -1,
        *,
        instance: str | None = None,
        topic: str = "t",
        partition: int = 0,
        group: str = GROUP,
        retention_ms: int | None = None,
    ) -> ErrorCode:
        position = CommittedOffset(TopicPartition(topic, partition), offset, 5, "why")
        request = CommitRequest(group, member_id, instance, generation, (position,), retention_ms)
        try:
            reply = self.ask(request)
        except DlogError as error:
            return error.code
        assert isinstance(reply, CommitReply)
        (code,) = reply.errors
        return code

    def committed(self, group: str = GROUP) -> dict[TopicPartition, int]:
        reply = self.ask(FetchOffsetsRequest(group, None))
        assert isinstance(reply, FetchOffsetsReply)
        return {each.partition: each.offset for each in reply.offsets}

    # --- whole stories -------------------------------------------------------------------------

    def stable(self, *members: str | None) -> list[str]:
        """A group whose members (instance ids, or None) all have joined and are assigned their own name."""
        joins = [self.join(instance=each) for each in members]
        if len(joins) > 1:
            # The first of them formed a generation alone; it comes back for the one with all.
            first = joins[0].joined.member_id
            joins[0] = self.join(first, instance=members[0])
        ids = [each.joined.member_id for each in joins]
        generation = joins[0].joined.generation
        syncs = [
            self.sync(each, generation, {name: name.encode() for name in ids} if each == ids[0] else None)
            for each in ids
        ]
        assert [each.assignment for each in syncs] == [each.encode() for each in ids]
        return ids
