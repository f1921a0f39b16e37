"""Settings that are changed while a broker runs do what they say: one test for each, from the image on.

Where a setting is looked for (the topic's own, the broker's, the cluster's) is the subject of
`test_partitions`; how it is told, of `handlers/test_describe_configs`.
"""

import random

import pytest

from distributedlog.controller.elections import rules_of
from distributedlog.controller.image import ResourceType
from distributedlog.model.config import DAY_MS, HOUR_MS, LogConfig
from distributedlog.model.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    NotEnoughReplicasError,
    RecordTooLargeError,
    RejectedRecordsError,
)
from distributedlog.model.kept_settings import KEPT_SETTINGS
from distributedlog.records.batch import HEADER_BYTES, read_header
from distributedlog.records.compression import Codec
from distributedlog.records.layout import Header
from distributedlog.records.record import Record, decode_batch, encode_batch, finish_batch
from distributedlog.replication.contract import ACKS_ALL
from distributedlog.settings.config_layers import TOPIC_SETTINGS
from distributedlog.storage.append import CODECS, LONG_BYTES
from tests.unit.broker.partition_stage import ME, OTHER, Stage
from tests.unit.replication.support import produce, produce_data
from tests.unit.storage.support import NOW_MS, batch_of, value_of, values_in

TOPIC = "orders"
SMALL = LogConfig(segment_bytes=1024, index_interval_bytes=100, file_delete_delay_ms=0)
RETENTION_CHECK_MS = 300_000
COMPACTION_MS = 30_000


def with_orders(*numbers: int, log: LogConfig = SMALL) -> Stage:
    stage = Stage(log=log)
    stage.metadata.create(TOPIC, 1)
    stage.apply()
    for number in numbers:
        produce(stage[TOPIC], number)
    stage.settle()
    return stage


def configure(stage: Stage, **settings: str) -> None:
    """`retention_ms` for retention.ms."""
    for name, value in settings.items():
        stage.metadata.configure(ResourceType.TOPIC, TOPIC, name.replace("_", "."), value)
    stage.apply()


def segments(stage: Stage) -> int:
    return len(stage[TOPIC].log.segments)


def test_retention_ms_deletes_what_is_older() -> None:
    stage = with_orders(*range(50))
    stage.pass_time(RETENTION_CHECK_MS)
    assert stage[TOPIC].log_start_offset == 0
    configure(stage, retention_ms="1000")
    stage.pass_time(RETENTION_CHECK_MS)
    assert stage[TOPIC].log_start_offset == 50, "also the segment that was being written"


def test_retention_bytes_deletes_what_is_too_much() -> None:
    stage = with_orders(*range(50))
    configure(stage, retention_bytes="1100")
    stage.pass_time(RETENTION_CHECK_MS)
    assert 0 < stage[TOPIC].log_start_offset < 50
    assert stage[TOPIC].log.size_bytes < 1100 + 1024


@pytest.mark.parametrize("policy", ["", "delete"])
def test_retention_bytes_below_zero_and_no_policy_keep_everything(policy: str) -> None:
    stage = with_orders(*range(50))
    bound = "-2" if policy else "0"
    configure(stage, retention_bytes=bound, cleanup_policy=policy)
    stage.pass_time(2 * RETENTION_CHECK_MS)
    assert stage[TOPIC].log_start_offset == 0
    assert stage[TOPIC].delete_records(10, stage.clock.wall_ms()) == 10, "only compacted ones refuse"


def test_internal_segment_bytes_counts_before_segment_bytes() -> None:
    stage = with_orders(*range(20), log=LogConfig(file_delete_delay_ms=0))
    configure(stage, segment_bytes="1048576", internal_segment_bytes="1024")
    produce(stage[TOPIC], 20)
    assert segments(stage) == 2


def test_segment_bytes_is_kept_from_the_next_record_on() -> None:
    stage = with_orders(*range(20), log=LogConfig(file_delete_delay_ms=0))
    assert segments(stage) == 1
    configure(stage, segment_bytes="1024")
    produce(stage[TOPIC], 20)
    assert segments(stage) == 2


