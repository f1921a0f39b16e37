"""All consumer groups of a coordinator: what is asked of them, their deadlines, and their records.

DURABLE: the groups.  SOFT STATE: members' deadlines; since when a group is empty, as far as this coordinator
knows; which topics each group was last looked at with; what patterns stand for.

A turn works on a draft, checks that its records fit one entry, and only then touches deadlines and the
classic groups: until there it may fail and nothing has happened.

A name belongs to a classic group or to a consumer group, never to both (see `moving`).
"""

from collections.abc import Callable, Iterator, Mapping

from distributedlog.groups.classic import rebalance
from distributedlog.groups.classic.group import ClassicGroup, GroupState, record_of
from distributedlog.groups.consumer import classic_members, describing, heartbeat, leaving, moving, sessions
from distributedlog.groups.consumer.group import ConsumerGroup, Draft
from distributedlog.groups.consumer.member import IS_AWAY, JOINS, LEAVES, Member
from distributedlog.groups.consumer.patterns import Patterns
from distributedlog.groups.consumer.planning import Sight
from distributedlog.groups.consumer.settings import turn_under
from distributedlog.groups.consumer.topics import Topics
from distributedlog.groups.records import ConsumerRecord, GroupRecord, size_bound
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


class ConsumerGroups:
    def __init__(
        self,
        topics: Callable[[], Topics],
        new_id: NewId,
        classics: dict[str, ClassicGroup],
        stored: Mapping[str, GroupMetadataValue],
    ) -> None:
        """`classics` are the live classic groups, `stored` what the log says of them."""
        self.by_id: dict[str, ConsumerGroup] = {}
        self._topics = topics
        self._new_id = new_id
        self._classics = classics
        self._stored = stored
        self._patterns = Patterns()
        self._seen: dict[str, object] = {}
        """By group: the mark of the topics that it was last looked at with."""
        self._empty_since_ms: dict[str, int] = {}

    # --- the log -------------------------------------------------------------------------------

    def replay(self, record: ConsumerRecord) -> None:
        key, value = record
        group_id: str = key.group_id  # type: ignore[attr-defined]  # every kind has it
        if value is None and isinstance(key, ConsumerGroupMetadataKey):
            self.by_id.pop(group_id, None)
            self._seen.pop(group_id, None)
            self._empty_since_ms.pop(group_id, None)
            return
        group = self.by_id.get(group_id)
        if group is None:
            if value is None:
                return
            group = self.by_id[group_id] = ConsumerGroup(group_id)
        group.replay(record)

    def records(self) -> Iterator[ConsumerRecord]:
        for group in self.by_id.values():
            yield from group.records()

    def activated(self, turn: Turn) -> None:
        topics = self._topics()
        for group in self.by_id.values():
            if not group.members:
                self._empty_since_ms[group.group_id] = turn.wall_ms
            own = turn_under(topics.group_settings(group.group_id), turn)
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
        """By the wall clock, and not before this coordinator took over: no record says it."""
        return self._empty_since_ms.get(group_id, 0)

    def sight(self) -> Sight:
        return Sight(self._topics(), self._patterns)

    # --- ConsumerGroupHeartbeat ----------------------------------------------------------------

    def heartbeat(self, request: ConsumerHeartbeatRequest, turn: Turn) -> ConsumerHeartbeatReply:
        heartbeat.check_request(request, turn.config)
        sight = self.sight()
        turn = turn_under(sight.topics.group_settings(request.group_id), turn)
        if request.epoch in (LEAVES, IS_AWAY):
            return self._leave(request, turn)
        group = self.by_id.get(request.group_id)
        if group is not None and self._seen.get(group.group_id) is sight.topics.mark:
            quiet = heartbeat.nothing_new(group, request)
            if quiet is not None:
                sessions.keep_alive(group.group_id, quiet, turn)
                return heartbeat.reply_to(request, quiet, quiet, turn.config)
        return self._beat(request, sight, turn)

    def _beat(self, request: ConsumerHeartbeatRequest, sight: Sight, turn: Turn) -> ConsumerHeartbeatReply:
        if request.epoch == JOINS and not request.member_id:
            request = request._replace(member_id=self._new_id(request.client_id[:ID_PREFIX_LENGTH_MAX]))
        draft, moved_from = self._draft(request, sight, turn)
        before = draft.members.get(request.member_id)
        ids_before = set(draft.members)
        member = heartbeat.beat(draft, request, sight, turn)
        self._finish(draft, moved_from, turn)
        for gone in ids_before - set(draft.members):
            sessions.forget(draft.group_id, gone, turn)
        if before is not None and before.classic is not None:
            sessions.forget(draft.group_id, before.member_id, turn)
        self._seen[draft.group_id] = sight.topics.mark
        sessions.keep_alive(draft.group_id, member, turn)
        sessions.watch_revocation(draft.group_id, before, member, turn)
        return heartbeat.reply_to(request, before, member, turn.config)

    def _draft(
        self, request: ConsumerHeartbeatRequest, sight: Sight, turn: Turn
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
        return moving.upgraded(classic, sight.topics), classic

    def _finish(self, draft: Draft, moved_from: ClassicGroup | None, turn: Turn) -> None:
        """From here on nothing fails."""
        written: list[GroupRecord] = list(draft.records)
        if moved_from is not None and moved_from.group_id in self._stored:
            written.insert(0, moving.without_classic(moved_from.group_id))
        turn.check_fits(written)
        turn.records += written
        if moved_from is not None:
            moving.retire(moved_from, turn)
            del self._classics[moved_from.group_id]
            for member in draft.members.values():
                sessions.keep_alive(draft.group_id, member, turn)

    # --- leaving -------------------------------------------------------------------------------

    def _leave(self, request: ConsumerHeartbeatRequest, turn: Turn) -> ConsumerHeartbeatReply:
        group = self.by_id.get(request.group_id)
        if group is None:
            raise GroupNotFoundError(f"there is no consumer group {request.group_id!r}")
        member = heartbeat.member_named(group, request.member_id, request.instance_id)
        if request.epoch == IS_AWAY:
            draft = Draft(group)
            away = heartbeat.go_away(draft, member)
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
        sight = self.sight()
        if moving.may_downgrade(group, ids, turn):
            classic = moving.downgraded(group, ids, sight.topics, turn.wall_ms)
            if self._downgrade(group, classic, turn):
                rebalance.prepare(classic, turn)
                return
        draft = Draft(group)
        leaving.remove(draft, ids, sight)
        if refusable:
            turn.check_fits(draft.records)
        turn.records += draft.records
        for member_id in ids:
            sessions.forget(group.group_id, member_id, turn)
        if not draft.members:
            self._empty_since_ms[group.group_id] = turn.wall_ms

    def _downgrade(self, group: ConsumerGroup, classic: ClassicGroup, turn: Turn) -> bool:
        """Whether the one could be put in the place of the other: all of it has to fit one entry."""
        written: list[GroupRecord] = [*moving.whole(group), record_of(classic)]
        if sum(size_bound(record) for record in written) > turn.config.entry_bytes_max:
            return False
        turn.records += written
        for member_id in group.members:
            sessions.forget(group.group_id, member_id, turn)
        self._classics[group.group_id] = classic
        for member in classic.members.values():
            rebalance.keep_alive(classic, member, turn)
        return True

    # --- classic clients -----------------------------------------------------------------------

    def join(self, group: ConsumerGroup, request: JoinRequest, turn: Turn) -> JoinReply:
        new_id = self._new_id((request.instance_id or request.client_id)[:ID_PREFIX_LENGTH_MAX])
        if not request.member_id and request.instance_id is None and request.must_know_id:
            classic_members.check_protocols(group, request)
            return JoinReply(new_id, ErrorCode.MEMBER_ID_REQUIRED)
        sight = self.sight()
        draft = Draft(group)
        member = classic_members.join(draft, request, new_id, sight, turn)
        takes_last_place = len(draft.members) == len(group.members) == draft.group.classic_count
        if takes_last_place and group.classic_count < len(group.members):
            reply = self._downgrade_by(group, draft, member, sight, turn)
            if reply is not None:
                return reply
        self._finish(draft, None, turn)
        for gone in set(group.members) - set(draft.members):
            sessions.forget(group.group_id, gone, turn)
        self._seen[group.group_id] = sight.topics.mark
        sessions.keep_alive(group.group_id, member, turn)
        sessions.rejoined(group.group_id, member, turn)
        return classic_members.reply_to_join(member)

    def _downgrade_by(
        self, group: ConsumerGroup, draft: Draft, member: Member, sight: Sight, turn: Turn
    ) -> JoinReply | None:
        """A classic process took the place of the last static member of the new protocol: nobody has to join
        again for that."""
        if not moving.may_downgrade(draft.group, frozenset(), turn):
            return None
        classic = moving.downgraded(draft.group, frozenset(), sight.topics, turn.wall_ms)
        if not self._downgrade(group, classic, turn):
            return None
        return classic_members.reply_to_join(member)._replace(protocol=classic.protocol)

    def make_room(self, group: ConsumerGroup, turn: Turn) -> None:
        """An empty consumer group goes, for a classic one of its name is to come."""
        turn.records += moving.whole(group)

    def leave(self, group: ConsumerGroup, request: LeaveRequest, turn: Turn) -> LeaveReply:
        errors, going = [], {}
        for who in request.leavers:
            try:
                member = classic_members.leaver(group, who)
            except DlogError as error:
                errors.append(error.code)
                continue
            errors.append(ErrorCode.UNKNOWN_MEMBER_ID if member.member_id in going else ErrorCode.NONE)
            going[member.member_id] = member
        if going:
            self.remove(group, list(going.values()), turn, refusable=True)
        return LeaveReply(tuple(errors))

    # --- deadlines -----------------------------------------------------------------------------

    def deadline_over(self, key: TimerKey, due_ms: int, turn: Turn) -> None:
        group = self.by_id[key.group_id]
        member = group.members[key.member_id]
        turn = turn_under(self._topics().group_settings(key.group_id), turn)
        if key.timer is Timer.CONSUMER_SESSION and sessions.is_excused(key, due_ms, member, turn):
            return
        self.remove(group, [member], turn)
