from distributedlog.broker.coordination.coordinator_log import SLICE_BYTES
from distributedlog.broker.coordination.host import REST_MS
from distributedlog.groups.placement import partition_of
from distributedlog.groups.requests import (
    HeartbeatRequest,
    ListReply,
    ListRequest,
    SyncReply,
)
from distributedlog.model.config import LogConfig
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.internal_topics import OFFSETS_TOPIC
from distributedlog.records.batch import read_header
from distributedlog.records.control import ControlType, EndMarker, encode_end_marker_batch
from distributedlog.records.record import Record, decode_batch, encode_batch, finish_batch
from distributedlog.replication.contract import ACKS_ALL
from distributedlog.replication.partition import Partition
from distributedlog.statemachine import Producer, TransactionEnd
from distributedlog.storage.append import Origin
from tests.unit.broker.group_stage import (
    DEADLINE_MS,
    FOR_EVER,
    OFFSETS_NUMBER,
    SESSION_MS,
    TOPIC_NUMBER,
    GroupStage,
    Told,
    joined,
)
from tests.unit.broker.partition_stage import ME, OTHER
from tests.unit.replication.support import confirm


def records_of(partition: Partition) -> list[Record]:
    region = partition.log.read(0, 1_000_000).region
    assert region is not None
    with region:
        data = region.read()
    records, at = [], 0
    while at < len(data):
        records += decode_batch(data, at)
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return records


def test_a_commit_is_answered_when_it_is_synced_and_not_before() -> None:
    stage = GroupStage()
    told, read = stage.commit(7), stage.fetch()
    assert not told.is_told
    assert not read.is_told, "a reader does not hear of what may still vanish"
    stage.settle()
    assert told.code is ErrorCode.NONE
    assert stage.committed() == [7]
    (record,) = records_of(stage.stage[OFFSETS_TOPIC])
    assert record.key is not None
    assert bytes(record.key).hex() == "0001" + "000167" + "000174" + "00000000"


def test_what_was_acknowledged_is_there_after_a_kill() -> None:
    stage = GroupStage()
    stage.commit(7, "alone")
    stage.settle()
    member = joined(stage.join()).member_id
    synced = stage.sync(member, 1, b"all")
    stage.settle()
    assert isinstance(synced.reply, SyncReply)
    lost = stage.commit(8, "alone")
    assert not lost.is_told
    stage.restart()
    assert stage.fetch().code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    stage.settle()
    assert stage.committed("alone") == [7]
    again = stage.sync(member, 1, b"")
    assert isinstance(again.reply, SyncReply)
    assert again.reply.assignment == b"all"


def test_while_the_log_is_read_back_nobody_is_told_that_there_is_no_position() -> None:
    stage = GroupStage()
    for at in range(7_000):
        stage.commit(at, partition=at % 100)
    stage.settle()
    assert stage.stage[OFFSETS_TOPIC].log.size_bytes > 2 * SLICE_BYTES
    stage.restart()
    loading = 0
    while (told := stage.fetch()).code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        loading += 1
        assert stage.stage.executor.run_one()
        stage.stage.scheduler.run_posted()
    assert loading > 2
    assert told.code is ErrorCode.NONE
    assert sorted(stage.committed()) == list(range(6_900, 7_000))
    assert stage.groups.is_loading is False


def test_a_group_is_asked_of_the_partition_its_name_falls_on() -> None:
    stage = GroupStage(partitions=5)
    stage.settle()
    names = [f"group-{at}" for at in range(40)]
    tolds = [stage.commit(at, name) for at, name in enumerate(names)]
    stage.settle()
    assert {told.code for told in tolds} == {ErrorCode.NONE}
    assert [stage.committed(name) for name in names] == [[at] for at in range(40)]
    for number in range(5):
        partition = stage.stage.partitions.require(OFFSETS_TOPIC, number)
        wanted = {name for name in names if partition_of(name, 5) == number}
        found = {
            bytes(record.key or b"")[4:].partition(b"\0")[0].decode() for record in records_of(partition)
        }
        assert found == wanted


