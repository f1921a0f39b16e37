"""What a task of the sink does with the rows that Spark hands it: against a real broker, without a Spark."""

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from distributedlog.client.partitioner import partition_of
from distributedlog.model.errors import InvalidRecordError, RecordTooLargeError, UnknownTopicError
from distributedlog.records.layout import Header
from distributedlog.spark.sink.worker import KEPT, PRODUCERS_MAX, task_producer
from distributedlog.spark.sink.writer import (
    DlogWriter,
    Written,
    batch_writer,
    gathered,
    spelled,
    stream_writer,
    total,
)
from tests.ports import free_port
from tests.spark.sink_stage import Stage, stage

AT_LEAST_ONCE = {"delivery": "at-least-once"}
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("broker"), **{"auto.create.topics.enable": "false"}) as here:
        here.create("left", 2)
        yield here
    KEPT.close()


def writer(options: dict[str, str], ddl: str) -> DlogWriter:
    """Returns a writer that delivers at least once as it arrives in a task: pickled."""
    columns = [part.split() for part in ddl.split(";")]
    made = batch_writer(options | AT_LEAST_ONCE, _schema(columns), False)
    return pickle.loads(pickle.dumps(made))  # type: ignore[no-any-return]


def _schema(columns: list[list[str]]) -> StructType:
    from pyspark.sql import types

    kinds: dict[str, Any] = {
        "string": types.StringType(),
        "binary": types.BinaryType(),
        "int": types.IntegerType(),
        "timestamp": types.TimestampType(),
        "headers": types.ArrayType(
            types.StructType(
                [
                    types.StructField("key", types.StringType()),
                    types.StructField("value", types.BinaryType()),
                ]
            )
        ),
    }
    return StructType([types.StructField(name, kinds[kind]) for name, kind in columns])


def write(broker: Stage, ddl: str, *batches: pa.RecordBatch, **options: str) -> Written:
    return writer(broker.options(**options), ddl).write(iter(batches))


def test_every_field_of_a_row_arrives(broker: Stage) -> None:
    topic = broker.create("fields", 1)
    rows = pa.record_batch(
        {
            "key": pa.array([b"k", None, b""], pa.binary()),
            "value": pa.array(["v", "", None], pa.string()),
            "headers": pa.array([[("a", b"1"), ("b", None)], None, []], HEADERS),
            "timestamp": pa.array([1_700_000_000_123_456, 5_000, 0], pa.timestamp("us", "UTC")),
            "other": [1, 2, 3],
        }
    )
    ddl = "key binary; value string; headers headers; timestamp timestamp; other int"
    written = write(broker, ddl, rows, topic=topic)
    assert written.counts == {topic: {0: 3}}
    first, second, third = broker.read(topic)[0]
    assert (first.key, first.value, first.timestamp_ms) == (b"k", b"v", 1_700_000_000_123)
    assert first.headers == (Header("a", b"1"), Header("b", None))
    assert (second.key, second.value, second.headers, second.timestamp_ms) == (None, b"", (), 5)
    assert (third.key, third.value, third.timestamp_ms) == (b"", None, 0)


def test_a_row_without_a_time_gets_that_of_its_writing(broker: Stage) -> None:
    topic = broker.create("timeless", 1)
    write(broker, "value string", pa.record_batch({"value": ["a"]}), topic=topic)
    ((record,),) = broker.read(topic).values()
    assert record.timestamp_ms > 1_700_000_000_000


def test_keys_decide_and_rows_of_a_key_stay_in_order(broker: Stage) -> None:
    topic = broker.create("keys", 5)
    keys = [f"key-{number % 40}" for number in range(4000)]
    values = [str(number) for number in range(4000)]
    pieces = pa.table({"key": keys, "value": values}).to_batches(max_chunksize=300)
    written = write(broker, "key string; value string", *pieces, topic=topic, **{"kafka.batch.size": "900"})
    found = broker.read(topic)
    assert written.counts == {topic: {partition: len(records) for partition, records in found.items()}}
    assert written.rows == 4000
    for partition, records in found.items():
        expected = [v for k, v in zip(keys, values, strict=True) if partition_of(k.encode(), 5) == partition]
        assert [(record.value or b"").decode() for record in records] == expected


def test_a_partition_that_a_row_names_is_where_it_goes(broker: Stage) -> None:
    topic = broker.create("named", 3)
    rows = pa.record_batch(
        {"key": ["a", "a", "a"], "value": ["0", "1", "2"], "partition": pa.array([2, 0, None], pa.int32())}
    )
    write(broker, "key string; value string; partition int", rows, topic=topic)
    found = {
        (record.value or b"").decode(): partition
        for partition, records in broker.read(topic).items()
        for record in records
    }
    assert found == {"0": 2, "1": 0, "2": partition_of(b"a", 3)}


