"""`__consumer_offsets` is compacted while groups live on it, and says the same afterwards.

Its segments are of a few kilobytes here; the real ones have 100 MiB.
"""

from distributedlog.groups.requests import DeleteGroupRequest, HeartbeatRequest, JoinReply, SyncReply
from distributedlog.model.config import LogConfig
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.internal_topics import OFFSETS_TOPIC
from tests.unit.broker.group_stage import GROUP, SESSION_MS, GroupStage

SMALL = LogConfig(
    segment_bytes=4_096,
    index_interval_bytes=256,
    file_delete_delay_ms=0,
    cleanup_policy=("compact",),
    min_cleanable_dirty_ratio=0.01,
)
COMPACTED_MS = 30_000


def durable(stage: GroupStage) -> set[str]:
    (coordinator,) = stage.groups.all_active()
    return {repr(record) for record in coordinator.machine.durable_records()}


def many_commits(stage: GroupStage, count: int, groups: int = 3) -> None:
    for number in range(count):
        stage.commit(number, f"g{number % groups}")
        stage.settle()


def size(stage: GroupStage) -> int:
    return stage.stage[OFFSETS_TOPIC].log.size_bytes


def test_the_log_of_a_group_that_commits_for_ever_does_not_grow_for_ever() -> None:
    stage = GroupStage(log=SMALL)
    stage.settle()
    many_commits(stage, 300)
    before = size(stage)
    stage.stage.pass_time(COMPACTED_MS)
    assert size(stage) < before / 2
    many_commits(stage, 300)
    stage.stage.pass_time(COMPACTED_MS)
    assert size(stage) < before / 2
    assert [stage.committed(f"g{at}") for at in range(3)] == [[297], [298], [299]]


def test_what_is_read_back_after_a_compaction_and_a_kill_is_what_was_there() -> None:
    stage = GroupStage(log=SMALL)
    stage.settle()
    joined = stage.join().reply
    assert isinstance(joined, JoinReply)
    stage.sync(joined.member_id, 1, b"everything")
    stage.settle()
    many_commits(stage, 200)
    before, size_before = durable(stage), size(stage)
    for _ in range(6):
        assert stage.ask(HeartbeatRequest(GROUP, joined.member_id, None, 1)).code is ErrorCode.NONE
        stage.stage.pass_time(SESSION_MS // 2)
    assert size(stage) < size_before / 2
    for _ in range(2):
        stage.restart()
        assert stage.fetch("g0").code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        stage.settle()
        assert durable(stage) == before
        again = stage.sync(joined.member_id, 1, b"").reply
        assert isinstance(again, SyncReply)
        assert again.assignment == b"everything", "the oldest record of all is still there"


def test_a_group_that_was_deleted_does_not_come_back_when_its_tombstone_is_gone() -> None:
    log = LogConfig(
        segment_bytes=4_096,
        index_interval_bytes=256,
        file_delete_delay_ms=0,
        cleanup_policy=("compact",),
        min_cleanable_dirty_ratio=0.01,
        delete_retention_ms=1_000,
    )
    stage = GroupStage(log=log)
    stage.settle()
    stage.commit(7, "gone")
    stage.settle()
    many_commits(stage, 100)
    stage.ask(DeleteGroupRequest("gone"), "gone")
    stage.settle()
    for _ in range(3):
        many_commits(stage, 100)
        stage.stage.pass_time(COMPACTED_MS)
    stage.restart()
    stage.settle()
    assert stage.committed("gone") == []
    assert stage.committed("g0") == [99]
