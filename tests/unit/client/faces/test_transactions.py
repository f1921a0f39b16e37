"""Transactions of both faces against a real broker, in both flows: all of it is there, or nothing."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from distributedlog import (
    Admin,
    Consumer,
    NewTopic,
    Producer,
    ProducerFencedError,
    RecordTooLargeError,
    TopicPartition,
    TransactionAbortableError,
    TransactionAbortedError,
    aio,
)
from distributedlog.client.accumulator import Batch
from distributedlog.client.addresses import Address, parse_bootstrap
from distributedlog.client.admin.transactions import TransactionAdmin
from distributedlog.client.errors import error_from
from distributedlog.client.metadata import Cluster
from distributedlog.client.producer import Producer as CoreProducer
from distributedlog.client.producer import ProducerOptions
from distributedlog.client.reports import Delivery
from distributedlog.client.transactions import manager
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import (
    ConfigError,
    DlogError,
    GroupRebalancedError,
    InvalidTransactionStateError,
)
from distributedlog.records.record import Record
from tests.ports import free_port
from tests.unit.client.faces.stage import running_broker

WAIT_S = 60
_numbers = count()
FLOWS = ["classic", "version 2"]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_broker(tmp_path_factory.mktemp("broker")) as address:
        yield address


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"t{next(_numbers)}"
    with Admin(bootstrap) as admin:
        admin.create_topic(NewTopic(name, 3, configs={"max.message.bytes": "10000"}))
    return name


@pytest.fixture(params=FLOWS)
def flow(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A broker whose `transaction.version` is too low for the flow of KIP-890, or not."""
    flow: str = request.param
    if flow == "classic":
        monkeypatch.setattr(manager, "IMPLICIT_LEVEL", 99)
    return flow


