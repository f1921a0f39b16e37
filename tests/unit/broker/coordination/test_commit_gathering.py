"""Commits that come close together: one entry for all of them, and everyone told what is his."""

from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.broker.coordination.commit_gathering import (
    CLOSE_MS,
    CROWD_MS,
    TOGETHER_MAX,
    CommitGathering,
    bound_size,
)
from distributedlog.groups.committed_offsets import make_offset_records
from distributedlog.groups.config import GroupConfig
from distributedlog.groups.records import size_bounds
from distributedlog.groups.requests import (
    CommitReply,
    CommitRequest,
    CommittedOffset,
    Leaver,
    LeaveReply,
    LeaveRequest,
)
from distributedlog.model.config import LogConfig
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import TOPIC_NAME_LENGTH_MAX, TopicPartition
from distributedlog.model.internal_topics import OFFSETS_TOPIC
from distributedlog.records.batch import read_header
from tests.unit.broker.group_stage import GROUP, OFFSETS_NUMBER, GroupStage, Told, joined
from tests.unit.broker.partition_stage import ME, OTHER

CONFIG = GroupConfig()


def batch_sizes(stage: GroupStage) -> list[int]:
    """How many records each batch of the log has."""
    region = stage.stage[OFFSETS_TOPIC].log.read(0, 10_000_000).region
    assert region is not None
    with region:
        data = region.read()
    found, at = [], 0
    while at < len(data):
        header = read_header(data, at)
        found.append(header.record_count)
        at += header.size
    return found


def crowded() -> GroupStage:
    """There is a group, and commits of it come close together from here on."""
    stage = GroupStage()
    stage.settle()
    stage.commit(0)
    assert batch_sizes(stage) == [1], "the first begins at once"
    stage.settle()
    return stage


def wanted(offset: int, *, partitions: int = 1, generation: int = -1) -> CommitRequest:
    places = tuple(CommittedOffset(TopicPartition("t", at), offset, -1, "") for at in range(partitions))
    return CommitRequest(GROUP, "", None, generation, places)


def test_commits_that_come_close_together_are_one_entry() -> None:
    stage = crowded()
    tolds = [stage.commit(at, partition=at) for at in range(1, 6)]
    assert batch_sizes(stage) == [1]
    stage.stage.scheduler.run_posted()
    assert batch_sizes(stage) == [1, 5]
    assert not any(told.is_told for told in tolds), "it is not synced yet"
    stage.settle()
    assert [told.reply for told in tolds] == [CommitReply((ErrorCode.NONE,))] * 5
    assert stage.committed() == [0, 1, 2, 3, 4, 5]
    stage.restart()
    stage.settle()
    assert stage.committed() == [0, 1, 2, 3, 4, 5]


def test_the_last_of_several_commits_of_one_partition_counts() -> None:
    stage = crowded()
    for offset in range(1, 9):
        stage.commit(offset)
    stage.settle()
    assert stage.committed() == [8]


def test_a_commit_that_is_refused_costs_the_others_nothing() -> None:
    stage = crowded()
    before, refused, behind = (
        stage.commit(1),
        stage.ask(wanted(9, generation=5)),
        stage.commit(2, partition=1),
    )
    stage.settle()
    assert refused.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert before.code is behind.code is ErrorCode.NONE
    assert stage.committed() == [1, 2]


def test_nobody_overtakes_a_commit_that_waits_for_others() -> None:
    stage = GroupStage()
    stage.settle()
    member = joined(stage.join()).member_id
    stage.sync(member, 1, b"all")
    position = (CommittedOffset(TopicPartition("t", 0), 7, -1, ""),)
    commits = [stage.ask(CommitRequest(GROUP, member, None, 1, position)) for _ in range(3)]
    left = stage.ask(LeaveRequest(GROUP, (Leaver(member),)))
    stage.settle()
    assert [told.code for told in commits] == [ErrorCode.NONE] * 3, "it was a member when it asked"
    assert left.reply == LeaveReply((ErrorCode.NONE,))
    late = stage.ask(CommitRequest(GROUP, member, None, 1, position))
    stage.settle()
    assert late.code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_reader_hears_of_commits_that_came_before_it() -> None:
    stage = crowded()
    stage.commit(1)
    stage.commit(2)
    read = stage.fetch()
    assert not read.is_told, "it is not committed yet"
    stage.settle()
    assert stage.committed() == [2]


def test_those_who_wait_for_others_are_told_when_another_broker_leads() -> None:
    stage = crowded()
    waiting = [stage.commit(at) for at in range(3)]
    stage.metadata.change(OFFSETS_NUMBER, replicas=[ME, OTHER], isr=[ME, OTHER])
    stage.metadata.change(OFFSETS_NUMBER, leader=OTHER)
    stage.stage.partitions.apply_image(stage.metadata.image)
    assert {told.code for told in waiting} == {ErrorCode.NOT_COORDINATOR}


