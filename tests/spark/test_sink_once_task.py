"""What drivers and tasks of the exactly-once sink do: against a real broker, without a Spark."""

import asyncio
import pickle
import threading
from collections.abc import Iterator
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from distributedlog.client import sinks
from distributedlog.client.offset_specs import Isolation
from distributedlog.client.sinks import Sink, SinkView
from distributedlog.model.errors import ConfigError, InvalidTransactionStateError, ProducerFencedError
from distributedlog.spark.connections import close_connections
from distributedlog.spark.sink import exactly_once
from distributedlog.spark.sink.attempts import BATCH_PROPERTY, QUERY_PROPERTY
from distributedlog.spark.sink.exactly_once import ExactlyOnceStreamWriter, ExactlyOnceWriter, WrittenOnce
from distributedlog.spark.sink.waiting import THREAD_NAME
from distributedlog.spark.sink.worker import KEPT
from distributedlog.spark.sink.writer import batch_writer, stream_writer
from tests.spark.sink_stage import Stage, stage
from tests.system.transactions.sink_driver import driving
from tests.unit.spark.sink.fake_task import FakeTask

SCHEMA = StructType([StructField("value", StringType())])
PARTITIONS = 2
LIMIT_S = 60


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("broker"), **{"auto.create.topics.enable": "false"}) as here:
        yield here
    KEPT.close()
    close_connections()


@pytest.fixture(autouse=True)
def tasks(monkeypatch: pytest.MonkeyPatch) -> "Tasks":
    found = Tasks()
    monkeypatch.setattr(exactly_once, "current_task", lambda: found.now)
    return found


class Tasks:
    """The task that runs now."""

    now = FakeTask()
    _count = 0

    def begin(self, query_id: str | None = None, batch_id: int = 0) -> None:
        told = {} if query_id is None else {QUERY_PROPERTY: query_id, BATCH_PROPERTY: str(batch_id)}
        self._count += 1
        self.now = FakeTask(told, attempt=self._count)


def rows(*values: str) -> Iterator[pa.RecordBatch]:
    return iter([pa.record_batch({"value": pa.array(values, pa.string())})])


def planned(broker: Stage, topic: str, **more: str) -> ExactlyOnceStreamWriter:
    """Returns a stream's writer as it arrives in the tasks of one batch: pickled, with a token."""
    told = broker.options(topic=topic, delivery="exactly-once", **more)
    return cast("ExactlyOnceStreamWriter", _pickled(stream_writer(told, SCHEMA, False)))


def planned_batch(broker: Stage, topic: str, **more: str) -> ExactlyOnceWriter:
    told = broker.options(topic=topic, delivery="exactly-once", **more)
    return cast("ExactlyOnceWriter", _pickled(batch_writer(told, SCHEMA, False)))


def _pickled(writer: Any) -> Any:
    return pickle.loads(pickle.dumps(writer))


def driver(broker: Stage, topic: str) -> ExactlyOnceStreamWriter:
    """Returns the writer that Spark makes anew to commit or abort: it knows nothing."""
    told = broker.options(topic=topic, delivery="exactly-once")
    return cast("ExactlyOnceStreamWriter", stream_writer(told, SCHEMA, False))


def seen(broker: Stage, topic: str, isolation: Isolation = Isolation.READ_COMMITTED) -> list[str]:
    async def read() -> list[str]:
        async with driving(broker.bootstrap, "reader", topic) as reading:
            return await reading.read(PARTITIONS, isolation)

    return asyncio.run(asyncio.wait_for(read(), LIMIT_S))


def described(broker: Stage, query_id: str) -> SinkView:
    async def ask() -> SinkView:
        async with driving(broker.bootstrap, query_id, "none") as asking:
            return await asking.sink.describe()

    return asyncio.run(asyncio.wait_for(ask(), LIMIT_S))


