"""Requests about committed offsets, and their expiry.

Who may commit:

| the group           | a member of its generation  | somebody in no generation (generation -1, no id)  |
|---------------------|-----------------------------|---------------------------------------------------|
| not known           | GROUP_ID_NOT_FOUND; below   | yes: a consumer that assigns itself               |
|                     | version 9 ILLEGAL_GENERATION|                                                   |
| with offsets alone  | UNKNOWN_MEMBER_ID           | yes                                               |
| Empty               | UNKNOWN_MEMBER_ID           | yes: that, or an administrator                    |
| PreparingRebalance  | yes: before it joins again  | UNKNOWN_MEMBER_ID                                 |
| CompletingRebalance | REBALANCE_IN_PROGRESS       | UNKNOWN_MEMBER_ID                                 |
| Stable              | yes                         | UNKNOWN_MEMBER_ID                                 |

A member of another generation gets ILLEGAL_GENERATION, a fenced instance FENCED_INSTANCE_ID: what it read
may be another's by now.  In a generation whose assignments are not made yet nobody owns anything, so nobody
commits.

Members of consumer groups: see `consumer.offset_checks`.

In a transaction (TxnOffsetCommit) a member commits as above, but in CompletingRebalance too, for its
generation is the present one; and somebody in no generation commits in any state, as clients do that do not
say who they are.  What is committed so is pending until the transaction's marker (`statemachine.pending`):

| the marker is    | what becomes of the offset                  | who requires stable offsets meanwhile     |
|------------------|---------------------------------------------|-------------------------------------------|
| not there yet    | pending; others see the one before          | hears that it is unstable                 |
| COMMIT           | the committed one, unless a later one stands|                                           |
|                  | in the log                                  |                                           |
| ABORT            | gone                                        |                                           |

Expiry looks at Empty groups only, a part of them each time, and at none with pending offsets.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from distributedlog.groups.classic.group import ClassicGroup, GroupState
from distributedlog.groups.classic.rebalance import keep_alive
from distributedlog.groups.committed_offsets import (
    CommittedOffsets,
    has_expired,
    make_offset_records,
    make_offset_tombstone,
)
from distributedlog.groups.consumer.groups import ConsumerGroups
from distributedlog.groups.consumer.offset_checks import check_commit as check_consumer_commit
from distributedlog.groups.directory import Directory, write_some
from distributedlog.groups.records import OffsetRecord, utf8_bytes
from distributedlog.groups.requests import (
    NO_MEMBER,
    PART_DONE,
    CommitReply,
    CommitRequest,
    CommittedOffset,
    DeleteOffsetsReply,
    DeleteOffsetsRequest,
    FetchOffsetsReply,
    FetchOffsetsRequest,
    ForgetTopicsRequest,
    MergedCommitReply,
    MergedCommitRequest,
    PartDone,
    TransactionalCommitRequest,
)
from distributedlog.groups.turn import Turn
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import (
    CommitTooLargeError,
    DlogError,
    GroupNotFoundError,
    IllegalGenerationError,
    NonEmptyGroupError,
    RebalanceInProgressError,
    StaleMemberEpochError,
    UnknownMemberError,
)

EXPIRY_GROUPS_MAX: Final = 1000
"""Looked at in one turn."""
EXPIRY_AGAIN_MS: Final = 100
# Looked up once: an enum's members are slow to reach.
_TAKEN: Final = ErrorCode.NONE
_TOO_LARGE: Final = ErrorCode.OFFSET_METADATA_TOO_LARGE


class OffsetManager:
    def __init__(
        self,
        groups: dict[str, ClassicGroup],
        directory: Directory,
        offsets: CommittedOffsets,
        consumers: ConsumerGroups,
    ) -> None:
        self._consumers = consumers
        self._groups = groups
        self._directory = directory
        self._offsets = offsets
        self._to_look_at: list[str] = []
        """Groups that the present round of expiry has still to come to."""

    # --- committing ----------------------------------------------------------------------------

    def commit(self, request: CommitRequest, turn: Turn) -> CommitReply:
        reply, records = self._commit(request, turn)
        turn.check_fits(records, error=CommitTooLargeError)
        turn.records += records
        return reply

    def commit_all(self, request: MergedCommitRequest, turn: Turn) -> MergedCommitReply:
        """Each is judged by itself; whoever puts them together sees to it that they fit."""
        replies: list[CommitReply | DlogError] = []
        records: list[OffsetRecord] = []
        for each in request.commits:
            try:
                reply, written = self._commit(each, turn)
            except DlogError as refusal:
                replies.append(refusal)
            else:
                replies.append(reply)
                records += written
        turn.check_fits(records, error=CommitTooLargeError)
        turn.records += records
        return MergedCommitReply(tuple(replies))

    def _commit(self, request: CommitRequest, turn: Turn) -> tuple[CommitReply, list[OffsetRecord]]:
        group_id = request.group_id
        group = self._groups.get(group_id)
        consumer = self._consumers.by_id.get(group_id)
        if consumer is not None:
            check_consumer_commit(consumer, request)
        elif group is None:
            if request.generation >= 0:
                raise self._make_refusal(request)
            self._directory.check_room(group_id, turn)
        else:
            _check_commit(group, request, turn)
        return self._take(request, turn)

    def _take(self, request: CommitRequest, turn: Turn) -> tuple[CommitReply, list[OffsetRecord]]:
        """Takes the offsets that may be taken, of whom may commit."""
        offsets: Sequence[CommittedOffset] = request.offsets
        bytes_max = turn.config.offset_metadata_bytes_max
        errors = tuple(
            [_TOO_LARGE if text and utf8_bytes(text) > bytes_max else _TAKEN for *_, text in offsets]
        )
        if _TOO_LARGE in errors:
            offsets = [each for each, error in zip(offsets, errors, strict=True) if error is _TAKEN]
        return CommitReply(errors), make_offset_records(request, offsets, turn.wall_ms)

    def commit_in_transaction(self, request: TransactionalCommitRequest, turn: Turn) -> CommitReply:
        """Writes offsets that count when their transaction is committed."""
        commit = request.commit
        try:
            self._check_in_transaction(commit, turn)
        except StaleMemberEpochError as error:  # which TxnOffsetCommit has no code for
            raise IllegalGenerationError(str(error)) from error
        reply, records = self._take(commit, turn)
        turn.check_fits(records, error=CommitTooLargeError)
        turn.records += records
        turn.transaction = request.producer
        return reply

    def _check_in_transaction(self, request: CommitRequest, turn: Turn) -> None:
        group_id = request.group_id
        group, consumer = self._groups.get(group_id), self._consumers.by_id.get(group_id)
        if group is None and consumer is None:
            if request.generation >= 0:
                raise IllegalGenerationError(f"group {group_id!r} is in no generation")
            self._directory.check_room(group_id, turn)
        elif is_outsider(request):
            return  # clients before TxnOffsetCommit 3 say nothing of their membership
        elif consumer is not None:
            check_consumer_commit(consumer, request)
        elif group is not None and not (request.generation < 0 and group.state is GroupState.EMPTY):
            group.check_member(request.member_id, request.instance_id, request.generation)

    def fetch(self, request: FetchOffsetsRequest, turn: Turn) -> FetchOffsetsReply:
        group_id = request.group_id
        offsets = tuple(self._offsets.fetch(group_id, request.partitions))
        if not request.requires_stable or not turn.pending:
            return FetchOffsetsReply(offsets)
        named = request.partitions
        if named is None:
            named = tuple(each.partition for each in offsets)
        unstable = frozenset(each for each in named if turn.is_unstable(group_id, each))
        if unstable:
            offsets = tuple(each for each in offsets if each.partition not in unstable)
        return FetchOffsetsReply(offsets, unstable)

    def _make_refusal(self, request: CommitRequest) -> DlogError:
        """Makes the error for a member of a group that has none: it only has offsets, or is not there."""
        if self._directory.has(request.group_id):
            return UnknownMemberError(f"group {request.group_id!r} has no members")
        if request.knows_epochs:
            return GroupNotFoundError(f"there is no group {request.group_id!r}")
        return IllegalGenerationError(f"group {request.group_id!r} is in no generation")

    # --- deleting ------------------------------------------------------------------------------

    def delete(self, request: DeleteOffsetsRequest, turn: Turn) -> DeleteOffsetsReply:
        group_id = request.group_id
        if not self._directory.has(group_id):
            raise GroupNotFoundError(f"there is no group {group_id!r}")
        group = self._groups.get(group_id)
        read_topics: frozenset[str] = frozenset()
        if group is not None and group.state is not GroupState.EMPTY:
            found = group.subscribed_topics()
            if found is None:
                raise NonEmptyGroupError(
                    f"group {group_id!r} has members, and it is not known what they read"
                )
            read_topics = found
        consumer = self._consumers.by_id.get(group_id)
        if consumer is not None:
            read_topics = consumer.subscribed_topics()
        stored = self._offsets.of(group_id)
        errors = []
        records = []
        for partition in request.partitions:
            if partition.topic in read_topics:
                errors.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
                continue
            errors.append(ErrorCode.NONE)
            if partition in stored:
                records.append(make_offset_tombstone(group_id, partition))
        turn.check_fits(records, error=CommitTooLargeError)
        turn.records += records
        if records and len({each.partition for each in records}) == len(stored):
            self._keep_listed(group_id, turn)
        return DeleteOffsetsReply(tuple(errors))

    def forget_topics(self, request: ForgetTopicsRequest, turn: Turn) -> PartDone | None:
        for group_id in list(self._offsets.groups()):
            if all(partition.topic in request.topics for partition in self._offsets.of(group_id)):
                self._keep_listed(group_id, turn)
        return None if write_some(turn, self._of_topics(request.topics, turn)) else PART_DONE

    def _keep_listed(self, group_id: str, turn: Turn) -> None:
        """A group that only had committed offsets is Empty without them, as in Kafka, and listed until it is
        deleted or its retention is looked at.  Soft: another coordinator does not know it."""
        if group_id not in self._groups and group_id not in self._consumers.by_id:
            self._groups[group_id] = ClassicGroup(group_id, turn.wall_ms)

    def _of_topics(self, topics: frozenset[str], turn: Turn) -> Iterator[OffsetRecord]:
        for each in list(turn.pending.records()):  # a tombstone supersedes what a transaction holds
            if isinstance(each, OffsetRecord) and each.partition.topic in topics:
                yield make_offset_tombstone(each.group_id, each.partition)
        for group_id in self._offsets.groups():
            for partition in self._offsets.of(group_id):
                if partition.topic in topics:
                    yield make_offset_tombstone(group_id, partition)

    # --- expiring ------------------------------------------------------------------------------

    def expire(self, turn: Turn) -> int:
        """A part of a round; when to go on."""
        if not self._to_look_at:
            self._to_look_at = list(
                dict.fromkeys([*self._offsets.groups(), *self._groups, *self._consumers.by_id])
            )
        in_transactions = turn.groups_in_transactions()
        for _ in range(min(EXPIRY_GROUPS_MAX, len(self._to_look_at))):
            group_id = self._to_look_at[-1]
            if group_id not in in_transactions and not self._expire_group(group_id, turn):
                break
            self._to_look_at.pop()
        return EXPIRY_AGAIN_MS if self._to_look_at else turn.config.offsets_retention_check_ms

    def _expire_group(self, group_id: str, turn: Turn) -> bool:
        """Returns whether all was done that there is to do for it."""
        group = self._groups.get(group_id)
        if group is not None and (group.state is not GroupState.EMPTY or group.pending):
            return True
        consumer = self._consumers.by_id.get(group_id)
        if consumer is not None and consumer.members:
            return True
        empty_since_ms = self._consumers.empty_since_ms(group_id) if group is None else group.state_since_ms
        stored = self._offsets.of(group_id)
        retention_ms = turn.config.offsets_retention_ms
        expired = [
            partition
            for partition, committed in stored.items()
            if has_expired(committed, empty_since_ms, turn.wall_ms, retention_ms)
        ]
        if not write_some(turn, (make_offset_tombstone(group_id, each) for each in expired)):
            return False
        if len(expired) == len(stored):
            self._directory.remove_group(group_id, turn)
        return True


def is_outsider(request: CommitRequest) -> bool:
    """Returns whether a request is from somebody in no generation, and no member."""
    return request.generation < 0 and request.member_id == NO_MEMBER and request.instance_id is None


def _check_commit(group: ClassicGroup, request: CommitRequest, turn: Turn) -> None:
    if request.generation < 0 and group.state is GroupState.EMPTY:
        return
    if is_outsider(request):
        raise UnknownMemberError(f"group {group.group_id!r} has members: only they may commit")
    member = group.check_member(request.member_id, request.instance_id, request.generation)
    if group.state is GroupState.COMPLETING:
        raise RebalanceInProgressError(f"group {group.group_id!r} has no assignments yet")
    keep_alive(group, member, turn)