def values(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[str]:
    """What stands there, up to the end."""
    partitions = [TopicPartition(topic, each) for each in range(3)]
    found = []
    with Consumer(bootstrap, isolation_level=isolation) as consumer:  # type: ignore[arg-type]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(each) < end for each, end in ends.items()):
            found += [(each.value or b"").decode() for each in consumer.poll(200)]
    return sorted(found)


def test_records_that_are_too_large_together_are_in_the_transaction_all_the_same(
    bootstrap: str, topic: str, flow: str
) -> None:
    sent = [f"{number:04}" + "x" * 500 for number in range(100)]
    with Producer(bootstrap, transactional_id=topic, batch_size=100_000, linger_ms=5_000) as producer:
        with producer.transaction():
            for each in sent:
                producer.send(topic, each, partition=0)
        assert producer.metrics()["batches_delivered"] > 5
    assert values(bootstrap, topic) == sent


def test_what_a_block_sends_is_committed_with_it_or_not_at_all(bootstrap: str, topic: str, flow: str) -> None:
    def send_and_fail(producer: Producer) -> None:
        with producer.transaction():
            producer.send(topic, "aborted", partition=0).result(WAIT_S)
            producer.send(topic, "aborted", partition=1)
            raise KeyError

    with Producer(bootstrap, transactional_id=f"{topic}-id", linger_ms=0) as producer:
        for number in range(3):
            with producer.transaction():
                for partition in range(3):
                    producer.send(topic, f"committed {number}", partition=partition)
            with pytest.raises(KeyError):
                send_and_fail(producer)
        with producer.transaction():
            pass
        with pytest.raises(InvalidTransactionStateError, match="without a transaction"):
            producer.send(topic, "outside")
    wanted = sorted(3 * [f"committed {number}" for number in range(3)])
    assert values(bootstrap, topic) == wanted
    assert "aborted" in values(bootstrap, topic, "read_uncommitted")


def test_asyncio_has_the_same(bootstrap: str, topic: str, flow: str) -> None:
    async def story() -> None:
        async with asyncio.timeout(WAIT_S), aio.Producer(bootstrap, transactional_id=topic) as producer:
            async with producer.transaction():
                delivery = await producer.send(topic, "committed")
            assert (await delivery).offset == 0
            await producer.begin_transaction()
            dropped = await producer.send(topic, "aborted")
            await producer.abort_transaction()
            with pytest.raises(TransactionAbortedError):
                await dropped
            async with producer.transaction():
                await producer.send(topic, "and again")

    asyncio.run(story())
    assert values(bootstrap, topic) == ["and again", "committed"]


def test_a_block_that_is_cancelled_while_it_delivers_is_aborted(
    bootstrap: str, topic: str, flow: str
) -> None:
    async def story() -> None:
        async with aio.Producer(bootstrap, transactional_id=topic, linger_ms=60_000) as producer:
            delivering = asyncio.Event()

            async def transact() -> None:
                async with producer.transaction():
                    await producer.send(topic, "cancelled")
                    delivering.set()  # from here to what the flush waits for there is no await

            task = asyncio.create_task(transact())
            await delivering.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with producer.transaction():
                await producer.send(topic, "committed")

    asyncio.run(asyncio.wait_for(story(), WAIT_S))
    assert values(bootstrap, topic) == ["committed"]


def test_a_block_that_is_cancelled_while_its_commit_is_asked_for_says_that_nobody_knows(
    bootstrap: str, topic: str, flow: str
) -> None:
    async def story() -> None:
        async with aio.Producer(bootstrap, transactional_id=topic) as producer:
            committing = asyncio.Event()

            async def transact() -> None:
                async with producer.transaction():
                    await producer.send_and_wait(topic, "in doubt")
                    committing.set()  # nothing is left to deliver

            task = asyncio.create_task(transact())
            await committing.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as cancelled:
                await task
            assert "nobody knows yet whether the commit was done" in cancelled.value.__notes__[0]
            await producer.commit_transaction()
            async with producer.transaction():
                await producer.send(topic, "the next one")

    asyncio.run(asyncio.wait_for(story(), WAIT_S))
    assert values(bootstrap, topic) == ["in doubt", "the next one"]


def test_batches_of_rows_that_are_too_large_are_halved_and_the_transaction_goes_on(
    bootstrap: str, topic: str, flow: str
) -> None:
    texts = [f"{number:03d}".ljust(1_000) for number in range(200)]
    rows = pa.table({"value": texts, "partition": [0] * len(texts)})
    with Producer(bootstrap, transactional_id=topic, batch_size=30_000) as producer:
        for _ in range(2):  # in the second one several batches are under way from its beginning
            with producer.transaction():
                producer.send_batch(topic, rows).result(WAIT_S)
    assert values(bootstrap, topic) == sorted(texts * 2)


def test_a_record_that_fails_aborts_all_and_the_next_transaction_goes_on(
    bootstrap: str, topic: str, flow: str
) -> None:
    def send_too_much(producer: Producer) -> None:
        with producer.transaction():
            producer.send(topic, "before", partition=0).result(WAIT_S)
            refused = producer.send(topic, bytes(20_000), partition=0)
            assert isinstance(refused.exception(WAIT_S), RecordTooLargeError)

    with Producer(bootstrap, transactional_id=topic, linger_ms=0) as producer:
        with pytest.raises(TransactionAbortableError, match="MESSAGE_TOO_LARGE"):
            send_too_much(producer)
        with producer.transaction():
            for partition in range(3):
                producer.send(topic, "again", partition=partition)
    assert values(bootstrap, topic) == ["again"] * 3


def test_a_second_producer_of_the_id_fences_the_first_and_aborts_what_it_had(
    bootstrap: str, topic: str, flow: str
) -> None:
    with Producer(bootstrap, transactional_id=topic, linger_ms=0) as first:
        first.begin_transaction()
        first.send(topic, "of the first").result(WAIT_S)
        with Producer(bootstrap, transactional_id=topic) as second:
            with second.transaction():
                second.send(topic, "of the second")
            with pytest.raises(DlogError):
                first.commit_transaction()
            with pytest.raises(ProducerFencedError, match="make another one"):
                first.begin_transaction()
    assert values(bootstrap, topic) == ["of the second"]


def test_a_producer_that_is_closed_leaves_no_open_transaction(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, transactional_id=topic, linger_ms=0) as producer:
        producer.begin_transaction()
        producer.send(topic, "of nobody").result(WAIT_S)

    async def state() -> str:
        async with Cluster(parse_bootstrap(bootstrap)) as cluster:
            return (await TransactionAdmin(cluster).describe_transaction(topic)).state

    assert asyncio.run(state()) in ("PrepareAbort", "CompleteAbort")
    assert values(bootstrap, topic) == []


def test_records_are_read_processed_and_written_exactly_once(bootstrap: str, topic: str, flow: str) -> None:
    """Every second transaction fails after its records and its offsets were sent."""
    into = f"{topic}-out"
    with Admin(bootstrap) as admin:
        admin.create_topic(NewTopic(into, 3))
    with Producer(bootstrap) as source:
        for number in range(100):
            source.send(topic, str(number))
    done, tries = 0, 0
    with (
        Consumer(
            bootstrap,
            group_id=topic,
            topics=[topic],
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer,
        Producer(bootstrap, transactional_id=into) as producer,
    ):
        while done < 100:
            records = consumer.poll(1000, max_records=17)
            if not records:
                continue
            tries += 1
            try:
                with producer.transaction():
                    for each in records:
                        producer.send(into, each.value, each.key)
                    producer.send_offsets(consumer.positions(), consumer.group_metadata())
                    if tries % 2:
                        raise KeyError
                done += len(records)
            except KeyError:
                consumer.seek_to_committed()
        assert sum(consumer.committed().values()) == 100
    assert values(bootstrap, into) == sorted(map(str, range(100)))


def test_before_anything_is_committed_an_abort_leads_back_to_where_the_consumer_began(
    bootstrap: str, topic: str
) -> None:
    """Not to where its reset would begin now: that is behind what was aborted."""
    here = TopicPartition(topic, 0)
    with (
        Producer(bootstrap) as source,
        Consumer(bootstrap, group_id=topic, auto_offset_reset="latest") as consumer,
    ):
        source.send(topic, "before it began", partition=0).result(WAIT_S)
        consumer.assign([here])
        assert consumer.position(here) == 1
        for value in ("a", "b"):
            source.send(topic, value, partition=0).result(WAIT_S)
        for _ in range(2):  # the first time it is aborted
            found: list[bytes | None] = []
            while len(found) < 2:
                found += [each.value for each in consumer.poll(1000)]
            assert found == [b"a", b"b"]
            consumer.seek_to_committed()
        consumer.commit({here: 2})
        consumer.seek_to_committed()
        assert consumer.position(here) == 2


def test_offsets_of_a_member_that_the_group_has_forgotten_abort_the_transaction(
    bootstrap: str, topic: str, flow: str
) -> None:
    def send_offsets_of_nobody(producer: Producer) -> None:
        gone = aio.GroupMetadata(topic, 3, "nobody", None)
        with producer.transaction():
            producer.send(topic, "v")
            producer.send_offsets({TopicPartition(topic, 0): 5}, gone)

    with Producer(bootstrap, transactional_id=topic) as producer:
        with pytest.raises(GroupRebalancedError, match="poll"):
            send_offsets_of_nobody(producer)
        with producer.transaction():
            producer.send_offsets({TopicPartition(topic, 0): 5}, topic)
    with Admin(bootstrap) as admin:
        committed = admin.group_offsets(topic)[TopicPartition(topic, 0)]
    assert committed.offset == 5
    assert values(bootstrap, topic) == []


def test_batches_that_come_back_while_offsets_are_sent_are_not_lost(
    bootstrap: str, topic: str, flow: str
) -> None:
    """What was ready when the sender began to wait is not when it goes on."""

    async def story() -> None:
        options = ProducerOptions(transactional_id=topic, linger_ms=0, batch_bytes_max=100)
        async with Cluster(parse_bootstrap(bootstrap)) as cluster, CoreProducer(cluster, options) as producer:
            transactions = producer.transactions
            assert transactions is not None
            await producer.begin_transaction()
            await (await producer.send(topic, Record(b"0"), 0)).wait()
            held: list[Batch] = []

            async def hold(_leader: int, batches: list[Batch]) -> None:
                held.extend(batches)

            async def send(value: bytes) -> Delivery:
                return await producer.send(topic, Record(value + bytes(80)), 0)

            deliver, producer._deliver = producer._deliver, hold  # type: ignore[assignment, method-assign]
            deliveries = [await send(b"1"), await send(b"2")]
            while len(held) < 2:
                await asyncio.sleep(0)
            await transactions._asking.acquire()  # as `send_offsets` does
            deliveries.append(await send(b"3"))
            for _ in range(10):
                await asyncio.sleep(0)
            refused = error_from(ErrorCode.NOT_LEADER_OR_FOLLOWER, "here")
            producer._handle_failure(held[0], refused)
            transactions._asking.release()
            for _ in range(10):
                await asyncio.sleep(0)
            producer._deliver = deliver  # type: ignore[method-assign]
            producer._handle_failure(held[1], refused)
            assert [(await each.wait()).offset for each in deliveries] == [1, 2, 3]
            await producer.commit_transaction()

    async def bounded() -> None:
        async with asyncio.timeout(WAIT_S):
            await story()

    asyncio.run(bounded())
    assert [each.rstrip("\0") for each in values(bootstrap, topic)] == ["0", "1", "2", "3"]


def test_a_transaction_whose_sender_failed_is_not_committed(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        options = ProducerOptions(transactional_id=topic, linger_ms=0)
        async with Cluster(parse_bootstrap(bootstrap)) as cluster, CoreProducer(cluster, options) as producer:
            await producer.begin_transaction()
            with monkeypatch.context() as patch:
                patch.setattr(cluster, "by_known_leader", lambda _: 1 / 0)
                lost = await producer.send(topic, Record(b"v"), 0)
                with pytest.raises(DlogError, match="the producer failed"):
                    await lost.wait()
            with pytest.raises(TransactionAbortableError, match="the producer failed"):
                await producer.commit_transaction()
            await producer.abort_transaction()

    asyncio.run(asyncio.wait_for(story(), WAIT_S))
    assert values(bootstrap, topic) == []


def test_a_transaction_begins_where_its_last_coordinator_is_gone(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, transactional_id=topic) as producer:
        with producer.transaction():
            producer.send(topic, "first")
        assert producer._core is not None
        assert producer._core.transactions is not None
        producer._core.transactions._coordinator._address = Address("127.0.0.1", free_port())
        with producer.transaction():
            producer.send(topic, "second")
    assert values(bootstrap, topic) == ["first", "second"]


def test_without_an_id_there_are_no_transactions(bootstrap: str) -> None:
    with (
        Producer(bootstrap) as producer,
        pytest.raises(InvalidTransactionStateError, match="transactional_id"),
    ):
        producer.begin_transaction()
    with pytest.raises(ConfigError):
        Producer(bootstrap, transactional_id="id", acks=1)
    with pytest.raises(ConfigError):
        Producer(bootstrap, transactional_id="")


def test_a_broker_that_has_gone_is_told_and_closing_does_not_wait_for_it(tmp_path: Path) -> None:
    with running_broker(tmp_path) as address:
        producer = Producer(address, transactional_id="id", linger_ms=0)
        producer.begin_transaction()
        producer.send("t", "v").result(WAIT_S)
        assert producer._cluster is not None
        producer._cluster.options = replace(producer._cluster.options, call_timeout_ms=500)
    with pytest.raises(DlogError, match="cannot be reached"):
        producer.commit_transaction()
    with pytest.raises(InvalidTransactionStateError, match="commit again"):
        producer.abort_transaction()
    producer.close()
