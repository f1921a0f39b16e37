import pytest

from distributedlog.groups.config import GroupConfig
from distributedlog.groups.requests import (
    CommitReply,
    CommitRequest,
    CommittedOffset,
    DeleteGroupRequest,
    DeleteOffsetsReply,
    DeleteOffsetsRequest,
    DescribeReply,
    DescribeRequest,
    FetchOffsetsReply,
    FetchOffsetsRequest,
    ForgetTopicsRequest,
    ListReply,
    ListRequest,
    MergedCommitReply,
    MergedCommitRequest,
    PartDone,
    SupportedProtocol,
)
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition
from tests.unit.groups.stage import GROUP, NO_DELAY, SESSION_MS, Stage

T0 = TopicPartition("t", 0)
RETENTION_MS = NO_DELAY.offsets_retention_ms
CHECK_MS = NO_DELAY.offsets_retention_check_ms


def test_a_position_is_given_back_with_all_that_was_said_of_it() -> None:
    stage = Stage()
    assert stage.commit(42) is ErrorCode.NONE
    reply = stage.ask(FetchOffsetsRequest(GROUP, (T0, TopicPartition("t", 1))))
    assert reply == FetchOffsetsReply((CommittedOffset(T0, 42, 5, "why"),))


def test_nobody_reads_a_position_before_it_is_committed() -> None:
    stage = Stage(commits=False)
    position = CommittedOffset(T0, 42, -1, "")
    committing = stage.begin(CommitRequest(GROUP, "", None, -1, (position,)))
    reading = stage.begin(FetchOffsetsRequest(GROUP, None))
    assert stage.answers == {}
    stage.settle(commit=True)
    assert stage.answers[committing] == CommitReply((ErrorCode.NONE,))
    assert stage.answers[reading] == FetchOffsetsReply((position,))


def test_positions_are_there_after_a_failover() -> None:
    stage = Stage()
    stage.commit(1)
    stage.commit(2, partition=1)
    stage.commit(3)
    stage.failover()
    assert stage.committed() == {T0: 3, TopicPartition("t", 1): 2}


# --- who may commit: the table of `positions` --------------------------------------------------


