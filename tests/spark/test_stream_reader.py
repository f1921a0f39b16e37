"""What the driver's process of a query answers, asked as Spark asks it; against a real broker.

Each pitfall of Spark's interface that concerns a stream's source has a test here that fails without its
remedy.
"""

import json
import os
import pickle
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from distributedlog.client.offset_specs import Isolation
from distributedlog.client.options import ClientOptions
from distributedlog.model.errors import (
    ConfigError,
    DlogError,
    OffsetOutOfRangeError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from distributedlog.model.ids import TopicPartition
from distributedlog.spark.connections import close_connections, connect
from distributedlog.spark.source.fetching import Task
from distributedlog.spark.source.stream_reader import StreamReader
from distributedlog.spark.source.watching import FAILURE_PAUSE_MS, Watch
from tests.spark.topics import Topics, until
from tests.system.server_process import ServerProcess

IMPATIENT = {"fetchOffset.numRetries": "2", "fetchOffset.retryIntervalMs": "20"}


@pytest.fixture(autouse=True)
def no_links_left() -> Iterator[None]:
    yield
    close_connections()


def reader(topics: Topics, name: str, **options: str) -> StreamReader:
    return StreamReader({**topics.options(subscribe=name, **options), **IMPATIENT})


def offsets(told: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Without the ids of topics."""
    return {topic: partitions for topic, partitions in told.items() if "@" not in topic}


def next_end(asked: StreamReader, start: dict[str, Any]) -> dict[str, Any]:
    return asked.latestOffset(start, asked.getDefaultReadLimit())


def rows(asked: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
    found: list[bytes] = []
    for task in asked.partitions(start, end):
        sent = pickle.loads(pickle.dumps(task))
        for batch in asked.read(sent):
            found += [value.as_py() for value in batch.column("value")]
    return found


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


# --- the first micro-batch ---------------------------------------------------------------------


@pytest.mark.parametrize("starting", ["latest", "-1h", '{"NAME":{"0":-1}}'])
def test_a_beginning_that_moves_is_journaled_before_anything_is_read(topics: Topics, starting: str) -> None:
    name = topics.create("first")
    first = reader(topics, name, startingOffsets=starting.replace("NAME", name))
    start = first.initialOffset()
    topics.produce(name, numbered(3))
    assert first.initialOffset() == start  # Spark asks twice
    assert next_end(first, start) == start  # the micro-batch that journals it
    end = next_end(first, start)
    assert rows(first, start, end) == numbered(3)
    again = reader(topics, name, startingOffsets=starting.replace("NAME", name))  # the driver has died
    assert rows(again, start, next_end(again, start)) == numbered(3)


def test_a_beginning_that_stays_needs_no_empty_micro_batch(topics: Topics) -> None:
    name = topics.create("stays")
    topics.produce(name, numbered(3))
    asked = reader(topics, name, startingOffsets="earliest")
    start = asked.initialOffset()
    assert rows(asked, start, next_end(asked, start)) == numbered(3)


def test_a_query_that_runs_once_takes_what_is_there(topics: Topics) -> None:
    name = topics.create("once")
    topics.produce(name, numbered(3))
    asked = reader(topics, name, startingOffsets="-1h", maxOffsetsPerTrigger="1")
    start = asked.initialOffset()
    assert rows(asked, start, asked.latestOffset(start, ReadAllAvailable())) == numbered(3)


def test_large_records_are_not_held_back_until_there_are_many(topics: Topics) -> None:
    name = topics.create("large")
    topics.produce(name, [bytes(900_000)] * 12)
    asked = reader(topics, name, startingOffsets="earliest")
    start = asked.initialOffset()
    (task,) = asked.partitions(start, next_end(asked, start))
    batches = list(asked.read(task))
    assert sum(batch.num_rows for batch in batches) == 12
    assert max(batch.num_rows for batch in batches) <= 8, "a fetch of 4 MiB, and what was held before it"


# --- how much ----------------------------------------------------------------------------------


def test_a_micro_batch_takes_at_most_so_many_offsets(topics: Topics) -> None:
    name = topics.create("limited", 2)
    topics.produce(name, numbered(90), 0)
    topics.produce(name, numbered(10), 1)
    asked = reader(topics, name, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    assert asked.getDefaultReadLimit() == ReadMaxRows(10)
    start = asked.initialOffset()
    assert offsets(next_end(asked, start)) == {name: {"0": 9, "1": 1}}


def test_a_micro_batch_takes_about_so_many_bytes(topics: Topics) -> None:
    name = topics.create("bytes", 2)
    topics.produce(name, [bytes(1000)] * 400, 0)
    topics.produce(name, [bytes(10)] * 400, 1)
    asked = reader(topics, name, startingOffsets="earliest", maxBytesPerTrigger="100000")
    start = asked.initialOffset()
    end = offsets(next_end(asked, start))[name]
    assert 80 <= end["0"] <= 110, "an offset of the first takes about 1,010 bytes"
    assert end["1"] == end["0"], "each gives the same share of what it has"
    many = reader(topics, name, startingOffsets="earliest", maxBytesPerTrigger="1")
    assert offsets(next_end(many, many.initialOffset())) == {name: {"0": 1, "1": 1}}, (
        "it goes on all the same"
    )


def test_few_offsets_wait_for_more_or_for_the_delay(topics: Topics) -> None:
    name = topics.create("few")
    topics.produce(name, numbered(2))
    few = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "5"}
    asked = reader(topics, name, **few, maxTriggerDelay="1h")
    start = asked.initialOffset()
    first = next_end(asked, start)
    assert offsets(first) == {name: {"0": 2}}, "the first micro-batch does not wait"
    topics.produce(name, numbered(2))
    assert next_end(asked, first) == first
    topics.produce(name, numbered(3))
    assert offsets(next_end(asked, first)) == {name: {"0": 7}}
    impatient = reader(topics, name, **few, maxTriggerDelay="1ms")
    assert offsets(next_end(impatient, {name: {"0": 6}})) == {name: {"0": 7}}
    topics.produce(name, numbered(1))
    until(lambda: offsets(next_end(impatient, {name: {"0": 7}})) == {name: {"0": 8}}, "the delay")


def test_what_is_available_now_does_not_grow(topics: Topics) -> None:
    name = topics.create("now")
    topics.produce(name, numbered(3))
    asked = reader(topics, name, startingOffsets="earliest", minOffsetsPerTrigger="100")
    asked.prepareForTriggerAvailableNow()
    start = asked.initialOffset()
    end = next_end(asked, start)
    topics.produce(name, numbered(3, 3))
    assert offsets(end) == {name: {"0": 3}}
    begun = time.monotonic()
    assert next_end(asked, end) == end
    assert time.monotonic() - begun < 0.4, "nothing is waited for"
    assert rows(asked, start, end) == numbered(3)


def test_an_end_before_the_start_has_no_tasks(topics: Topics) -> None:
    name = topics.create("backwards")
    asked = reader(topics, name)
    assert asked.partitions({name: {"0": 5}}, {name: {"0": 3}}) == []
    assert asked.partitions({name: {"0": 5}}, {name: {"0": 5}}) == []


def test_tasks_are_split_as_the_options_say(topics: Topics) -> None:
    name = topics.create("tasks")
    asked = reader(topics, name, minPartitions="4")
    tasks = asked.partitions({name: {"0": 0}}, {name: {"0": 10}})
    assert [(task.start, task.end) for task in tasks if isinstance(task, Task)] == [
        (0, 2), (2, 4), (4, 7), (7, 10),
    ]  # fmt: skip


# --- nothing new -------------------------------------------------------------------------------


def test_an_idle_query_asks_rarely_and_yet_sees_a_record_at_once(topics: Topics) -> None:
    name = topics.create("idle", 2)
    asked = reader(topics, name, startingOffsets="earliest")
    start = asked.initialOffset()
    calls = 0
    begun = time.monotonic()
    while time.monotonic() - begun < 2.0:
        assert next_end(asked, start) == start
        calls += 1
    assert calls <= 10, "Spark would ask a hundred times"
    sent_at = 0.0

    def send() -> None:
        nonlocal sent_at
        sent_at = time.monotonic()
        topics.produce(name, [b"news"], 1)

    later = threading.Timer(0.1, send)
    later.start()
    end = start
    while end == start:
        end = next_end(asked, start)
    seen_at = time.monotonic()
    later.join()
    assert offsets(end) == {name: {"0": 0, "1": 1}}
    assert seen_at - sent_at < 0.35, "it was woken, it did not sleep its time out"


def test_a_broker_that_refuses_to_wait_makes_the_watch_look_for_leaders_again(topics: Topics) -> None:
    """It looks again, and not at once: one that goes on refusing would be asked without end."""
    connected = connect(topics.bootstrap, ClientOptions(), "watch")
    watch = Watch(connected.cluster, Isolation.READ_UNCOMMITTED)
    behind_the_end = {TopicPartition(topics.create("refused"), 0): 100}
    began = time.monotonic()
    connected.run(watch.wait(behind_the_end, 10_000))
    assert FAILURE_PAUSE_MS / 1000 <= time.monotonic() - began < 5
    assert connected.cluster.is_stale


def test_a_micro_batch_of_another_source_makes_the_wait_short_again(topics: Topics) -> None:
    name = topics.create("shared")
    asked = reader(topics, name, startingOffsets="earliest")
    start = asked.initialOffset()
    for _ in range(6):
        next_end(asked, start)
    asked.commit(start)  # what Spark says to each source after a micro-batch, whoever had the rows
    begun = time.monotonic()
    next_end(asked, start)
    assert time.monotonic() - begun < 0.2


# --- progress ----------------------------------------------------------------------------------


def test_progress_is_told_to_a_group(topics: Topics) -> None:
    name = topics.create("progress", 2)
    topics.produce(name, numbered(4), 1)
    asked = reader(topics, name, startingOffsets="earliest", kafka__group__id="reports")
    start = asked.initialOffset()
    end = next_end(asked, start)
    topics.produce(name, numbered(1), 1)
    last = next_end(asked, end)
    asked.commit(end)  # it comes after the question about the next one
    told = {TopicPartition(name, 0): 0, TopicPartition(name, 1): 4}
    until(lambda: topics.group_positions("reports") == told, "it is told beside the micro-batches")
    assert next_end(asked, last) == last
    caught_up = topics.group_positions("reports")
    assert caught_up[TopicPartition(name, 1)] == 5, "a query that has caught up does not look one behind"
    assert asked.reportLatestOffset() == last


def test_the_first_group_of_a_cluster_is_there_after_the_first_run(tmp_path: Path) -> None:
    """What groups are kept in is made while the query reads: at its end there is no time for that."""
    with ServerProcess(tmp_path, {}) as server:
        topics = Topics(str(server.facts["client"]))
        name = topics.create("fresh")
        topics.produce(name, numbered(5))
        asked = reader(topics, name, startingOffsets="earliest", kafka__group__id="the first")
        end = next_end(asked, asked.initialOffset())
        client = AdminClient({"bootstrap.servers": topics.bootstrap})
        until(lambda: "__consumer_offsets" in client.list_topics(timeout=10).topics, "it is made meanwhile")
        assert next_end(asked, end) == end
        asked.stop()
        assert topics.group_positions("the first") == {TopicPartition(name, 0): 5}


def test_without_a_name_the_group_is_called_after_the_topics(topics: Topics) -> None:
    name = topics.create("unnamed")
    asked = reader(topics, name, startingOffsets="earliest")
    asked.commit(asked.initialOffset())
    assert topics.group_positions(f"spark-{name}") == {TopicPartition(name, 0): 0}
    silent = reader(topics, name, commitOffsets="false", groupIdPrefix="nobody")
    silent.commit(silent.initialOffset())
    assert topics.group_positions(f"nobody-{name}") == {}


# --- what changes while it runs ----------------------------------------------------------------


def test_new_partitions_and_topics_join_at_their_beginning(topics: Topics) -> None:
    word = topics.new_name("growing")
    topics.create_named(f"{word}-a")
    asked = StreamReader(
        topics.options(
            subscribePattern=f"^{word}-", startingOffsets="latest", partition__metadata__cache__ttl__ms="1"
        )
    )
    start = asked.initialOffset()
    assert next_end(asked, start) == start
    topics.add_partitions(f"{word}-a", 2)
    topics.produce(f"{word}-a", numbered(2), 1)
    topics.create_named(f"{word}-b")
    topics.produce(f"{word}-b", numbered(3))
    end = start
    while len(offsets(end)) < 2:
        end = next_end(asked, start)
    assert offsets(end) == {f"{word}-a": {"0": 0, "1": 2}, f"{word}-b": {"0": 3}}
    assert rows(asked, start, end) == numbered(2) + numbered(3)


def test_a_new_partition_that_has_lost_its_beginning_is_an_error(topics: Topics) -> None:
    name = topics.create("late", 2)
    topics.produce(name, numbered(5), 1)
    topics.delete_records(name, 1, 2)
    start, end = {name: {"0": 0}}, {name: {"0": 0, "1": 5}}
    with pytest.raises(OffsetOutOfRangeError, match=f"{name}-1 came while the query was running, and begins"):
        reader(topics, name).partitions(start, end)
    assert rows(reader(topics, name, failOnDataLoss="false"), start, end) == numbered(5)[2:]


def test_records_that_were_cut_out_of_a_batch_do_not_come_back(topics: Topics) -> None:
    name = topics.create("cut")
    topics.produce(name, numbered(10))  # in few batches: the log begins in the middle of one
    topics.delete_records(name, 0, 7)
    start, end = {name: {"0": 3}}, {name: {"0": 10}}
    assert rows(reader(topics, name, failOnDataLoss="false"), start, end) == numbered(3, 7)
    with pytest.raises(OffsetOutOfRangeError, match=f"{name}-0 has no offsets 3 to 6 any more"):
        rows(reader(topics, name), start, end)


def remake(topics: Topics, name: str) -> None:
    topics.delete(name)
    topics.create_named(name)


def test_a_topic_that_is_made_again_is_noticed_while_the_query_runs(topics: Topics) -> None:
    name = topics.create("remade")
    topics.produce(name, numbered(3))
    asked = reader(topics, name, startingOffsets="earliest", partition__metadata__cache__ttl__ms="1")
    start = asked.initialOffset()
    end = next_end(asked, start)
    remake(topics, name)
    topics.produce(name, numbered(9))
    with pytest.raises(UnknownTopicIdError, match=f"the topic '{name}' was deleted and made again"):
        next_end(asked, end)


def test_a_topic_that_was_made_again_is_noticed_after_a_restart(topics: Topics) -> None:
    name = topics.create("remade")
    topics.produce(name, numbered(3))
    before = reader(topics, name, startingOffsets="earliest")
    end = next_end(before, before.initialOffset())
    remake(topics, name)
    topics.produce(name, numbered(9))  # more than there were: offsets alone would tell nothing
    with pytest.raises(UnknownTopicIdError, match=f"the topic '{name}' was deleted and made again"):
        next_end(reader(topics, name), end)
    with pytest.raises(ConfigError, match=f"positions of another topic '{name}'"):
        reader(topics, name, startingOffsets=json.dumps(end)).initialOffset()
    lenient = reader(topics, name, failOnDataLoss="false")
    assert rows(lenient, end, next_end(lenient, end)) == numbered(9)


def test_a_task_reads_no_other_topic_of_the_same_name(topics: Topics) -> None:
    name = topics.create("remade")
    topics.produce(name, numbered(3))
    asked = reader(topics, name, startingOffsets="earliest")
    start = asked.initialOffset()
    end = next_end(asked, start)
    (task,) = asked.partitions(start, end)
    remake(topics, name)
    topics.produce(name, numbered(9))
    close_connections()
    with pytest.raises(UnknownTopicIdError, match="was deleted and made again"):
        list(reader(topics, name).read(task))


def test_a_topic_that_is_gone_is_an_error_that_names_it(topics: Topics) -> None:
    name = topics.create("gone")
    topics.produce(name, numbered(3))
    asked = reader(topics, name, startingOffsets="earliest", partition__metadata__cache__ttl__ms="1")
    end = next_end(asked, asked.initialOffset())
    topics.delete(name)
    with pytest.raises(UnknownTopicError, match=f"the topic '{name}' is gone"):
        next_end(asked, end)
    lenient = reader(topics, name, failOnDataLoss="false")
    assert next_end(lenient, end) == {}


def test_an_end_that_went_back_is_an_error_that_names_it(topics: Topics) -> None:
    name = topics.create("shrunk")
    topics.produce(name, numbered(3))
    with pytest.raises(OffsetOutOfRangeError, match=f"{name}-0 ends at 3, and the query was at 7"):
        next_end(reader(topics, name), {name: {"0": 7}})


# --- taking over -------------------------------------------------------------------------------


def test_a_position_that_sparks_kafka_source_journaled_is_taken_over(topics: Topics) -> None:
    name = topics.create("taken", 2)
    topics.produce(name, numbered(5))
    theirs = json.loads(f'{{"{name}":{{"1":0,"0":2}}}}')
    asked = reader(topics, name)
    end = next_end(asked, theirs)
    assert rows(asked, theirs, end) == numbered(5)[2:]
    assert all(not partitions for topic, partitions in end.items() if topic not in theirs), (
        "what is ours has no partition in it: their source reads it as nothing"
    )


def test_a_reader_that_is_sent_to_workers_has_no_connection_in_it(topics: Topics) -> None:
    name = topics.create("sent")
    asked = reader(topics, name)
    sent = pickle.loads(pickle.dumps(asked))
    topics.produce(name, numbered(2))
    (task,) = asked.partitions({name: {"0": 0}}, {name: {"0": 2}})
    assert [row for batch in sent.read(task) for row in batch.column("value").to_pylist()] == numbered(2)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_worker_leaves_its_parents_connections_alone(topics: Topics) -> None:
    name = topics.create("forked")
    topics.produce(name, numbered(50))
    asked = reader(topics, name, kafka__max__partition__fetch__bytes="200")
    (task,) = asked.partitions({name: {"0": 0}}, {name: {"0": 50}})
    reading = asked.read(task)
    assert next(reading).num_rows > 0
    child = os.fork()
    if child == 0:
        try:
            found = [row for batch in asked.read(task) for row in batch.column("value").to_pylist()]
            os._exit(0 if found == numbered(50) else 1)
        except BaseException:  # a test that runs twice would be worse than any message
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert [row for batch in asked.read(task) for row in batch.column("value").to_pylist()] == numbered(50)


def test_a_broker_that_is_not_there_is_waited_for_and_then_named() -> None:
    asked = StreamReader(
        {
            "kafka.bootstrap.servers": "127.0.0.1:9",
            "subscribe": "t",
            "kafka.default.api.timeout.ms": "300",
            "kafka.retry.backoff.ms": "20",
        }
    )
    begun = time.monotonic()
    with pytest.raises(DlogError, match=r"127\.0\.0\.1:9 cannot be reached"):
        asked.initialOffset()
    assert time.monotonic() - begun > 0.1