def test_all_are_told_of_an_entry_that_could_not_be_written() -> None:
    stage = crowded()
    waiting = [stage.commit(at) for at in range(3)]
    stage.stage[OFFSETS_TOPIC].reconfigure(LogConfig(file_delete_delay_ms=0, max_message_bytes=64), 1)
    stage.stage.scheduler.run_posted()
    assert {told.code for told in waiting} == {ErrorCode.NOT_COORDINATOR}


def test_all_are_told_of_an_entry_that_does_not_become_durable_in_time() -> None:
    stage = crowded()
    waiting = [stage.commit(at) for at in range(3)]
    stage.stage.scheduler.run_posted()
    stage.stage.scheduler.advance(31_000)
    assert {told.code for told in waiting} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}


def test_too_few_replicas_in_sync_refuse_all_that_were_gathered() -> None:
    stage = crowded()
    stage.metadata.change(OFFSETS_NUMBER, replicas=[ME, OTHER], isr=[ME])
    stage.stage.apply()
    waiting = [stage.commit(at) for at in range(3)]
    partition = stage.stage[OFFSETS_TOPIC]
    partition.reconfigure(partition.log.config, 2)
    stage.stage.scheduler.run_posted()
    assert {told.code for told in waiting} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}


def test_more_than_fits_one_entry_is_several() -> None:
    stage = crowded()
    fitting = CONFIG.entry_bytes_max // bound_size(wanted(0, partitions=50), CONFIG)
    assert 1 < fitting < TOGETHER_MAX
    tolds = [stage.ask(wanted(at, partitions=50)) for at in range(3 * fitting)]
    stage.settle()
    assert [told.code for told in tolds] == [ErrorCode.NONE] * (3 * fitting)
    assert batch_sizes(stage) == [1] + [50 * fitting] * 3
    assert set(stage.committed()) == {3 * fitting - 1}


def test_the_first_commit_of_a_group_begins_at_once() -> None:
    """So that there are never more groups than may be."""
    stage = crowded()
    stage.commit(1)
    stage.commit(2, "another")
    assert batch_sizes(stage) == [1, 1, 1], "and what was gathered goes before it"


def test_who_waits_for_each_answer_is_not_made_to_wait_for_others() -> None:
    stage = crowded()
    stage.settle()
    for at in range(1, 5):
        stage.stage.clock.advance(CLOSE_MS + 1)
        stage.commit(at)
        assert batch_sizes(stage)[-1] == 1
        assert stage.stage[OFFSETS_TOPIC].log.end_offset == at + 1, "it is in the log"
        stage.settle()


# --- who has company ---------------------------------------------------------------------------


def gathered(gathering: CommitGathering, count: int, now_ms: int) -> None:
    for _ in range(count):
        assert gathering.add(wanted(1), 0, Told(), CONFIG)
    assert len(gathering.take(now_ms)) == count


def test_after_a_crowd_also_the_first_waits_and_after_one_alone_the_next_does_not() -> None:
    gathering = CommitGathering()
    assert not gathering.note_arrival(100)
    assert gathering.note_arrival(100 + CLOSE_MS)
    gathered(gathering, 3, 101)
    later_ms = 101 + CROWD_MS
    assert gathering.note_arrival(later_ms)
    gathered(gathering, 1, later_ms)
    assert not gathering.note_arrival(later_ms)
    assert gathering.note_arrival(later_ms + CLOSE_MS)
    gathered(gathering, 2, later_ms + CLOSE_MS)
    assert not gathering.note_arrival(later_ms + CLOSE_MS + CROWD_MS + 1), "that was long ago"


def test_there_is_a_bound_on_how_many_are_together() -> None:
    gathering = CommitGathering()
    gathered(gathering, TOGETHER_MAX, 1)
    for _ in range(TOGETHER_MAX):
        assert gathering.add(wanted(1), 0, Told(), CONFIG)
    assert not gathering.add(wanted(1), 0, Told(), CONFIG)


texts = st.text(st.characters(codec="utf-8"), max_size=40)


@settings(max_examples=60, deadline=None)
@given(texts, st.lists(st.tuples(st.integers(1, TOPIC_NAME_LENGTH_MAX), texts), max_size=8))
def test_what_is_gathered_is_never_larger_than_was_thought(group: str, places: list[tuple[int, str]]) -> None:
    config = GroupConfig(offset_metadata_bytes_max=160)
    positions = tuple(
        CommittedOffset(TopicPartition("t" * length, 0), 1, -1, text) for length, text in places
    )
    request = CommitRequest(group, "", None, -1, positions)
    records = make_offset_records(request, positions, 1)
    assert size_bounds(records) <= bound_size(request, config)