def test_a_group_that_is_not_known_takes_commits_of_those_who_assign_themselves() -> None:
    stage = Stage()
    assert stage.commit(1, "m", 0) is ErrorCode.GROUP_ID_NOT_FOUND
    assert stage.commit(1) is ErrorCode.NONE
    assert stage.commit(1, "m", 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.commit(1, "", 0) is ErrorCode.UNKNOWN_MEMBER_ID


def test_in_an_empty_group_an_administrator_commits_and_a_former_member_does_not() -> None:
    stage = Stage()
    (member,) = stage.stable(None)
    stage.leave(member)
    assert stage.commit(1, member, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.commit(1) is ErrorCode.NONE


def test_in_a_stable_group_only_members_of_the_generation_commit() -> None:
    stage = Stage()
    (member,) = stage.stable(None)
    assert stage.commit(1, member, 1) is ErrorCode.NONE
    assert stage.commit(2, member, 0) is ErrorCode.ILLEGAL_GENERATION
    assert stage.commit(2, member, 2) is ErrorCode.ILLEGAL_GENERATION
    assert stage.commit(2, "stranger", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.commit(2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.commit(2, member, 1, instance="i") is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.committed() == {T0: 1}


def test_before_they_join_again_members_commit_what_they_have_read() -> None:
    stage = Stage()
    (member,) = stage.stable(None)
    stage.join()
    assert stage.commit(1, member, 1) is ErrorCode.NONE
    assert stage.commit(2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_in_a_generation_without_assignments_nobody_commits() -> None:
    stage = Stage()
    member = stage.join().joined.member_id
    assert stage.commit(1, member, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert stage.commit(1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.committed() == {}


def test_a_commit_is_a_sign_of_life() -> None:
    stage = Stage()
    (member,) = stage.stable(None)
    for _ in range(3):
        stage.advance(SESSION_MS - 1)
        assert stage.commit(1, member, 1) is ErrorCode.NONE


# --- several together --------------------------------------------------------------------------


def commit_of(offset: int, member_id: str = "", generation: int = -1, partition: int = 0) -> CommitRequest:
    position = CommittedOffset(TopicPartition("t", partition), offset, 5, "why")
    return CommitRequest(GROUP, member_id, None, generation, (position,))


def test_commits_that_are_put_together_are_judged_one_by_one_and_are_one_entry() -> None:
    stage = Stage()
    (member,) = stage.stable(None)
    entries = len(stage.log.entries)
    taken = [commit_of(at, member, 1, partition=at % 2) for at in range(4)]
    fenced, outsider = commit_of(9, member, 7), commit_of(9)
    reply = stage.ask(MergedCommitRequest((*taken[:2], fenced, outsider, *taken[2:])))
    assert isinstance(reply, MergedCommitReply)
    codes = [each.code if isinstance(each, DlogError) else each.errors for each in reply.replies]
    done = (ErrorCode.NONE,)
    assert codes == [done, done, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, done, done]
    assert len(stage.log.entries) == entries + 1
    assert stage.committed() == {T0: 2, TopicPartition("t", 1): 3}


def test_commits_that_are_all_refused_write_nothing() -> None:
    stage = Stage()
    (member,) = stage.stable(None)
    entries = len(stage.log.entries)
    reply = stage.ask(MergedCommitRequest((commit_of(9, member, 7), commit_of(9))))
    assert isinstance(reply, MergedCommitReply)
    assert all(isinstance(each, DlogError) for each in reply.replies)
    assert len(stage.log.entries) == entries


def test_together_commits_do_not_become_larger_than_an_entry_may_be() -> None:
    stage = Stage(GroupConfig(entry_bytes_max=500))
    commits = tuple(commit_of(1, partition=at) for at in range(10))
    assert stage.code_of(MergedCommitRequest(commits)) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert stage.committed() == {}


# --- bounds ------------------------------------------------------------------------------------


def test_metadata_that_are_too_long_are_refused_for_their_partition_alone() -> None:
    stage = Stage(GroupConfig(offset_metadata_bytes_max=4))
    positions = (CommittedOffset(T0, 1, -1, "ÄÄÄ"), CommittedOffset(TopicPartition("t", 1), 2, -1, "1234"))
    reply = stage.ask(CommitRequest(GROUP, "", None, -1, positions))
    assert reply == CommitReply((ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE))
    assert stage.committed() == {TopicPartition("t", 1): 2}


def test_more_than_an_entry_holds_is_refused_as_a_whole() -> None:
    stage = Stage(GroupConfig(entry_bytes_max=500))
    positions = tuple(CommittedOffset(TopicPartition("t", at), 1, -1, "") for at in range(10))
    assert (
        stage.code_of(CommitRequest(GROUP, "", None, -1, positions)) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    )
    assert stage.committed() == {}


# --- deleting ----------------------------------------------------------------------------------


def delete(stage: Stage, *topics: str) -> list[ErrorCode]:
    partitions = tuple(TopicPartition(topic, 0) for topic in topics)
    reply = stage.ask(DeleteOffsetsRequest(GROUP, partitions))
    assert isinstance(reply, DeleteOffsetsReply)
    return list(reply.errors)


def test_positions_of_topics_that_are_read_are_not_deleted() -> None:
    stage = Stage()
    (member,) = stage.stable(None)
    for topic in ("t", "u"):
        stage.commit(1, member, 1, topic=topic)
    assert delete(stage, "t", "u", "v") == [
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.NONE,
        ErrorCode.NONE,
    ]
    assert stage.committed() == {T0: 1}
    stage.failover()
    assert stage.committed() == {T0: 1}


def test_nothing_is_deleted_where_it_is_not_known_what_members_read() -> None:
    stage = Stage()
    stage.join(protocol_type="connect", protocols=(SupportedProtocol("p", b"?"),))
    request = DeleteOffsetsRequest(GROUP, (T0,))
    assert stage.code_of(request) is ErrorCode.NON_EMPTY_GROUP
    assert stage.code_of(request._replace(group_id="other")) is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_is_deleted_with_its_positions_when_it_has_no_members() -> None:
    stage = Stage()
    (member,) = stage.stable(None)
    stage.commit(1, member, 1)
    assert stage.code_of(DeleteGroupRequest(GROUP)) is ErrorCode.NON_EMPTY_GROUP
    stage.leave(member)
    assert stage.code_of(DeleteGroupRequest(GROUP)) is ErrorCode.NONE
    assert stage.code_of(DeleteGroupRequest(GROUP)) is ErrorCode.GROUP_ID_NOT_FOUND
    for _ in range(2):
        assert stage.committed() == {}
        assert list(stage.machine.durable_records()) == []
        stage.failover()


def test_a_group_with_many_positions_goes_in_parts() -> None:
    stage = Stage(GroupConfig(entry_bytes_max=1_000))
    for at in range(20):
        stage.commit(at, partition=at)
    parts = 0
    while isinstance(stage.ask(DeleteGroupRequest(GROUP)), PartDone):
        parts += 1
    assert parts > 1
    assert stage.committed() == {}


def test_positions_of_a_topic_that_is_gone_are_forgotten() -> None:
    stage = Stage()
    stage.commit(1)
    stage.commit(2, topic="u")
    stage.commit(3, group="other")
    stage.ask(ForgetTopicsRequest(frozenset({"t"})))
    assert stage.committed() == {TopicPartition("u", 0): 2}
    assert stage.committed("other") == {}


# --- expiry ------------------------------------------------------------------------------------


def test_positions_of_a_group_without_members_expire() -> None:
    stage = Stage()
    stage.commit(1)
    stage.advance(RETENTION_MS - CHECK_MS)
    assert stage.committed() == {T0: 1}
    stage.advance(2 * CHECK_MS)
    assert stage.committed() == {}


def test_positions_do_not_expire_while_the_group_has_members() -> None:
    stage = Stage(GroupConfig(initial_rebalance_delay_ms=0, session_timeout_ms_max=2 * RETENTION_MS))
    joined = stage.join(session_ms=2 * RETENTION_MS).joined
    member = joined.member_id
    stage.sync(member, 1, {member: b"a"})
    stage.commit(1, member, 1)
    stage.advance(RETENTION_MS + 2 * CHECK_MS)
    assert stage.committed() == {T0: 1}
    stage.leave(member)
    stage.advance(RETENTION_MS - CHECK_MS)
    assert stage.committed() == {T0: 1}, "it counts from when the group became empty"
    stage.advance(2 * CHECK_MS)
    assert stage.committed() == {}
    assert stage.machine.groups == {}
    assert stage.machine.stored == {}, "with its last position the group goes"


def test_a_client_that_sets_a_retention_time_itself_gets_it() -> None:
    stage = Stage()
    stage.commit(1, retention_ms=CHECK_MS // 2)
    stage.commit(2, partition=1)
    stage.failover()
    stage.advance(CHECK_MS)
    assert stage.committed() == {TopicPartition("t", 1): 2}


def test_expiry_goes_through_all_groups_in_parts() -> None:
    stage = Stage(GroupConfig(entry_bytes_max=2_000))
    for at in range(40):
        stage.commit(1, group=f"g{at}")
    stage.advance(RETENTION_MS + 2 * CHECK_MS)
    assert stage.machine.offsets.groups() == set()
    assert max(len(entry) for entry in stage.log.entries) < 40


# --- listing -----------------------------------------------------------------------------------


def test_every_group_is_listed_with_its_state() -> None:
    stage = Stage()
    stage.stable(None)
    stage.commit(1, group="alone")
    reply = stage.ask(ListRequest())
    assert isinstance(reply, ListReply)
    assert sorted(reply.groups) == [
        ("alone", "", "Empty", "classic"),
        (GROUP, "consumer", "Stable", "classic"),
    ]


@pytest.mark.parametrize(("group", "state"), [("alone", "Empty"), ("never", "Dead")])
def test_a_group_without_members_is_described_as_what_it_is(group: str, state: str) -> None:
    stage = Stage()
    stage.commit(1, group="alone")
    assert stage.ask(DescribeRequest(group)) == DescribeReply(group, state, "", "", ())


@pytest.mark.parametrize(
    "deletion", [DeleteOffsetsRequest(GROUP, (T0,)), ForgetTopicsRequest(frozenset({"t"}))]
)
def test_a_group_that_only_had_positions_stays_empty_without_them_until_it_is_deleted(
    deletion: DeleteOffsetsRequest | ForgetTopicsRequest,
) -> None:
    stage = Stage()
    stage.commit(5)
    stage.ask(deletion)
    assert not stage.machine.offsets.has(GROUP)
    listed = stage.ask(ListRequest())
    assert isinstance(listed, ListReply)
    assert [(each.group_id, each.state) for each in listed.groups] == [(GROUP, "Empty")]
    stage.ask(DeleteGroupRequest(GROUP))
    assert not stage.machine.has(GROUP)
    stage.commit(5)
    stage.ask(deletion)
    stage.advance(stage.config.offsets_retention_check_ms)
    assert not stage.machine.has(GROUP), "nor does it stay for ever"
