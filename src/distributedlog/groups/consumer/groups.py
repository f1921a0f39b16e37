"""All consumer groups of a coordinator: their requests, their deadlines, and their records.

DURABLE: the groups.  SOFT STATE: members' deadlines; since when a group is empty, as far as this coordinator
knows; which topics each group was last looked at with; what patterns stand for.

A turn works on a draft, checks that its records fit one entry, and only then touches deadlines and the
classic groups: until there it may fail and nothing has happened.

A name belongs to a classic group or to a consumer group, never to both (see `moving`).
"""

from collections.abc import Callable, Iterator, Mapping

from distributedlog.groups.classic import rebalance
from distributedlog.groups.classic.group import ClassicGroup, GroupState, make_group_metadata_record
from distributedlog.groups.consumer import classic_members, describing, heartbeat, leaving, moving, sessions
from distributedlog.groups.consumer.group import ConsumerGroup, Draft
from distributedlog.groups.consumer.member import IS_AWAY, JOINS, LEAVES, Member
from distributedlog.groups.consumer.patterns import TURN_MATCHES_MAX, Patterns, Resolution
from distributedlog.groups.consumer.planning import TopicLookup, refresh
from distributedlog.groups.consumer.settings import make_group_turn
from distributedlog.groups.consumer.topics import Topics
from distributedlog.groups.member_bytes import PARTITION_BYTES, Holder, Holding, MemberBytes
from distributedlog.groups.records import ConsumerRecord, GroupRecord, size_bound, size_bounds
from distributedlog.groups.requests import (
    ConsumerHeartbeatReply,
    ConsumerHeartbeatRequest,
    DescribeConsumerGroupReply,
    JoinReply,
    JoinRequest,
    LeaveReply,
    LeaveRequest,
)
from distributedlog.groups.turn import Timer, TimerKey, Turn
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError, GroupNotFoundError, UnknownMemberError
from distributedlog.protocol.messages.group_records import ConsumerGroupMetadataKey, GroupMetadataValue

NewId = Callable[[str], str]
ID_PREFIX_LENGTH_MAX = 255
RESOLUTION_PAUSE_MS = 2
"""The time that others have between two turns that match patterns."""