def test_rows_without_a_key_are_spread_over_all_partitions(broker: Stage) -> None:
    topic = broker.create("keyless", 3)
    rows = pa.table({"value": ["x" * 100] * 3000}).to_batches(max_chunksize=500)
    written = write(broker, "value string", *rows, topic=topic, **{"kafka.batch.size": "10000"})
    assert sum(written.counts[topic].values()) == 3000
    assert min(written.counts[topic][partition] for partition in range(3)) > 700


def test_the_option_topic_wins_over_the_column_as_in_sparks_kafka_sink(broker: Stage) -> None:
    topic = broker.create("chosen", 1)
    rows = pa.record_batch({"value": ["a", "b"], "topic": ["elsewhere", None]})
    assert write(broker, "value string; topic string", rows, topic=topic).counts == {topic: {0: 2}}


def test_rows_go_to_the_topics_that_they_name(broker: Stage) -> None:
    names = [broker.create("even", 2), broker.create("odd", 1)]
    rows = pa.record_batch(
        {"value": [str(n) for n in range(100)], "topic": [names[n % 2] for n in range(100)]}
    )
    written = write(broker, "value string; topic string", rows)
    assert {name: sum(counts.values()) for name, counts in written.counts.items()} == dict.fromkeys(names, 50)
    assert [int(record.value or b"") for record in broker.read("odd")[0]] == list(range(1, 100, 2))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_rows_are_compressed_as_they_are_told_to_be(broker: Stage, codec: str) -> None:
    topic = broker.create(f"packed-{codec}", 1)
    rows = pa.record_batch({"value": ["x" * 50] * 1000})
    write(broker, "value string", rows, topic=topic, **{"kafka.compression.type": codec})
    assert [record.value for record in broker.read(topic)[0]] == [b"x" * 50] * 1000
    size = (Path(broker.data_directory) / f"{topic}-0" / f"{0:020d}.log").stat().st_size
    assert (size > 50_000) == (codec == "none")


def test_large_types_of_arrow_are_read_like_the_small_ones(broker: Stage) -> None:
    """Spark hands these over with spark.sql.execution.arrow.useLargeVarTypes."""
    topic = broker.create("large-types", 1)
    rows = pa.record_batch(
        {"key": pa.array(["k"], pa.large_string()), "value": pa.array([b"v"], pa.large_binary())}
    )
    write(broker, "key string; value binary", rows, topic=topic)
    assert [(record.key, record.value) for record in broker.read(topic)[0]] == [(b"k", b"v")]


def test_a_task_without_rows_writes_nothing(broker: Stage) -> None:
    empty = pa.record_batch({"value": pa.array([], pa.string())})
    written = write(broker, "value string", empty, topic=broker.create("untouched", 1))
    assert (written, spelled(written)) == (Written({}), "0 rows")


# --- what is wrong with a row ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ddl", "columns", "options", "kind", "answer"),
    [
        ("value string; topic string", {"value": ["a", "b"], "topic": ["left", None]}, {},
         InvalidRecordError, r"row 3 of the task: its topic is null"),
        ("value string; topic string", {"value": ["a", "b"], "topic": ["left", "a/b"]}, {},
         InvalidRecordError, r"row 3 of the task: .*a/b"),
        ("key string; value string; partition int",
         {"key": ["k", "l" * 99], "value": ["a", "b"], "partition": pa.array([0, 2], pa.int32())},
         {"topic": "left"}, InvalidRecordError,
         r"row 3 of the task, whose key is 'l{40}'…: topic 'left' has partitions 0 to 1, not 2"),
        ("key string; value string; partition int",
         {"key": ["k", None], "value": ["a", "b"], "partition": pa.array([0, -1], pa.int32())},
         {"topic": "left"}, InvalidRecordError, r"row 3 of the task, which has no key: .* not -1"),
        ("value string; headers headers",
         {"value": ["a", "b"], "headers": pa.array([[], [(None, b"")]], HEADERS)},
         {"topic": "left"}, InvalidRecordError, r"row 3 of the task: it has a header without a key"),
        ("value string", {"value": ["a", "b" * 3000]}, {"topic": "left", "kafka.max.request.size": "2000"},
         RecordTooLargeError, r"row 3 of the task: it has 3000 bytes"),
        ("value string", {"value": ["a", "b"]}, {"topic": "nowhere"}, UnknownTopicError, "'nowhere'"),
    ],
    ids=["topic", "name", "partition", "negative", "header", "size", "unknown"],
)  # fmt: skip
def test_a_row_that_cannot_be_written_is_named(
    broker: Stage,
    monkeypatch: pytest.MonkeyPatch,
    ddl: str,
    columns: dict[str, Any],
    options: dict[str, str],
    kind: type[Exception],
    answer: str,
) -> None:
    monkeypatch.setattr("distributedlog.spark.sink.writer.GATHERED_BYTES", 1)
    monkeypatch.setattr("distributedlog.client.metadata.CREATION_TIMEOUT_MS", 0)
    rows = pa.record_batch(columns)
    sound = pa.concat_batches([rows.slice(0, 1)] * 2)
    with pytest.raises(kind, match=answer) as caught:
        writer(broker.options(**options), ddl).write(iter([sound, rows]))
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_batch_larger_than_the_topic_takes_is_sent_in_smaller_ones(broker: Stage) -> None:
    topic = broker.create("small-batches", 1, max_message_bytes="2000")
    rows = pa.record_batch({"value": [f"{number:0100d}" for number in range(500)]})
    assert write(broker, "value string", rows, topic=topic).rows == 500
    assert [int(record.value or b"") for record in broker.read(topic)[0]] == list(range(500))