def test_only_the_attempts_that_the_driver_names_are_seen_and_only_when_it_has_committed(
    broker: Stage, tasks: Tasks, caplog: pytest.LogCaptureFixture
) -> None:
    topic = broker.create("winners", PARTITIONS)
    for batch_id in range(2):
        writer = planned(broker, topic)
        messages: list[Any] = []
        for task in range(2):
            for _ in range(2):  # the second attempt wins; both are of one process, one after the other
                tasks.begin("q-winners", batch_id)
                told = writer.write(rows(f"{batch_id}.{task}"))
            messages.append(told)
        messages.append(writer.write(rows()))  # without rows
        assert [each.winner is None for each in messages] == [False, False, True]
        assert len(seen(broker, topic)) == 2 * batch_id
        driver(broker, topic).commit(pickle.loads(pickle.dumps(messages)), batch_id)
        assert seen(broker, topic) == sorted(f"{b}.{t}" for b in range(batch_id + 1) for t in range(2))
    assert len(seen(broker, topic, Isolation.READ_UNCOMMITTED)) == 8
    assert [each for each in caplog.messages if "committed: 2 rows" in each][1].startswith("batch 1: ")


def test_a_batch_that_is_played_again_is_read_to_its_end_and_written_nowhere(
    broker: Stage, tasks: Tasks, caplog: pytest.LogCaptureFixture
) -> None:
    topic = broker.create("again", PARTITIONS)
    for batch_id in range(2):
        tasks.begin("q-again", batch_id)
        driver(broker, topic).commit([planned(broker, topic).write(rows(str(batch_id)))], batch_id)
    tasks.begin("q-again", 1)
    writer, again = planned(broker, topic), iter([*rows("again"), *rows("and again")])
    told = writer.write(again)
    assert told.skipped is not None
    assert (told, next(again, None)) == (WrittenOnce(skipped=told.skipped), None)
    driver(broker, topic).commit([told], 1)
    assert caplog.messages[-1] == "batch 1: skipped: it was committed before"
    assert seen(broker, topic, Isolation.READ_UNCOMMITTED) == ["0", "1"]
    tasks.begin("q-again", 0)
    with pytest.raises(InvalidTransactionStateError, match=r"checkpoint is older .* begin with a new one"):
        writer.write(rows("older"))


def test_a_driver_that_was_replaced_is_fenced_and_its_abort_does_no_harm(broker: Stage, tasks: Tasks) -> None:
    topic = broker.create("zombie", PARTITIONS)
    tasks.begin("q-zombie")
    old = planned(broker, topic)
    lost = old.write(rows("old"))
    tasks.begin("q-zombie")
    told = planned(broker, topic).write(rows("new"))
    with pytest.raises(ProducerFencedError, match="gone on with by another driver") as caught:
        old.write(rows("late"))
    assert caught.value.__cause__ is None
    with pytest.raises(ProducerFencedError, match="gone on with by another driver"):
        driver(broker, topic).commit([lost], 0)
    driver(broker, topic).abort([lost, None], 0)
    driver(broker, topic).commit([told], 0)
    driver(broker, topic).abort([told], 0)  # it may come after a commit
    assert seen(broker, topic) == ["new"]


def test_an_abort_needs_the_token_of_a_message(broker: Stage, tasks: Tasks) -> None:
    topic = broker.create("aborted", PARTITIONS)
    tasks.begin("q-aborted")
    told = planned(broker, topic).write(rows("a"))
    driver(broker, topic).abort([None, None], 0)
    assert described(broker, "q-aborted").state == "Ongoing"
    driver(broker, topic).abort([None, told], 0)
    assert described(broker, "q-aborted").state in ("PrepareAbort", "CompleteAbort")
    with pytest.raises(ProducerFencedError):
        driver(broker, topic).commit([told], 0)
    assert seen(broker, topic) == []