def test_groups_of_others_and_of_no_topic_are_refused() -> None:
    stage = GroupStage()
    stage.metadata.remove(OFFSETS_NUMBER)
    stage.stage.apply()
    assert stage.commit(1).code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    stage.metadata.create(OFFSETS_TOPIC, OFFSETS_NUMBER + 1, replicas=(OTHER,), leader=OTHER)
    stage.stage.apply()
    assert stage.commit(1).code is ErrorCode.NOT_COORDINATOR


def test_a_coordinator_whose_log_is_still_being_made_is_loading() -> None:
    stage = GroupStage()
    stage.metadata.remove(OFFSETS_NUMBER)
    stage.stage.apply()
    stage.metadata.create(OFFSETS_TOPIC, OFFSETS_NUMBER + 1, replicas=(ME,), leader=ME)
    assert stage.commit(1).code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    stage.stage.apply()
    stage.settle()
    committing = stage.commit(1)
    stage.settle()
    assert committing.code is ErrorCode.NONE


def test_whoever_waits_is_told_when_another_broker_leads() -> None:
    stage = GroupStage()
    stage.settle()
    member = joined(stage.join()).member_id
    waits = stage.join()
    committing = stage.commit(1, "alone")
    assert not waits.is_told
    stage.metadata.change(OFFSETS_NUMBER, replicas=[ME, OTHER], isr=[ME, OTHER])
    stage.metadata.change(OFFSETS_NUMBER, leader=OTHER)
    stage.stage.apply()
    assert waits.code is committing.code is ErrorCode.NOT_COORDINATOR
    assert stage.ask(HeartbeatRequest("g", member, None, 1)).code is ErrorCode.NOT_COORDINATOR


def test_an_isolated_broker_coordinates_nothing_and_begins_anew_from_its_log() -> None:
    """What waits there to be committed waits in vain, if another leads; else it is in the log."""
    stage = GroupStage()
    stage.commit(3)
    stage.settle()
    stage.metadata.change(OFFSETS_NUMBER, replicas=[ME, OTHER], isr=[ME, OTHER])
    stage.stage.apply()
    partition = stage.stage[OFFSETS_TOPIC]
    writing = stage.commit(4)
    stage.settle()
    assert not writing.is_told
    partition.set_heard(())
    assert writing.code is ErrorCode.NOT_COORDINATOR
    assert stage.commit(5).code is stage.fetch().code is ErrorCode.NOT_COORDINATOR
    partition.set_heard(None)
    assert stage.fetch().code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    stage.settle()
    reading = stage.fetch()
    assert not reading.is_told, "what it would say is not committed"
    partition.read_for_replica(OTHER, partition.log_end_offset, 1_000, stage.stage.clock.monotonic_ms())
    stage.settle()
    assert reading.code is ErrorCode.NONE
    assert stage.committed() == [4], "it was written, though nobody knew"


def test_a_new_epoch_reads_the_log_anew() -> None:
    stage = GroupStage()
    stage.commit(3)
    stage.settle()
    stage.metadata.change(OFFSETS_NUMBER, leader=ME)
    stage.stage.apply()
    assert stage.fetch().code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    stage.settle()
    assert stage.committed() == [3]


