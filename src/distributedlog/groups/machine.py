"""The group coordinator of one partition of `__consumer_offsets`, as a machine of the shared runtime.

    DURABLE, changed by `replay` alone     committed offsets (`offsets`); of each classic group the last
                                           generation that was Stable or Empty (`stored`); consumer groups
                                           (`consumers`)
    SOFT STATE                             the live classic groups (`groups`): who waits at a barrier,
                                           sessions, ids given out, generations without assignments; and all
                                           deadlines

A live group is made from what is stored when the coordinator takes over, and lives on its own from then on;
its records follow it.  A Stable or Empty group equals what is stored of it.  Consumer groups live in their
records alone.  What a crash does: the soft state is lost, members of classic groups join again, those of
consumer groups go on, and no committed offset that was acknowledged is lost.

A group exists while it has members, committed offsets, or a stored generation.  One that has only committed
offsets belongs to consumers that assign themselves; it has no live group, and counts as Empty.

Replies to JoinGroup and SyncGroup that waited are effects, so they leave when everything they depend on is
committed, like any other reply.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from distributedlog.groups.classic import joining, leaving, rebalance, syncing
from distributedlog.groups.classic.group import ClassicGroup, GroupState, restore_group
from distributedlog.groups.classic.joining import NewId
from distributedlog.groups.committed_offsets import CommittedOffsets
from distributedlog.groups.config import GROUP_ID_BYTES_MAX, GroupConfig
from distributedlog.groups.consumer import classic_members
from distributedlog.groups.consumer.groups import ConsumerGroups
from distributedlog.groups.consumer.offset_checks import check_fetch
from distributedlog.groups.consumer.sessions import OF_A_MEMBER
from distributedlog.groups.consumer.topics import NO_TOPICS, Topics
from distributedlog.groups.directory import Directory
from distributedlog.groups.member_bytes import MemberBytes
from distributedlog.groups.offset_manager import OffsetManager
from distributedlog.groups.records import (
    ConsumerRecord,
    GroupMetadataRecord,
    GroupRecord,
    OffsetRecord,
    decode_record,
    encode_record,
    utf8_bytes,
)
from distributedlog.groups.requests import (
    CommitRequest,
    ConsumerHeartbeatRequest,
    Deferred,
    DeferredReply,
    DeleteGroupRequest,
    DeleteOffsetsRequest,
    DescribeConsumerGroupRequest,
    DescribeRequest,
    FetchOffsetsRequest,
    ForgetTopicsRequest,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    LeaveReply,
    LeaveRequest,
    ListRequest,
    MergedCommitRequest,
    Reply,
    Request,
    SyncReply,
    SyncRequest,
    TransactionalCommitRequest,
)
from distributedlog.groups.turn import Timer, TimerKey, Turn
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import InvalidGroupIdError, MalformedMessageError, UnknownMemberError
from distributedlog.protocol.messages.group_records import GroupMetadataKey, GroupMetadataValue
from distributedlog.statemachine import Context, Result
from distributedlog.statemachine.deadlines import Deadlines

GroupResult = Result[GroupRecord, Reply, DeferredReply]
Tick = Result[GroupRecord, None, DeferredReply]

_LENGTHS: Final = struct.Struct(">ii")
_NO_VALUE: Final = -1


class GroupMachine:
    def __init__(
        self,
        config: GroupConfig,
        new_id: NewId,
        wall_ms: Callable[[], int],
        topics: Callable[[], Topics] = lambda: NO_TOPICS,
        bytes_of_broker: Callable[[], Iterable[MemberBytes]] | None = None,
    ) -> None:
        """`new_id` makes member ids; `wall_ms` is the time that is written; `topics` are all there are;
        `bytes_of_broker` are what the members of each machine hold."""
        self.config = config
        self.offsets = CommittedOffsets()
        self.stored: dict[str, GroupMetadataValue] = {}
        self.groups: dict[str, ClassicGroup] = {}
        self._new_id = new_id
        self._wall_ms = wall_ms
        self._timers: Deadlines[TimerKey] = Deadlines()
        self.member_bytes = MemberBytes(bytes_of_broker)
        self.consumers = ConsumerGroups(topics, new_id, self.groups, self.stored, self.member_bytes)
        self._directory = Directory(self.groups, self.stored, self.offsets, self.consumers)
        self._offset_manager = OffsetManager(self.groups, self._directory, self.offsets, self.consumers)

    # --- the contract --------------------------------------------------------------------------

    def handle(self, request: Request, context: Context) -> GroupResult:
        turn = self._turn(context)
        reply = self._handle(request, turn)
        return Result(reply, turn.records, turn.effects, turn.transaction)

    def replay(self, records: Sequence[GroupRecord], offset: int) -> None:
        for record in records:
            if isinstance(record, OffsetRecord):
                self.offsets.replay(record)
            elif isinstance(record, ConsumerRecord):
                self.consumers.replay(record)
            elif record.value is None:
                self.stored.pop(record.key.group, None)
            else:
                self.stored[record.key.group] = record.value

    def activated(self, context: Context) -> Tick:
        turn = self._turn(context)
        for group_id, value in self.stored.items():
            group = self.groups[group_id] = restore_group(group_id, value)
            for member in group.members.values():
                rebalance.keep_alive(group, member, turn)
                rebalance.charge(group, member, turn)
        self.consumers.activated(turn)
        turn.timers.set(TimerKey(Timer.EXPIRY), turn.now_ms + self.config.offsets_retention_check_ms)
        return Result(None)

    def next_deadline_ms(self) -> int | None:
        return self._timers.next_ms()

    def tick(self, context: Context) -> Tick:
        """One deadline at a time: what each leads to fits one entry."""
        turn = self._turn(context)
        due = self._timers.pop_due(context.now_ms)
        if due is not None:
            self._expire(*due, turn)
        return Result(None, turn.records, turn.effects)

    def snapshot(self) -> bytes:
        """All durable state, as the records that would make it."""
        return b"".join(_framed(record) for record in self.durable_records())

    def restore(self, data: bytes, offset: int) -> None:
        self.replay(list(_unframed(data)), offset)

    def durable_records(self) -> Iterator[GroupRecord]:
        yield from self.offsets.records()
        for group_id, value in self.stored.items():
            yield GroupMetadataRecord(GroupMetadataKey(group=group_id), value)
        yield from self.consumers.records()

    def has(self, group_id: str) -> bool:
        """Returns whether there is such a group: with members, with committed offsets, or stored."""
        return self._directory.has(group_id)

    # --- requests ------------------------------------------------------------------------------

    def _turn(self, context: Context) -> Turn:
        return Turn(
            self.config, self._timers, self.member_bytes, context.now_ms, self._wall_ms(), context.pending
        )

    def _handle(self, request: Request, turn: Turn) -> Reply:
        match request:
            case ConsumerHeartbeatRequest():
                _check_group_id(request.group_id)
                if request.group_id not in self.consumers.by_id:
                    self._directory.check_room(request.group_id, turn)
                return self.consumers.heartbeat(request, turn)
            case HeartbeatRequest():
                self._heartbeat(request, turn)
                return None
            case CommitRequest():
                _check_group_id(request.group_id, may_be_empty=True)
                return self._offset_manager.commit(request, turn)
            case MergedCommitRequest():
                return self._offset_manager.commit_all(request, turn)
            case TransactionalCommitRequest():
                _check_group_id(request.commit.group_id)
                return self._offset_manager.commit_in_transaction(request, turn)
            case FetchOffsetsRequest():
                if (consumer := self.consumers.by_id.get(request.group_id)) is not None:
                    check_fetch(consumer, request)
                return self._offset_manager.fetch(request, turn)
            case JoinRequest():
                return self._join(request, turn)
            case SyncRequest():
                return self._sync(request, turn)
            case LeaveRequest():
                _check_group_id(request.group_id)
                if (consumer := self.consumers.by_id.get(request.group_id)) is not None:
                    return self.consumers.leave(consumer, request, turn)
                group = self.groups.get(request.group_id)
                if group is None:
                    return LeaveReply((ErrorCode.UNKNOWN_MEMBER_ID,) * len(request.leavers))
                return leaving.leave(group, request, turn)
            case DeleteOffsetsRequest():
                return self._offset_manager.delete(request, turn)
            case ForgetTopicsRequest():
                return self._offset_manager.forget_topics(request, turn)
            case DescribeRequest():
                return self._directory.describe(request.group_id)
            case DescribeConsumerGroupRequest():
                return self.consumers.describe(request.group_id, turn)
            case ListRequest():
                return self._directory.list_groups()
            case DeleteGroupRequest():
                return self._directory.delete(request.group_id, turn)

    def _group(self, group_id: str) -> ClassicGroup:
        """Returns the classic group of a request that names a member; raises if there is none."""
        _check_group_id(group_id)
        group = self.groups.get(group_id)
        if group is None:
            raise UnknownMemberError(f"group {group_id!r} has no members")
        return group

    def _heartbeat(self, request: HeartbeatRequest, turn: Turn) -> None:
        if (consumer := self.consumers.by_id.get(request.group_id)) is not None:
            classic_members.heartbeat(consumer, request, turn)
        else:
            syncing.heartbeat(self._group(request.group_id), request, turn)

    def _sync(self, request: SyncRequest, turn: Turn) -> SyncReply | Deferred:
        if (consumer := self.consumers.by_id.get(request.group_id)) is not None:
            return classic_members.sync(consumer, request, self.consumers.lookup(), turn)
        return syncing.sync(self._group(request.group_id), request, turn)

    def _join(self, request: JoinRequest, turn: Turn) -> JoinReply | Deferred:
        _check_group_id(request.group_id)
        joining.check_request(request, turn)
        consumer = self.consumers.by_id.get(request.group_id)
        if consumer is not None and consumer.members:
            return self.consumers.join(consumer, request, turn)
        group = self.groups.get(request.group_id)
        if group is None:
            if request.member_id:
                raise UnknownMemberError(f"group {request.group_id!r} has no members")
            self._directory.check_room(request.group_id, turn)
            group = ClassicGroup(request.group_id, turn.wall_ms)
            reply = joining.join(group, request, turn, self._new_id)
            if consumer is not None:
                self.consumers.delete_empty(consumer, turn)
            self.groups[request.group_id] = group
            return reply
        return joining.join(group, request, turn, self._new_id)

    # --- deadlines -----------------------------------------------------------------------------

    def _expire(self, key: TimerKey, due_ms: int, turn: Turn) -> None:
        if key.timer is Timer.EXPIRY:
            again_ms = self._offset_manager.expire(turn)
            turn.timers.set(key, turn.now_ms + again_ms)
            return
        if key.timer is Timer.PATTERNS:
            self.consumers.resolve_some(turn)
            return
        if key.timer in OF_A_MEMBER:
            self.consumers.expire_deadline(key, due_ms, turn)
            return
        group = self.groups[key.group_id]
        match key.timer:
            case Timer.SESSION:
                rebalance.expire_session(group, key.member_id, due_ms, turn)
            case Timer.PENDING:
                rebalance.expire_pending(group, key.member_id, turn)
            case Timer.JOIN:
                rebalance.end_join_phase(group, turn)
            case Timer.SYNC:
                rebalance.expire_sync(group, turn)
        if group.is_void:
            del self.groups[key.group_id]


def _check_group_id(group_id: str, *, may_be_empty: bool = False) -> None:
    """Commits of consumers without a group have an empty one; nothing else may."""
    if not group_id and not may_be_empty:
        raise InvalidGroupIdError("a group needs a name")
    if utf8_bytes(group_id) > GROUP_ID_BYTES_MAX:
        raise InvalidGroupIdError(f"a group's name has at most {GROUP_ID_BYTES_MAX} bytes")


# --- snapshots ---------------------------------------------------------------------------------


def _framed(record: GroupRecord) -> bytes:
    key, value = encode_record(record)
    return _LENGTHS.pack(len(key), _NO_VALUE if value is None else len(value)) + key + (value or b"")


def _unframed(data: bytes) -> Iterable[GroupRecord]:
    at = 0
    while at < len(data):
        if len(data) - at < _LENGTHS.size:
            raise MalformedMessageError("a snapshot of groups is cut short")
        key_bytes, value_bytes = _LENGTHS.unpack_from(data, at)
        key_at = at + _LENGTHS.size
        value_at = key_at + key_bytes
        at = value_at + max(value_bytes, 0)
        if key_bytes < 0 or at > len(data):
            raise MalformedMessageError("a snapshot of groups is cut short")
        record = decode_record(data[key_at:value_at], None if value_bytes < 0 else data[value_at:at])
        if record is not None:
            yield record


__all__ = ["GroupMachine", "GroupState"]