def test_a_token_is_taken_once_for_a_batch_and_rises(broker: Stage) -> None:
    topic = broker.create("tokens", PARTITIONS)
    made = batch_writer(broker.options(topic=topic, delivery="exactly-once"), SCHEMA, False)
    first, second = _pickled(made), _pickled(made)  # Spark pickles it for tasks and for the driver
    assert first._token == second._token
    assert planned(broker, topic)._token > first._token


def test_a_batch_write_with_an_id_writes_once_and_one_without_as_often_as_it_is_run(
    broker: Stage, tasks: Tasks
) -> None:
    topic = broker.create("named", PARTITIONS)
    for more in ({"writeId": "w"}, {"writeId": "w"}, {"writeId": "other"}, {}, {}):
        tasks.begin()
        writer = planned_batch(broker, topic, **more)
        writer.commit([writer.write(rows(more.get("writeId", "none")))])
    assert seen(broker, topic) == ["none", "none", "other", "w"]


def test_a_write_that_is_skipped_for_its_name_is_warned_of_and_one_of_a_query_that_comes_again_is_not(
    broker: Stage, tasks: Tasks, caplog: pytest.LogCaptureFixture
) -> None:
    topic = broker.create("warned", PARTITIONS)

    def write(*value: str, **more: str) -> None:
        writer = planned_batch(broker, topic, **more)
        writer.commit([writer.write(rows(*value))])

    for more in ({"writeId": "warn"}, {"writeId": "warn-batch", "batchId": "3"}):
        caplog.clear()
        write("a", **more)
        assert not [each for each in caplog.records if each.levelname == "WARNING"]
        write("b", **more)
        (warned,) = [each.message for each in caplog.records if each.levelname == "WARNING"]
        assert warned.startswith("skipped: it was committed before")
        assert f"writeId '{more['writeId']}'" in warned
    write("next", writeId="warn-batch", batchId="4")
    with pytest.raises(InvalidTransactionStateError, match="a new one, and another writeId"):
        write("older", writeId="warn-batch", batchId="2")
    tasks.begin("q-warned", 1)
    caplog.clear()
    for value in ("query", "again"):
        write(value, writeId="w")
    assert seen(broker, topic) == ["a", "a", "next", "query"]
    assert not [each for each in caplog.records if each.levelname == "WARNING"]


def test_batches_larger_than_the_topic_takes_are_written_in_smaller_ones_under_the_same_lease(
    broker: Stage, tasks: Tasks
) -> None:
    topic = broker.create("small", PARTITIONS, max_message_bytes="4000")
    values = [f"{number:03d}".ljust(1_000, ".") for number in range(200)]
    for batch_id in range(2):
        tasks.begin("q-small", batch_id)
        told = planned(broker, topic, **{"kafka.batch.size": "15000"}).write(rows(*values))
        driver(broker, topic).commit([told], batch_id)
    assert seen(broker, topic) == sorted(values * 2)


def test_a_stream_takes_no_batch_id(broker: Stage) -> None:
    with pytest.raises(ConfigError, match="batchId is for batch writes"):
        planned(broker, "none", writeId="w", batchId="1")


