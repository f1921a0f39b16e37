"""Rows in and rows out, against a real broker."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

import pyarrow as pa
import pytest

from distributedlog import Admin, Consumer, NewTopic, Producer, TopicPartition, aio
from distributedlog.client.faces.blocking_producer import TURN_RECORDS_MAX
from distributedlog.client.partitioner import partition_of
from distributedlog.model.errors import InvalidRecordError, InvalidRequestError, RecordTooLargeError
from tests.unit.client.faces.stage import running_broker


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_broker(tmp_path_factory.mktemp("broker")) as address:
        with Admin(address) as admin:
            for name in ("rows", "frames", "aio", "small", "order"):
                configs = {"max.message.bytes": "500"} if name == "small" else {}
                admin.create_topic(NewTopic(name, 3, configs=configs))
        yield address


def read(bootstrap: str, topic: str, wanted: int) -> pa.Table:
    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, each) for each in range(3)])
        tables: list[pa.Table] = []
        while sum(each.num_rows for each in tables) < wanted:
            tables.append(consumer.poll_arrow(1000))
        with pytest.raises(InvalidRequestError, match="not for both"):
            consumer.poll(10)
        assert consumer.metrics()["records"] == wanted
        assert sum(consumer.lag().values()) == 0
    return pa.concat_tables(tables)


def test_rows_go_where_their_keys_belong_and_come_back(bootstrap: str) -> None:
    keys = [f"k{number % 50}" for number in range(5000)]
    table = pa.table({"key": keys, "value": [str(number) for number in range(5000)]})
    with Producer(bootstrap, batch_size=10_000, compression="lz4") as producer:
        sent = producer.send_batch("rows", table).result(60)
        assert (sent.rows, sent.batches > 3) == (5000, True)
        with pytest.raises(InvalidRecordError, match="does not have: 0 to 2"):
            producer.send_batch("rows", pa.table({"value": ["x"], "partition": [3]}))
        with pytest.raises(InvalidRecordError, match="not list"):
            producer.send_batch("rows", [1])
        assert producer.send_batch("rows", table.slice(0, 0)).result(60).rows == 0
    found = read(bootstrap, "rows", 5000).to_pylist()
    assert sorted(int(each["value"]) for each in found) == list(range(5000))
    assert all(each["partition"] == partition_of(each["key"], 3) for each in found)
    for partition in range(3):
        offsets = [each["offset"] for each in found if each["partition"] == partition]
        assert offsets == list(range(len(offsets)))


def test_rows_come_behind_what_the_thread_has_sent_before(bootstrap: str) -> None:
    """The loop stands still until there is more in the inbox than it takes in one turn."""
    count = 3 * TURN_RECORDS_MAX
    go_on = threading.Event()
    with Producer(bootstrap) as producer:
        producer.partitions_for("order")
        submit = producer._thread.submit

        def submit_and_go_on(work: Coroutine[Any, Any, Any]) -> "concurrent.futures.Future[Any]":
            try:
                return submit(work)
            finally:
                go_on.set()

        producer._thread.call_soon(go_on.wait, 60)
        for number in range(count):
            producer.send("order", str(number), partition=0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(producer._thread, "submit", submit_and_go_on)
            producer.send_batch("order", pa.table({"value": [str(count)], "partition": [0]}))
    found = read(bootstrap, "order", count + 1).column("value").to_pylist()
    assert list(map(int, found)) == list(range(count + 1))


def test_frames_are_rows_as_well(bootstrap: str) -> None:
    import pandas as pd  # type: ignore[import-untyped]

    frame = pd.DataFrame({"value": ["a", "b"], "partition": [2, 0]})
    with Producer(bootstrap) as producer:
        assert producer.send_batch("frames", frame).result(60).rows == 2
    back = read(bootstrap, "frames", 2).to_pandas()
    assert sorted(zip(back["partition"], back["value"], strict=True)) == [(0, b"b"), (2, b"a")]


def test_the_asyncio_face_sends_rows_and_a_table_that_is_refused_is_told(bootstrap: str) -> None:
    async def story() -> None:
        async with asyncio.timeout(60), aio.Producer(bootstrap) as producer:
            rows = pa.record_batch({"value": ["a", "b", "c"]})
            assert await (await producer.send_batch("aio", rows)) == (3, 1)
            refused = await producer.send_batch("small", pa.table({"value": ["x" * 1000, "y" * 1000]}))
            with pytest.raises(RecordTooLargeError):
                await refused

    asyncio.run(story())
