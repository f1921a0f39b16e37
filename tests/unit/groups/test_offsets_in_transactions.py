"""Offsets that are committed in transactions: pending until the marker, and what holds meanwhile."""

from collections.abc import Hashable, Sequence
from typing import Any

import pytest

from distributedlog.groups.machine import GroupMachine
from distributedlog.groups.records import GroupRecord, record_key
from distributedlog.groups.requests import (
    CommitReply,
    CommitRequest,
    CommittedOffset,
    DeleteGroupRequest,
    FetchOffsetsReply,
    FetchOffsetsRequest,
    ForgetTopicsRequest,
    JoinRequest,
    Request,
    TransactionalCommitRequest,
)
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition
from distributedlog.statemachine import Context, PendingTransactions, Producer, Result, TransactionEnd
from tests.unit.groups.stage import GROUP, NO_DELAY, RANGE, WALL_MS

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
FIRST, SECOND = Producer(1, 0), Producer(2, 0)


def key_of(record: GroupRecord) -> Hashable:
    return record_key(record)


class Stage:
    """A machine with what its runtime holds of open transactions."""

    def __init__(self) -> None:
        self.wall_ms = WALL_MS
        self.now_ms = 0
        self.machine = GroupMachine(NO_DELAY, lambda prefix: f"{prefix}-1", lambda: self.wall_ms)
        self.pending: PendingTransactions[GroupRecord] = PendingTransactions(key_of)
        self.offset = 0
        self.machine.activated(self._context())

    def _context(self) -> Context:
        return Context(self.now_ms, self.offset, 0, self.pending)

    def ask(self, request: Request) -> object:
        result = self.machine.handle(request, self._context())
        self._replay(result)
        return result.response

    def _replay(self, result: Result[GroupRecord, Any, Any]) -> None:
        if result.transaction is not None:
            self.pending.hold(result.records, result.transaction)
        elif result.records:
            self.pending.supersede(result.records)
            self.machine.replay(result.records, self.offset)
        self.offset += 1

    def error(self, request: Request) -> ErrorCode:
        try:
            self.ask(request)
        except DlogError as error:
            return error.code
        return ErrorCode.NONE

    def tick(self, now_ms: int) -> Sequence[GroupRecord]:
        self.now_ms = now_ms
        result = self.machine.tick(self._context())
        self._replay(result)
        return result.records

    def commit(self, offset: int, producer: Producer = FIRST, *, partition: TopicPartition = T0) -> object:
        return self.ask(TransactionalCommitRequest(commit_of(offset, partition=partition), producer))

    def end(self, producer: Producer = FIRST, *, commit: bool = True) -> None:
        self.machine.replay(self.pending.end(TransactionEnd(producer, commit)), self.offset)
        self.offset += 1

    def fetch(self, *, stable: bool = False, partitions: tuple[TopicPartition, ...] | None = None) -> object:
        return self.ask(FetchOffsetsRequest(GROUP, partitions, requires_stable=stable))

    @property
    def committed(self) -> list[int]:
        reply = self.fetch()
        assert isinstance(reply, FetchOffsetsReply)
        return [each.offset for each in reply.offsets]


def commit_of(
    offset: int,
    *,
    partition: TopicPartition = T0,
    member_id: str = "",
    instance_id: str | None = None,
    generation: int = -1,
) -> CommitRequest:
    committed = CommittedOffset(partition, offset, -1, "")
    return CommitRequest(GROUP, member_id, instance_id, generation, (committed,))


def test_they_count_from_the_marker_on() -> None:
    stage = Stage()
    stage.ask(commit_of(5))
    assert stage.commit(10) == CommitReply((ErrorCode.NONE,))
    assert stage.committed == [5]
    stage.end()
    assert stage.committed == [10]


def test_those_of_a_removed_topic_do_not_come_back_with_the_marker() -> None:
    stage = Stage()
    stage.commit(10)
    stage.ask(ForgetTopicsRequest(frozenset({T0.topic})))
    stage.end()
    assert stage.committed == []


def test_an_aborted_transaction_leaves_the_one_before() -> None:
    stage = Stage()
    stage.ask(commit_of(5))
    stage.commit(10)
    stage.end(commit=False)
    assert stage.committed == [5]