def test_a_row_larger_than_the_topic_takes_fails_the_task(broker: Stage) -> None:
    topic = broker.create("small-rows", 1, max_message_bytes="2000")
    rows = pa.record_batch({"value": ["a", "b" * 3000]})
    with pytest.raises(RecordTooLargeError, match=r"a row for small-rows-0 .* max.message.bytes"):
        write(broker, "value string", rows, topic=topic)


# --- what a task says, and who believes it -----------------------------------------------------


def test_a_cancelled_task_tells_of_less_than_it_was_given_and_nobody_has_committed_it(
    broker: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark ends the input of a task that it cancels as if that were all: `write` returns as it always does.
    What counts is said by the driver alone, of the attempts that it names."""
    topic = broker.create("cancelled", 1)
    pieces = [pa.record_batch({"value": [f"{n}-{row}" for row in range(10)]}) for n in range(4)]
    here = writer(broker.options(topic=topic), "value string")
    with caplog.at_level("INFO", "distributedlog.spark"):
        truncated = here.write(iter(pieces[:1]))
        whole = here.write(iter(pieces))
        assert (truncated.rows, whole.rows) == (10, 40)
        assert caplog.messages == []
        here.commit([whole, None])
        assert caplog.messages == [f"written: 40 rows: {topic} {{0: 40}}"]
        here.abort([None, truncated])
        assert caplog.messages[1:] == [
            f"not all was written; what was stays: at least 10 rows: {topic} {{0: 10}}"
        ]
    assert len(broker.read(topic)[0]) == 50  # at least once: the cancelled attempt's rows are there as well


def test_a_stream_says_what_each_micro_batch_wrote(caplog: pytest.LogCaptureFixture) -> None:
    told = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"} | AT_LEAST_ONCE
    here = stream_writer(told, _schema([["value", "string"]]), overwrite=True)
    here.commit([Written({"t": {0: 2}}), None, Written({"t": {0: 1, 1: 4}})], 7)
    here.abort([None], 8)
    assert caplog.messages == [
        "batch 7: written: 7 rows: t {0: 3, 1: 4}",
        "batch 8: not all was written; what was stays: how much, no task has told",
    ]


def test_what_tasks_tell_is_added_up() -> None:
    told = [Written({"a": {0: 1, 2: 2}}), None, Written({"a": {0: 3}, "b": {1: 1}})]
    assert spelled(total(told)) == "7 rows: a {0: 4, 2: 2}, b {1: 1}"
    assert pickle.loads(pickle.dumps(told[0])) == told[0]


def test_small_pieces_are_gathered_and_none_is_lost() -> None:
    pieces = [pa.record_batch({"value": pa.array([f"{n}"] * n, pa.string())}) for n in range(20)]
    found = list(gathered(iter(pieces), bytes_wanted=500))
    assert 1 < len(found) < 19
    assert pa.Table.from_batches(found) == pa.Table.from_batches(pieces)


# --- the producer of a process -----------------------------------------------------------------


def test_the_next_task_goes_on_with_the_same_producer(broker: Stage) -> None:
    topic = broker.create("kept", 1)
    for _ in range(3):
        write(broker, "value string", pa.record_batch({"value": ["a"]}), topic=topic)
    assert _producer_count(broker, topic) == 1


def test_a_task_that_failed_takes_its_producer_with_it(broker: Stage) -> None:
    topic = broker.create("not-kept", 1)

    def breaking() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"value": ["a" * 5_000_000]})
        raise OSError("the input broke")

    here = writer(broker.options(topic=topic, **{"kafka.batch.size": "1"}), "value string")
    with pytest.raises(OSError, match="the input broke"):
        here.write(breaking())
    write(broker, "value string", pa.record_batch({"value": ["b"]}), topic=topic, **{"kafka.batch.size": "1"})
    assert [record.value for record in broker.read(topic)[0]][-1] == b"b"


def test_more_kinds_of_sinks_than_are_kept_do_not_pile_up(broker: Stage) -> None:
    topic = broker.create("kinds", 1)
    before = threading.active_count()
    for number in range(PRODUCERS_MAX + 3):
        rows = pa.record_batch({"value": ["a"]})
        write(broker, "value string", rows, topic=topic, **{"kafka.client.id": f"me-{number}"})
    assert threading.active_count() <= before + PRODUCERS_MAX


def test_a_forked_process_makes_a_producer_of_its_own(broker: Stage) -> None:
    topic = broker.create("forked", 1)
    here = writer(broker.options(topic=topic), "value string")
    here.write(iter([pa.record_batch({"value": ["parent"]})]))
    code = f"""
import os, pickle, pyarrow as pa
here = pickle.loads({pickle.dumps(here)!r})
here.write(iter([pa.record_batch({{"value": ["parent"]}})]))
child = os.fork()
here.write(iter([pa.record_batch({{"value": ["child" if child == 0 else "parent"]}})]))
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
here.write(iter([pa.record_batch({{"value": ["parent"]}})]))
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    values = sorted(record.value or b"" for record in broker.read(topic)[0])
    assert values == [b"child", b"parent", b"parent", b"parent", b"parent"]


def _producer_count(broker: Stage, topic: str) -> int:
    from distributedlog.records.batch import scan

    data = (Path(broker.data_directory) / f"{topic}-0" / f"{0:020d}.log").read_bytes()
    return len({header.producer_id for header in scan(data).headers})


# --- a broker that is away ---------------------------------------------------------------------


def test_a_broker_that_stops_for_a_while_costs_time_and_no_row_twice(tmp_path: Path) -> None:
    with stage(tmp_path) as broker:
        topic = broker.create("paused", 2)
        process = broker.server.process
        assert process is not None
        settings = {"kafka.request.timeout.ms": "300", "topic": topic, "kafka.batch.size": "2000"}
        values = [str(number) for number in range(5000)]

        def pieces() -> Iterator[pa.RecordBatch]:
            for at in range(0, 5000, 1000):
                if at == 2000:
                    os.kill(process.pid, signal.SIGSTOP)
                    threading.Timer(1.0, os.kill, (process.pid, signal.SIGCONT)).start()
                yield pa.record_batch({"key": values[at : at + 1000], "value": values[at : at + 1000]})

        here = writer(broker.options(**settings), "key string; value string")
        assert here.write(pieces()).rows == 5000
        found = [record.value or b"" for records in broker.read(topic).values() for record in records]
        assert sorted(found) == sorted(value.encode() for value in values)
        KEPT.close()


def test_a_broker_that_is_killed_and_comes_back_has_every_row_once(tmp_path: Path) -> None:
    """Every row is there once, of one attempt: batches that were written and not acknowledged are known when
    they come again."""
    with stage(tmp_path, listeners=f"PLAINTEXT://127.0.0.1:{free_port()}") as broker:
        topic = broker.create("killed", 2)
        values = [f"{number:0100d}" for number in range(6000)]

        def pieces() -> Iterator[pa.RecordBatch]:
            for at in range(0, 6000, 500):
                yield pa.record_batch({"key": values[at : at + 500], "value": values[at : at + 500]})
                if at in (1000, 2500, 4500):
                    broker.server.stop(signal.SIGKILL)
                    broker.server.restart()

        settings = {"topic": topic, "kafka.batch.size": "3000", "kafka.request.timeout.ms": "5000"}
        here = writer(broker.options(**settings), "key string; value string")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("distributedlog.spark.sink.writer.GATHERED_BYTES", 1)
            assert here.write(pieces()).rows == 6000
        found = [record.value or b"" for records in broker.read(topic).values() for record in records]
        assert sorted(found) == [value.encode() for value in values]
        KEPT.close()


def test_a_writer_is_the_same_after_its_journey() -> None:
    told = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"} | AT_LEAST_ONCE
    here = writer(told, "value string")
    made = batch_writer(told, _schema([["value", "string"]]), False)
    assert isinstance(made, DlogWriter)
    assert replace(here._options) == made._options
    with task_producer(here._options) as producer:
        assert producer.options == here._options
    KEPT.close()