class Heartbeats:
    """Those that were answered, of any query; they come quickly."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[tuple[str, int, int]] = []
        self._more = threading.Condition()
        plain = Sink.heartbeat

        async def counted(sink: Sink, token: int, batch_id: int, **patience: int) -> None:
            await plain(sink, token, batch_id, **patience)
            with self._more:
                self.sent.append((sink.query_id, token, batch_id))
                self._more.notify_all()

        monkeypatch.setattr(Sink, "heartbeat", counted)
        monkeypatch.setattr(sinks, "HEARTBEATS_IN_TIMEOUT", 10_000)

    def wait_for(self, count: int) -> None:
        with self._more:
            assert self._more.wait_for(lambda: len(self.sent) >= count, LIMIT_S)


@pytest.fixture
def heartbeats(monkeypatch: pytest.MonkeyPatch) -> Heartbeats:
    return Heartbeats(monkeypatch)


@pytest.mark.parametrize("has_rows", [True, False])
def test_heartbeats_are_sent_before_a_first_row_and_not_after_the_task(
    broker: Stage, tasks: Tasks, heartbeats: Heartbeats, has_rows: bool
) -> None:
    query_id = f"q-waiting-{has_rows}"

    def late() -> Iterator[pa.RecordBatch]:
        heartbeats.wait_for(3)
        yield from rows("a") if has_rows else rows()

    topic = broker.create(f"waiting-{has_rows}", PARTITIONS)
    tasks.begin(query_id, 4)
    writer = planned(broker, topic)
    told = writer.write(late())
    assert set(heartbeats.sent) == {(query_id, writer._token, 4)}
    assert not [each for each in threading.enumerate() if each.name == THREAD_NAME]
    driver(broker, topic).commit([told], 4)
    assert seen(broker, topic) == (["a"] if has_rows else [])


def test_a_task_without_a_first_row_whose_input_fails_sends_no_more_heartbeats(
    broker: Stage, tasks: Tasks, heartbeats: Heartbeats
) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        heartbeats.wait_for(1)
        yield from rows()
        raise ValueError("broken")

    tasks.begin("q-broken", 4)
    with pytest.raises(ValueError, match="broken"):
        planned(broker, broker.create("broken", PARTITIONS)).write(broken())
    assert not [each for each in threading.enumerate() if each.name == THREAD_NAME]


def test_heartbeats_are_sent_while_a_task_waits_for_rows_and_not_after_it(
    broker: Stage, tasks: Tasks, heartbeats: Heartbeats
) -> None:
    topic = broker.create("beating", PARTITIONS)

    def slow() -> Iterator[pa.RecordBatch]:
        yield from rows("a")
        heartbeats.wait_for(len(heartbeats.sent) + 3)
        yield from rows("b")

    tasks.begin("q-beating", 4)
    writer = planned(broker, topic)
    told = writer.write(slow())
    assert set(heartbeats.sent) == {("q-beating", writer._token, 4)}
    (kept,) = [each for options, each in KEPT._idle.items() if options == writer._options]
    assert kept._beating is None
    driver(broker, topic).commit([told], 4)
    assert seen(broker, topic) == ["a", "b"]


def test_a_task_whose_driver_is_replaced_while_it_runs_fails(broker: Stage, tasks: Tasks) -> None:
    topic = broker.create("over", PARTITIONS)
    tasks.begin("q-over")
    writer = planned(broker, topic)

    def replaced() -> Iterator[pa.RecordBatch]:
        yield from rows("a")
        before, tasks.now = tasks.now, FakeTask(tasks.now.properties, attempt=99)
        told = planned(broker, topic, **{"kafka.client.id": "another-driver"}).write(rows("new"))
        driver(broker, topic).commit([told], 0)
        tasks.now = before
        yield from rows("b")

    with pytest.raises(ProducerFencedError, match="gone on with by another driver"):
        writer.write(replaced())
    assert seen(broker, topic) == ["new"]


def test_brokers_without_such_sinks_are_said_to_be_and_what_to_choose(
    broker: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They tell the API to our clients alone, so to one under another name they are like Kafka's."""
    topic = broker.create("refused", PARTITIONS)
    monkeypatch.setattr("distributedlog.client.connection.SOFTWARE_NAME", "another")
    with pytest.raises(
        ConfigError, match="do not offer delivery=exactly-once: choose delivery=at-least-once"
    ):
        planned(broker, topic, **{"kafka.client.id": "nobody-knows-it"})
    told = broker.options(topic=topic, **{"kafka.client.id": "nobody-knows-it"})
    with pytest.raises(ConfigError, match="choose delivery=at-least-once"):
        batch_writer(told, SCHEMA, False)  # never silently
    batch_writer(told | {"delivery": "at-least-once"}, SCHEMA, False).write(rows("at least once"))
    assert seen(broker, topic, Isolation.READ_UNCOMMITTED) == ["at least once"]