def test_who_requires_stable_offsets_hears_which_are_not() -> None:
    stage = Stage()
    stage.ask(commit_of(5))
    stage.ask(commit_of(6, partition=T1))
    stage.commit(10)
    expected = FetchOffsetsReply((CommittedOffset(T1, 6, -1, ""),), frozenset({T0}))
    assert stage.fetch(stable=True) == expected
    assert stage.fetch(stable=True, partitions=(T0, T1)) == expected
    stage.end(commit=False)
    assert stage.fetch(stable=True, partitions=(T0,)) == FetchOffsetsReply((CommittedOffset(T0, 5, -1, ""),))


def test_an_offset_is_unstable_while_any_transaction_holds_one() -> None:
    stage = Stage()
    stage.commit(10, FIRST)
    stage.commit(20, SECOND)
    stage.end(FIRST)
    assert stage.fetch(stable=True, partitions=(T0,)) == FetchOffsetsReply((), frozenset({T0}))
    stage.end(SECOND)
    assert stage.fetch(stable=True) == FetchOffsetsReply((CommittedOffset(T0, 20, -1, ""),))


def test_a_group_with_offsets_in_an_open_transaction_is_not_deleted() -> None:
    stage = Stage()
    stage.ask(commit_of(5))
    stage.commit(10)
    assert stage.error(DeleteGroupRequest(GROUP)) is ErrorCode.NON_EMPTY_GROUP
    stage.end()
    assert stage.error(DeleteGroupRequest(GROUP)) is ErrorCode.NONE


def test_offsets_do_not_expire_while_a_transaction_of_their_group_is_open() -> None:
    stage = Stage()
    stage.ask(commit_of(5))
    stage.commit(10)
    stage.wall_ms += 2 * NO_DELAY.offsets_retention_ms
    assert stage.tick(NO_DELAY.offsets_retention_check_ms) == []
    stage.end(commit=False)
    assert len(stage.tick(2 * NO_DELAY.offsets_retention_check_ms)) == 1
    assert stage.committed == []


# --- who may ----------------------------------------------------------------------------------


def join(stage: Stage) -> str:
    """One member, in generation 1, which has no assignments yet."""
    request = JoinRequest(
        GROUP, "", None, "c", "/h", 10_000, 60_000, "consumer", RANGE, 1, must_know_id=False
    )
    stage.ask(request)
    (member_id,) = stage.machine.groups[GROUP].members
    stage.tick(0)
    assert stage.machine.groups[GROUP].generation == 1
    return member_id


@pytest.mark.parametrize(
    ("member", "generation", "expected"),
    [
        (True, 1, ErrorCode.NONE),
        (True, 0, ErrorCode.ILLEGAL_GENERATION),
        (True, 2, ErrorCode.ILLEGAL_GENERATION),
        (False, 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_member_commits_in_its_generation_alone(member: bool, generation: int, expected: ErrorCode) -> None:
    stage = Stage()
    member_id = join(stage)
    commit = commit_of(5, member_id=member_id if member else "zombie", generation=generation)
    assert stage.error(TransactionalCommitRequest(commit, FIRST)) is expected


def test_a_client_that_says_nothing_of_its_membership_is_taken_at_its_word() -> None:
    stage = Stage()
    join(stage)
    assert stage.error(TransactionalCommitRequest(commit_of(5), FIRST)) is ErrorCode.NONE


def test_a_generation_of_a_group_that_is_not_there_is_refused() -> None:
    commit = commit_of(5, member_id="m", generation=3)
    assert Stage().error(TransactionalCommitRequest(commit, FIRST)) is ErrorCode.ILLEGAL_GENERATION


def test_metadata_that_is_too_long_is_refused_by_itself() -> None:
    stage = Stage()
    long = CommittedOffset(T1, 1, -1, "x" * (NO_DELAY.offset_metadata_bytes_max + 1))
    commit = commit_of(5)
    commit = commit._replace(offsets=(*commit.offsets, long))
    reply = stage.ask(TransactionalCommitRequest(commit, FIRST))
    assert reply == CommitReply((ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE))