class ConsumerGroups:
    def __init__(
        self,
        topics: Callable[[], Topics],
        new_id: NewId,
        classics: dict[str, ClassicGroup],
        stored: Mapping[str, GroupMetadataValue],
        member_bytes: MemberBytes,
    ) -> None:
        """`classics` are the live classic groups, `stored` what the log says of them."""
        self._member_bytes = member_bytes
        self.by_id: dict[str, ConsumerGroup] = {}
        self._topics = topics
        self._new_id = new_id
        self._classics = classics
        self._stored = stored
        self._patterns = Patterns()
        self._to_resolve: dict[str, None] = {}
        """Groups whose patterns take longer than a turn, in the order in which they came."""
        self._resolution: Resolution | None = None
        self._seen: dict[str, object] = {}
        """The mark of the topics that each group was last looked at with."""
        self._empty_since_ms: dict[str, int] = {}

    # --- the log -------------------------------------------------------------------------------

    def replay(self, record: ConsumerRecord) -> None:
        key, value = record
        group_id: str = key.group_id  # type: ignore[attr-defined]  # every kind has it
        if value is None and isinstance(key, ConsumerGroupMetadataKey):
            gone = self.by_id.pop(group_id, None)
            for left_id in gone.members if gone is not None else ():
                self._member_bytes.release(Holder(Holding.CONSUMER, group_id, left_id))
            self._seen.pop(group_id, None)
            self._empty_since_ms.pop(group_id, None)
            return
        group = self.by_id.get(group_id)
        if group is None:
            if value is None:
                return
            group = self.by_id[group_id] = ConsumerGroup(group_id)
        group.replay(record)
        member_id: str | None = getattr(key, "member_id", None)
        if member_id is not None:
            self._charge(group, member_id)

    def _charge(self, group: ConsumerGroup, member_id: str) -> None:
        """Counts what the member holds now, in the place of what it held."""
        holder = Holder(Holding.CONSUMER, group.group_id, member_id)
        member = group.members.get(member_id)
        if member is None:
            self._member_bytes.release(holder)
        else:
            size = member.size + len(member.holds) * PARTITION_BYTES
            self._member_bytes.charge(holder, member.client_host, size)

    def _check_bytes(self, group_id: str, before: Member | None, member: Member, turn: Turn) -> None:
        """Checks that the member may hold what it says of itself now; what it is assigned is not its
        doing."""
        more_bytes = member.size - (before.size if before is not None else 0)
        self._member_bytes.check(group_id, member.client_host, more_bytes, turn.config)

    def records(self) -> Iterator[ConsumerRecord]:
        for group in self.by_id.values():
            yield from group.records()

    def activated(self, turn: Turn) -> None:
        topics = self._topics()
        for group in self.by_id.values():
            if not group.members:
                self._empty_since_ms[group.group_id] = turn.wall_ms
            own = make_group_turn(topics.group_settings(group.group_id), turn)
            for member in group.members.values():
                sessions.keep_alive(group.group_id, member, own)
                sessions.watch_revocation(group.group_id, None, member, own)

    # --- looking -------------------------------------------------------------------------------

    def describe(self, group_id: str, turn: Turn) -> DescribeConsumerGroupReply:
        group = self.by_id.get(group_id)
        if group is None:
            raise GroupNotFoundError(f"there is no consumer group {group_id!r}")
        return describing.describe(group, turn.config)

    def empty_since_ms(self, group_id: str) -> int:
        """Returns since when it is empty, by the wall clock, and not before this coordinator took over: no
        record says it."""
        return self._empty_since_ms.get(group_id, 0)

    def lookup(self) -> TopicLookup:
        return TopicLookup(self._topics(), self._patterns)

    # --- ConsumerGroupHeartbeat ----------------------------------------------------------------

    def heartbeat(self, request: ConsumerHeartbeatRequest, turn: Turn) -> ConsumerHeartbeatReply:
        heartbeat.check_request(request, turn.config)
        lookup = self.lookup()
        turn = make_group_turn(lookup.topics.group_settings(request.group_id), turn)
        if request.epoch in (LEAVES, IS_AWAY):
            return self._leave(request, turn)
        group = self.by_id.get(request.group_id)
        if group is not None and self._seen.get(group.group_id) is lookup.topics.mark:
            quiet = heartbeat.find_settled_member(group, request)
            if quiet is not None:
                sessions.keep_alive(group.group_id, quiet, turn)
                return heartbeat.make_reply(request, quiet, quiet, turn.config)
        return self._apply_heartbeat(request, lookup, turn)

    def _apply_heartbeat(
        self, request: ConsumerHeartbeatRequest, lookup: TopicLookup, turn: Turn
    ) -> ConsumerHeartbeatReply:
        if request.epoch == JOINS and not request.member_id:
            request = request._replace(member_id=self._new_id(request.client_id[:ID_PREFIX_LENGTH_MAX]))
        draft, moved_from = self._draft(request, lookup, turn)
        before = draft.members.get(request.member_id)
        known = draft.group.find_known(request.member_id, request.instance_id)
        ids_before = set(draft.members)
        member = heartbeat.apply_heartbeat(draft, request, lookup, turn)
        self._check_bytes(draft.group_id, known, member, turn)
        self._finish(draft, moved_from, turn)
        for gone in ids_before - set(draft.members):
            sessions.cancel_deadlines(draft.group_id, gone, turn)
        if before is not None and before.classic is not None:
            sessions.cancel_deadlines(draft.group_id, before.member_id, turn)
        self._seen[draft.group_id] = lookup.topics.mark
        sessions.keep_alive(draft.group_id, member, turn)
        sessions.watch_revocation(draft.group_id, before, member, turn)
        return heartbeat.make_reply(request, before, member, turn.config)

    def _draft(
        self, request: ConsumerHeartbeatRequest, lookup: TopicLookup, turn: Turn
    ) -> tuple[Draft, ClassicGroup | None]:
        """The group to work on, and the classic one that it was until now."""
        group = self.by_id.get(request.group_id)
        if group is not None:
            return Draft(group), None
        classic = self._classics.get(request.group_id)
        if request.epoch != JOINS:
            if classic is not None:
                raise GroupNotFoundError(f"group {request.group_id!r} is a classic group")
            raise UnknownMemberError(f"there is no consumer group {request.group_id!r}")
        if classic is None or classic.state is GroupState.EMPTY:
            return Draft(ConsumerGroup(request.group_id)), classic
        moving.check_upgrade(classic, turn)
        return moving.upgrade(classic, lookup.topics), classic

    def _finish(self, draft: Draft, moved_from: ClassicGroup | None, turn: Turn) -> None:
        """Writes the draft's records if they fit an entry; from there on nothing fails."""
        written: list[GroupRecord] = list(draft.records)
        if moved_from is not None and moved_from.group_id in self._stored:
            written.insert(0, moving.make_classic_tombstone(moved_from.group_id))
        turn.check_fits(written)
        turn.records += written
        if draft.unresolved:
            self._resolve_later(draft.group_id, turn)
        if moved_from is not None:
            moving.retire(moved_from, turn)
            del self._classics[moved_from.group_id]
            for member in draft.members.values():
                sessions.keep_alive(draft.group_id, member, turn)

    # --- patterns ------------------------------------------------------------------------------

    def _resolve_later(self, group_id: str, turn: Turn) -> None:
        self._to_resolve.setdefault(group_id)
        key = TimerKey(Timer.PATTERNS)
        if key not in turn.timers:
            turn.timers.set(key, turn.now_ms + RESOLUTION_PAUSE_MS)

    def resolve_some(self, turn: Turn) -> None:
        """Matches patterns with as many names as a turn may; those of one group after those of another."""
        if self._resolution is None:
            self._resolution = self._begin_resolution()
        if self._resolution is not None and self._resolution.advance(TURN_MATCHES_MAX):
            resolution, self._resolution = self._resolution, None
            self._end_resolution(resolution, turn)
        if self._resolution is not None or self._to_resolve:
            turn.timers.set(TimerKey(Timer.PATTERNS), turn.now_ms + RESOLUTION_PAUSE_MS)

    def _begin_resolution(self) -> Resolution | None:
        while self._to_resolve:
            group_id = next(iter(self._to_resolve))
            del self._to_resolve[group_id]
            group = self.by_id.get(group_id)
            wanted = {each.pattern for each in group.members.values()} if group is not None else set()
            patterns = sorted(pattern for pattern in wanted if pattern is not None)
            topics = self._topics()
            if patterns:
                unknown = [each for each in patterns if self._patterns.find(each, topics, 0)[0] is None]
                return Resolution(group_id, unknown, topics, self._patterns)
        return None

    def _end_resolution(self, resolution: Resolution, turn: Turn) -> None:
        """Writes what was found, if it fits; if not, the next heartbeat finds it and is refused."""
        group = self.by_id.get(resolution.group_id)
        if group is None:
            return
        self._seen.pop(group.group_id, None)
        draft = Draft(group)
        refresh(draft, self.lookup(), turn, is_changed=False, resolution=resolution)
        if size_bounds(draft.records) <= turn.config.entry_bytes_max:
            turn.records += draft.records
        if draft.unresolved:
            self._to_resolve.setdefault(group.group_id)

    # --- leaving -------------------------------------------------------------------------------

    def _leave(self, request: ConsumerHeartbeatRequest, turn: Turn) -> ConsumerHeartbeatReply:
        group = self.by_id.get(request.group_id)
        if group is None:
            raise GroupNotFoundError(f"there is no consumer group {request.group_id!r}")
        member = heartbeat.find_member(group, request.member_id, request.instance_id)
        if request.epoch == IS_AWAY:
            draft = Draft(group)
            away = heartbeat.leave_temporarily(draft, member)
            self._finish(draft, None, turn)
            sessions.keep_alive(group.group_id, away, turn)
            sessions.watch_revocation(group.group_id, member, away, turn)
        else:
            self.remove(group, [member], turn)
        return ConsumerHeartbeatReply(member.member_id, request.epoch)

    def remove(
        self, group: ConsumerGroup, members: list[Member], turn: Turn, *, refusable: bool = False
    ) -> None:
        """They are out: what they held is free, and the group plans anew.  One that goes always fits into an
        entry; many at once may not, and are refused then."""
        ids = frozenset(member.member_id for member in members)
        lookup = self.lookup()
        if moving.may_downgrade(group, ids, turn):
            classic = moving.downgrade(group, ids, lookup.topics, turn.wall_ms)
            if self._downgrade(group, classic, turn):
                rebalance.prepare(classic, turn)
                return
        draft = Draft(group)
        leaving.remove(draft, ids, lookup)
        if refusable:
            turn.check_fits(draft.records)
        turn.records += draft.records
        for member_id in ids:
            sessions.cancel_deadlines(group.group_id, member_id, turn)
        if not draft.members:
            self._empty_since_ms[group.group_id] = turn.wall_ms

    def _downgrade(self, group: ConsumerGroup, classic: ClassicGroup, turn: Turn) -> bool:
        """Returns whether the one could be put in the place of the other: all of it has to fit one entry."""
        written: list[GroupRecord] = [*moving.make_tombstones(group), make_group_metadata_record(classic)]
        if sum(size_bound(record) for record in written) > turn.config.entry_bytes_max:
            return False
        turn.records += written
        for member_id in group.members:
            sessions.cancel_deadlines(group.group_id, member_id, turn)
        self._classics[group.group_id] = classic
        for member in classic.members.values():
            rebalance.keep_alive(classic, member, turn)
            rebalance.charge(classic, member, turn)
        return True

    # --- classic clients -----------------------------------------------------------------------

    def join(self, group: ConsumerGroup, request: JoinRequest, turn: Turn) -> JoinReply:
        new_id = self._new_id((request.instance_id or request.client_id)[:ID_PREFIX_LENGTH_MAX])
        if not request.member_id and request.instance_id is None and request.must_know_id:
            classic_members.check_protocols(group, request)
            return JoinReply(new_id, ErrorCode.MEMBER_ID_REQUIRED)
        lookup = self.lookup()
        draft = Draft(group)
        member = classic_members.join(draft, request, new_id, lookup, turn)
        known = group.find_known(member.member_id, member.instance_id)
        self._check_bytes(group.group_id, known, member, turn)
        takes_last_place = len(draft.members) == len(group.members) == draft.group.classic_count
        if takes_last_place and group.classic_count < len(group.members):
            reply = self._downgrade_by(group, draft, member, lookup, turn)
            if reply is not None:
                return reply
        self._finish(draft, None, turn)
        for gone in set(group.members) - set(draft.members):
            sessions.cancel_deadlines(group.group_id, gone, turn)
        self._seen[group.group_id] = lookup.topics.mark
        sessions.keep_alive(group.group_id, member, turn)
        sessions.mark_rejoined(group.group_id, member, turn)
        return classic_members.make_join_reply(member)

    def _downgrade_by(
        self, group: ConsumerGroup, draft: Draft, member: Member, lookup: TopicLookup, turn: Turn
    ) -> JoinReply | None:
        """A classic process took the place of the last static member of the new protocol: nobody has to join
        again for that."""
        if not moving.may_downgrade(draft.group, frozenset(), turn):
            return None
        classic = moving.downgrade(draft.group, frozenset(), lookup.topics, turn.wall_ms)
        if not self._downgrade(group, classic, turn):
            return None
        return classic_members.make_join_reply(member)._replace(protocol=classic.protocol)

    def delete_empty(self, group: ConsumerGroup, turn: Turn) -> None:
        """An empty consumer group goes, for a classic one of its name is to come."""
        turn.records += moving.make_tombstones(group)

    def leave(self, group: ConsumerGroup, request: LeaveRequest, turn: Turn) -> LeaveReply:
        errors, going = [], {}
        for who in request.leavers:
            try:
                member = classic_members.find_leaving_member(group, who)
            except DlogError as error:
                errors.append(error.code)
                continue
            errors.append(ErrorCode.UNKNOWN_MEMBER_ID if member.member_id in going else ErrorCode.NONE)
            going[member.member_id] = member
        if going:
            self.remove(group, list(going.values()), turn, refusable=True)
        return LeaveReply(tuple(errors))

    # --- deadlines -----------------------------------------------------------------------------

    def expire_deadline(self, key: TimerKey, due_ms: int, turn: Turn) -> None:
        group = self.by_id[key.group_id]
        member = group.members[key.member_id]
        turn = make_group_turn(self._topics().group_settings(key.group_id), turn)
        if key.timer is Timer.CONSUMER_SESSION and sessions.excuse_stall(key, due_ms, member, turn):
            return
        self.remove(group, [member], turn)