def test_too_few_replicas_in_sync_refuse_writes_and_hold_deadlines() -> None:
    stage = GroupStage()
    stage.settle()
    member = joined(stage.join()).member_id
    stage.sync(member, 1, b"all")
    stage.settle()
    stage.metadata.change(OFFSETS_NUMBER, replicas=[ME, OTHER], isr=[ME])
    stage.stage.apply()
    partition = stage.stage[OFFSETS_TOPIC]
    partition.reconfigure(partition.log.config, 2)
    assert stage.commit(1, "alone").code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert stage.ask(HeartbeatRequest("g", member, None, 1)).code is ErrorCode.NONE
    for _ in range(3 * SESSION_MS // 1_000):
        stage.stage.pass_time(1_000)
    partition.reconfigure(partition.log.config, 1)
    stage.stage.pass_time(2 * REST_MS)
    assert stage.ask(HeartbeatRequest("g", member, None, 1)).code is ErrorCode.NONE, "it was excused"


def test_a_broker_that_no_controller_has_heard_for_a_session_tells_nobody_where_a_group_stands() -> None:
    """Another may have been elected, and have newer positions: it was stopped, say, and does not know yet."""
    stage = GroupStage()
    stage.commit(3)
    stage.settle()
    stage.lease.take(FOR_EVER._replace(end_ms=stage.stage.clock.monotonic_ms()))
    assert stage.fetch().code is ErrorCode.NOT_COORDINATOR
    assert stage.ask(HeartbeatRequest("g", "m", None, 1)).code is ErrorCode.NOT_COORDINATOR
    writing = stage.commit(4)
    assert not writing.is_told, "what is written is told by the log, if it can be committed"
    stage.lease.take(FOR_EVER)
    stage.settle()
    assert stage.committed() == [4]


def test_sessions_end_by_the_loops_timers() -> None:
    stage = GroupStage()
    stage.settle()
    member = joined(stage.join()).member_id
    stage.sync(member, 1, b"all")
    stage.settle()
    stage.stage.pass_time(SESSION_MS - 1_000)
    assert stage.ask(HeartbeatRequest("g", member, None, 1)).code is ErrorCode.NONE
    stage.stage.pass_time(SESSION_MS + 1_000)
    assert stage.ask(HeartbeatRequest("g", member, None, 1)).code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_commit_that_does_not_become_durable_in_time_is_not_acknowledged() -> None:
    stage = GroupStage()
    stage.settle()
    told = stage.commit(1)
    stage.stage.scheduler.advance(31_000)
    assert told.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_an_append_that_fails_makes_the_coordinator_start_anew() -> None:
    stage = GroupStage(log=LogConfig(file_delete_delay_ms=0, max_message_bytes=4_096))
    stage.commit(1)
    stage.settle()
    waits_for_others = joined(stage.join())
    waits = stage.join()
    # From outside, as an administrator may: the coordinator believes in more room than there is.
    partition = stage.stage[OFFSETS_TOPIC]
    partition.reconfigure(LogConfig(file_delete_delay_ms=0, max_message_bytes=64), 1)
    assert stage.commit(2, "g2").code is ErrorCode.NOT_COORDINATOR
    assert waits.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert stage.fetch().code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    partition.reconfigure(LogConfig(file_delete_delay_ms=0), 1)
    stage.stage.pass_time(2_000)
    assert stage.committed() == [1]
    heartbeat = HeartbeatRequest("g", waits_for_others.member_id, None, 1)
    assert stage.ask(heartbeat).code is ErrorCode.UNKNOWN_MEMBER_ID


def test_positions_of_a_removed_topic_are_forgotten_also_if_nobody_was_in_charge() -> None:
    stage = GroupStage()
    stage.metadata.create("u", 2)
    stage.commit(1)
    stage.commit(2, topic="u")
    stage.settle()
    stage.metadata.remove(TOPIC_NUMBER)
    stage.groups.topics_removed(["t"])
    stage.settle()
    assert stage.committed() == [2]
    stage.metadata.remove(2)
    stage.restart()
    stage.settle()
    assert stage.committed() == []


def test_all_groups_are_listed_coordinator_by_coordinator() -> None:
    stage = GroupStage(partitions=3)
    assert stage.groups.is_loading or list(stage.groups.all_active())
    stage.settle()
    for at in range(9):
        stage.commit(at, f"g{at}")
    stage.settle()
    names = []
    for coordinator in stage.groups.all_active():
        told = Told()
        coordinator.submit(ListRequest(), 1_000, told)
        assert isinstance(told.reply, ListReply)
        names += [each.group_id for each in told.reply.groups]
    assert sorted(names) == [f"g{at}" for at in range(9)]


def offset_batch(producer_id: int, offset: int) -> bytearray:
    key = bytes.fromhex("0001" + "000167" + "000174" + "00000000")
    value = bytes.fromhex("0003") + offset.to_bytes(8, "big") + bytes.fromhex("ffffffff" + "0000" + "00" * 8)
    return encode_batch(
        [Record(key=key, value=value, timestamp_ms=1)],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=-1,
        is_transactional=True,
    )


def test_positions_committed_in_a_transaction_count_when_it_is_committed() -> None:
    """The log holds them as one of Kafka's may."""
    stage = GroupStage()
    partition = stage.stage[OFFSETS_TOPIC]
    for producer_id, offset in ((1, 10), (2, 20), (3, 30)):
        confirm(partition, producer_id)
        partition.append(offset_batch(producer_id, offset), ACKS_ALL, 1, Origin.COORDINATOR)
    for producer_id, kind in ((1, ControlType.COMMIT), (2, ControlType.ABORT)):
        marker = encode_end_marker_batch(
            EndMarker(kind, 0), producer_id=producer_id, producer_epoch=0, timestamp_ms=1
        )
        partition.append(marker, ACKS_ALL, 1, Origin.COORDINATOR)
    stage.settle()
    stage.restart()
    stage.settle()
    assert stage.committed() == [10]


def test_positions_of_a_transaction_that_was_open_at_the_load_count_when_it_is_committed() -> None:
    stage = GroupStage()
    stage.commit(3)
    partition = stage.stage[OFFSETS_TOPIC]
    for producer_id, offset in ((1, 10), (2, 20)):
        confirm(partition, producer_id)
        partition.append(offset_batch(producer_id, offset), ACKS_ALL, 1, Origin.COORDINATOR)
    stage.settle()
    for _ in range(2):  # what is held is read again
        stage.restart()
        assert stage.fetch().code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        stage.settle()
        assert stage.committed() == [3]
    for producer_id, is_commit in ((7, True), (2, False), (1, True)):
        ended = Told()
        (coordinator,) = stage.groups.all_active()
        end = TransactionEnd(Producer(producer_id, 0), is_commit)
        coordinator.host.end_transaction(end, DEADLINE_MS, ended)
        assert stage.fetch().is_told is False, "a reader waits for the marker to be committed"
        stage.settle()
        assert ended.code is ErrorCode.NONE
    assert stage.committed() == [10]
    stage.restart()
    stage.settle()
    assert stage.committed() == [10]


def test_a_commit_behind_those_of_a_transaction_outlives_its_end() -> None:
    """Compaction would keep the later record, so a reader of the compacted log has that one."""
    stage = GroupStage()
    stage.settle()
    partition = stage.stage[OFFSETS_TOPIC]
    confirm(partition, 1)
    partition.append(offset_batch(1, 10), ACKS_ALL, 1, Origin.COORDINATOR)
    stage.settle()
    stage.restart()
    stage.settle()
    stage.commit(11)
    stage.settle()
    (coordinator,) = stage.groups.all_active()
    coordinator.host.end_transaction(TransactionEnd(Producer(1, 0), is_commit=True), DEADLINE_MS, Told())
    stage.settle()
    assert stage.committed() == [11]
    stage.restart()
    stage.settle()
    assert stage.committed() == [11]


def test_records_that_cannot_be_read_are_skipped_and_counted_and_the_groups_live_on() -> None:
    stage = GroupStage()
    stage.commit(7)
    stage.settle()
    partition = stage.stage[OFFSETS_TOPIC]
    strange = Record(
        key=bytes.fromhex("0001" + "000167" + "000174" + "00000000"), value=b"\0\x63", timestamp_ms=1
    )
    for bad in (strange, Record(key=b"\0", value=b"", timestamp_ms=1)):
        partition.append(encode_batch([bad]), ACKS_ALL, 1, Origin.COORDINATOR)
    stage.settle()
    stage.restart()
    stage.stage.pass_time(3_000)
    assert stage.committed() == [7]
    families = {each.name: each for each in stage.groups.metrics.families()}
    assert families["dlog_coordinator_unreadable_records"].samples[0].value == 2


def test_a_batch_whose_records_cannot_be_walked_does_not_keep_the_coordinator_loading() -> None:
    stage = GroupStage()
    stage.commit(7)
    stage.settle()
    partition = stage.stage[OFFSETS_TOPIC]
    sound = encode_batch([Record(key=b"k", value=b"v", timestamp_ms=1)] * 3)
    cut = finish_batch(sound[:-1], read_header(sound))
    # As a log may be that was written before records were walked.
    partition.append(cut, ACKS_ALL, 1, Origin.COORDINATOR, is_validated=True)
    stage.settle()
    stage.restart()
    stage.stage.pass_time(3_000)
    assert stage.committed() == [7]
    families = {each.name: each for each in stage.groups.metrics.families()}
    assert families["dlog_coordinator_unreadable_records"].samples[0].value == 3