def test_segment_ms_is_kept_from_the_next_record_on() -> None:
    stage = with_orders(1, log=LogConfig(file_delete_delay_ms=0))
    later = batch_of([value_of(2)], timestamp_ms=NOW_MS + HOUR_MS // 2)
    produce_data(stage[TOPIC], bytearray(later))
    assert segments(stage) == 1
    configure(stage, segment_ms=str(HOUR_MS // 4))
    produce_data(stage[TOPIC], bytearray(later))
    assert segments(stage) == 2


def keyed(stage: Stage, numbers: range) -> None:
    for number in numbers:
        produce_data(stage[TOPIC], batch_of([value_of(number)], keys=[b"k%d" % (number % 3)]))
    stage.settle()


def test_cleanup_policy_can_become_compact_and_delete_again() -> None:
    stage = with_orders()
    keyed(stage, range(60))
    stage.pass_time(COMPACTION_MS)
    assert len(values_in(stage[TOPIC].log)) == 60
    configure(stage, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    stage.pass_time(COMPACTION_MS)
    left = len(values_in(stage[TOPIC].log))
    assert left < 60
    with pytest.raises(RejectedRecordsError, match="no record without a key"):
        produce(stage[TOPIC], 60)
    configure(stage, cleanup_policy="delete")
    produce(stage[TOPIC], 60)
    keyed(stage, range(60))
    stage.pass_time(COMPACTION_MS)
    assert len(values_in(stage[TOPIC].log)) == left + 61


def test_min_cleanable_dirty_ratio_holds_compaction_back_and_lets_it_go() -> None:
    stage = with_orders(log=SMALL)
    configure(stage, cleanup_policy="compact", min_cleanable_dirty_ratio="1.0")
    keyed(stage, range(60))
    stage.pass_time(COMPACTION_MS)
    assert len(values_in(stage[TOPIC].log)) == 60, "a part of it is never sealed, and so never dirty"
    configure(stage, min_cleanable_dirty_ratio="0.1")
    stage.pass_time(COMPACTION_MS)
    assert len(values_in(stage[TOPIC].log)) < 60


def test_min_compaction_lag_ms_keeps_what_is_young() -> None:
    stage = with_orders()
    configure(
        stage, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", min_compaction_lag_ms=str(HOUR_MS)
    )
    keyed(stage, range(60))
    stage.pass_time(COMPACTION_MS)
    assert len(values_in(stage[TOPIC].log)) == 60
    configure(stage, min_compaction_lag_ms="0")
    stage.pass_time(COMPACTION_MS)
    assert len(values_in(stage[TOPIC].log)) < 60


def test_max_message_bytes_refuses_and_allows() -> None:
    stage = with_orders(log=LogConfig())
    large = batch_of([b"x" * 5_000])
    produce_data(stage[TOPIC], bytearray(large))
    configure(stage, max_message_bytes="1000")
    with pytest.raises(RecordTooLargeError):
        produce_data(stage[TOPIC], bytearray(large))
    configure(stage, max_message_bytes="10000")
    produce_data(stage[TOPIC], bytearray(large))


def test_flush_messages_syncs_after_so_many() -> None:
    stage = with_orders()
    configure(stage, flush_on_commit="false", flush_messages="3")
    for number in range(2):
        produce(stage[TOPIC], number)
    stage.settle()
    assert stage[TOPIC].log.flushed_end_offset == 0
    produce(stage[TOPIC], 2)
    stage.settle()
    assert stage[TOPIC].log.flushed_end_offset == 3


def test_flush_ms_syncs_after_so_long() -> None:
    stage = with_orders()
    configure(stage, flush_on_commit="false", flush_ms="2500")
    produce(stage[TOPIC], 1)
    stage.pass_time(2_000)
    assert stage[TOPIC].log.flushed_end_offset == 0
    stage.pass_time(1_000)
    assert stage[TOPIC].log.flushed_end_offset == 1


def test_flush_on_commit_makes_what_is_committed_durable_and_lets_it_be() -> None:
    stage = with_orders()
    produce(stage[TOPIC], 1)
    assert stage[TOPIC].high_watermark == 0
    configure(stage, flush_on_commit="false")
    assert stage[TOPIC].high_watermark == 1, "it is not waited for any more"
    stage.settle()
    configure(stage, flush_on_commit="true")
    produce(stage[TOPIC], 2)
    assert stage[TOPIC].high_watermark == 1
    stage.settle()
    assert stage[TOPIC].high_watermark == 2


@pytest.mark.parametrize("codec", Codec)
def test_record_validation_refuses_records_that_cannot_be_decoded(codec: Codec) -> None:
    stage = with_orders(log=SMALL)
    broken = undecodable_batch(codec)
    with pytest.raises(InvalidRecordError):
        stage[TOPIC].append(bytearray(broken), ACKS_ALL, NOW_MS)
    assert stage[TOPIC].log_end_offset == 0
    configure(stage, record_validation="header")
    stage[TOPIC].append(bytearray(broken), ACKS_ALL, NOW_MS)
    assert stage[TOPIC].log_end_offset == 2
    configure(stage, record_validation="full")
    with pytest.raises(InvalidRecordError):
        stage[TOPIC].append(bytearray(broken), ACKS_ALL, NOW_MS)


@pytest.mark.parametrize("codec", Codec)
def test_record_validation_can_be_done_before_the_append(codec: Codec) -> None:
    stage = with_orders(log=LogConfig())
    rules = stage[TOPIC].log.rules
    with pytest.raises(InvalidRecordError):
        rules.validate(undecodable_batch(codec))
    sound = encode_batch([Record(random.Random(7).randbytes(10_000))] * 6, codec=codec)
    assert rules.takes_long(sound) == (codec != Codec.NONE)
    assert rules.takes_long(bytearray(LONG_BYTES + 1))
    rules.validate(sound)
    stage[TOPIC].append(sound, ACKS_ALL, NOW_MS, is_validated=True)
    assert stage[TOPIC].log_end_offset == 6


def undecodable_batch(codec: Codec) -> bytearray:
    """Two records in a batch with a right checksum, the second of which claims a longer value than it has."""
    batch = encode_batch([Record(b"a" * 40, b"key"), Record(b"b" * 40, b"key")])
    section = batch[HEADER_BYTES:]
    section[section.rindex(b"b" * 40) - 1] = 200
    header = read_header(batch)._replace(attributes=int(codec))
    return finish_batch(bytearray(HEADER_BYTES) + section, header)


def test_min_insync_replicas_refuses_acks_of_all_and_allows_them() -> None:
    stage = Stage(log=SMALL)
    stage.metadata.create(TOPIC, 1, replicas=(ME, OTHER))
    stage.apply(stage.metadata.change(1, isr=[ME]))
    stage[TOPIC].append(batch_of([value_of(1)]), ACKS_ALL, NOW_MS)
    configure(stage, min_insync_replicas="2")
    with pytest.raises(NotEnoughReplicasError):
        stage[TOPIC].append(batch_of([value_of(2)]), ACKS_ALL, NOW_MS)
    configure(stage, min_insync_replicas="1")
    stage[TOPIC].append(batch_of([value_of(2)]), ACKS_ALL, NOW_MS)


def test_the_minimum_in_sync_is_the_clusters_and_not_what_this_broker_was_given() -> None:
    stage = Stage(log=SMALL, settings={"min_insync_replicas": 1})
    stage.metadata.create(TOPIC, 1, replicas=(ME, OTHER))
    stage.metadata.configure(ResourceType.BROKER, "", "min.insync.replicas", "2")
    stage.metadata.configure(ResourceType.BROKER, str(ME), "min.insync.replicas", "1")
    stage.apply(stage.metadata.change(1, isr=[ME]))
    assert rules_of(stage.metadata.image, TOPIC).min_isr == 2, "by which the controller judges"
    with pytest.raises(NotEnoughReplicasError):
        stage[TOPIC].append(batch_of([value_of(1)]), ACKS_ALL, NOW_MS)
    stage.apply(stage.metadata.configure(ResourceType.BROKER, "", "min.insync.replicas", "1"))
    stage[TOPIC].append(batch_of([value_of(1)]), ACKS_ALL, NOW_MS)


RECORDS = [Record(value_of(number), b"key", (Header("h", b"1"),), NOW_MS + number) for number in range(5)]


def stored(stage: Stage, offset: int) -> tuple[Codec, list[Record]]:
    region = stage[TOPIC].log.read(offset, 1 << 20).region
    assert region is not None
    with region:
        data = region.read()
    return read_header(data).codec, decode_batch(data)


@pytest.mark.parametrize("given", list(Codec))
@pytest.mark.parametrize("wanted", CODECS)
def test_compression_type_stores_records_as_the_topic_says(given: Codec, wanted: str) -> None:
    stage = with_orders(log=LogConfig())
    batch = encode_batch(RECORDS, codec=given, producer_id=7, producer_epoch=1, base_sequence=0)
    produce_data(stage[TOPIC], bytearray(batch))
    configure(stage, compression_type=wanted)
    produce_data(
        stage[TOPIC], encode_batch(RECORDS, codec=given, producer_id=7, producer_epoch=1, base_sequence=5)
    )
    configure(stage, compression_type="producer")
    produce_data(
        stage[TOPIC], encode_batch(RECORDS, codec=given, producer_id=7, producer_epoch=1, base_sequence=10)
    )
    stage.settle()
    codecs, contents = zip(*(stored(stage, offset) for offset in (0, 5, 10)), strict=True)
    assert codecs == (given, CODECS[wanted], given)
    plain = [[each._replace(offset=0) for each in content] for content in contents]
    assert plain[0] == plain[1] == plain[2]
    (state,) = stage[TOPIC].log.producers
    assert state.next_sequence == 15


def test_message_timestamp_type_stamps_by_our_clock() -> None:
    stage = with_orders(log=LogConfig())
    configure(stage, message_timestamp_type="LogAppendTime")
    stage.clock.advance(5_000)
    result = stage[TOPIC].append(batch_of([value_of(1)]), 1, stage.clock.wall_ms())
    assert result.log_append_time_ms == NOW_MS + 5_000
    configure(stage, message_timestamp_type="CreateTime")
    assert stage[TOPIC].append(batch_of([value_of(1)]), 1, stage.clock.wall_ms()).log_append_time_ms == -1


@pytest.mark.parametrize(
    ("setting", "timestamp_ms"),
    [
        ("message_timestamp_before_max_ms", NOW_MS - DAY_MS),
        ("message_timestamp_after_max_ms", NOW_MS + HOUR_MS // 2),
    ],
)
def test_timestamps_are_bounded_on_both_sides(setting: str, timestamp_ms: int) -> None:
    stage = with_orders(log=LogConfig())
    produce_data(stage[TOPIC], batch_of([value_of(1)], timestamp_ms=timestamp_ms))
    configure(stage, **{setting: "1000"})
    with pytest.raises(InvalidTimestampError):
        produce_data(stage[TOPIC], batch_of([value_of(1)], timestamp_ms=timestamp_ms))


def test_file_delete_delay_ms_keeps_files_for_so_long() -> None:
    stage = with_orders(*range(50))
    configure(stage, retention_ms="1000", file_delete_delay_ms="60000")
    stage.pass_time(RETENTION_CHECK_MS)
    deleted = [path for path in stage.sim.files() if path.endswith(".deleted")]
    assert deleted
    stage.pass_time(80_000)
    assert not [path for path in stage.sim.files() if path.endswith(".deleted")]


def test_producer_id_expiration_ms_forgets_who_is_silent() -> None:
    stage = with_orders()
    produce_data(stage[TOPIC], batch_of([value_of(1)], producer_id=7, producer_epoch=0, base_sequence=0))
    stage.pass_time(2 * RETENTION_CHECK_MS)
    assert len(stage[TOPIC].log.producers) == 1
    configure(stage, producer_id_expiration_ms="1000")
    stage.pass_time(2 * RETENTION_CHECK_MS)
    assert len(stage[TOPIC].log.producers) == 0


def test_index_interval_bytes_spaces_the_index_of_the_next_segment() -> None:
    stage = with_orders(*range(10))
    configure(stage, index_interval_bytes="100000")
    for number in range(10, 40):
        produce(stage[TOPIC], number)
    first, *_, last, _active = stage[TOPIC].log.segments
    assert len(first.offset_index) > len(last.offset_index)


EFFECTS = {
    "segment.jitter.ms": "a random part of segment.ms: storage/test_log_model",
    "segment.index.bytes": "seals a segment whose index is full: storage/test_log",
    "delete.retention.ms": "in the plan of each compaction: storage/test_compaction",
    "max.compaction.lag.ms": "in the plan of each compaction: storage/test_compaction_planning",
    "unclean.leader.election.enable": "the controller's: controller/test_elections",
}


def test_every_setting_of_a_topic_has_a_test_of_its_effect() -> None:
    here = {name for name in globals() if name.startswith("test_")}
    tested = {
        name
        for name in TOPIC_SETTINGS
        if any(each.startswith(f"test_{name.replace('.', '_')}") for each in here)
    }
    bounds = {"message.timestamp.before.max.ms", "message.timestamp.after.max.ms"}
    assert set(TOPIC_SETTINGS) - tested - bounds - set(KEPT_SETTINGS) == set(EFFECTS)
