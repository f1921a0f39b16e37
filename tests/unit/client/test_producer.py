"""A producer: everything once and in order, whatever happens on the way."""

import asyncio
from collections import deque
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.client.accumulator import RECORD_OVERHEAD_BYTES
from distributedlog.client.addresses import parse_bootstrap
from distributedlog.client.consumer import Consumer
from distributedlog.client.metadata import Cluster
from distributedlog.client.offset_specs import BEGINNING
from distributedlog.client.options import ClientOptions
from distributedlog.client.partitioner import partition_of
from distributedlog.client.producer import BatchReport, Producer, ProducerOptions
from distributedlog.model.errors import (
    BrokerError,
    ClientClosedError,
    ConfigError,
    ConnectionLostError,
    RecordTooLargeError,
    RequestTimedOutError,
    UnknownTopicError,
)
from distributedlog.model.ids import TopicPartition
from distributedlog.ports.clock import Clock
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.messages.init_producer_id import InitProducerIdResponse
from distributedlog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from distributedlog.protocol.messages.produce import ProduceRequest, ProduceResponse
from distributedlog.records.batch import HEADER_BYTES, read_header
from distributedlog.records.compression import Codec
from distributedlog.records.record import Header, Record
from tests.simulation.clock import ManualClock
from tests.unit.client.ledger import Fault, Ledger
from tests.unit.client.stage import QUICK, ScriptedBroker, mock_cluster, run

HERE = TopicPartition("t", 0)
EAGER = ProducerOptions(linger_ms=0)


def cluster(broker: ScriptedBroker, options: ClientOptions = QUICK) -> Cluster:
    return Cluster([broker.address], options)


async def send_all(
    broker: ScriptedBroker,
    values: list[bytes],
    options: ProducerOptions = EAGER,
    client: ClientOptions = QUICK,
    *,
    is_burst: bool = False,
    clock: Clock | None = None,
) -> list[Any]:
    """One batch each; where each is, or what it failed with.  A burst has several under way at once."""
    async with Cluster([broker.address], client, clock=clock) as there, Producer(there, options) as producer:
        deliveries = []
        for value in values:
            deliveries.append(await producer.send("t", Record(value), 0))
            if not is_burst:
                await producer.flush()
        return await asyncio.gather(*(each.wait() for each in deliveries), return_exceptions=True)


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
def test_what_is_sent_to_another_broker_is_read_back_from_it(codec: Codec) -> None:
    records = [
        Record(b"v%d" % n if n % 3 else None, b"k%d" % (n % 5), (Header("h", b"%d" % n),), 1000 + n)
        for n in range(200)
    ]

    async def story(bootstrap: str) -> None:
        async with Cluster(parse_bootstrap(bootstrap), QUICK) as there:
            async with Producer(there, ProducerOptions(codec=codec)) as producer:
                places = [await producer.send("t", record) for record in records]
            found = [await each.wait() for each in places]
            partitions = sorted({each.partition for each in found})
            assert len(partitions) > 1
            read: dict[tuple[TopicPartition, int], Record] = {}
            async with Consumer(there) as consumer:
                await consumer.assign(dict.fromkeys(partitions, BEGINNING))
                while len(read) < len(records):
                    for fetched in await consumer.poll(5000):
                        read.update({(fetched.partition, each.offset): each for each in fetched.records})
            for record, place in zip(records, found, strict=True):
                assert read[place]._replace(offset=-1) == record
                assert place.partition.partition == partition_of(record.key or b"", 4)

    with mock_cluster(2) as bootstrap:
        run(story(bootstrap))


FAULTS: list[Fault] = ["none", "not leader", "leader no more", "lost before", "lost after", "slow replicas"]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(FAULTS), max_size=12), st.integers(1, 8), st.booleans())
def test_over_any_faults_that_pass_records_are_there_once_and_in_order(
    faults: list[Fault], count: int, is_burst: bool
) -> None:
    ledger = Ledger({"t": 1}, faults=deque(faults))
    values = [b"%d" % number + bytes(60) for number in range(count)]
    options = ProducerOptions(linger_ms=0, batch_bytes_max=100)
    with (broker := ledger.broker()).running():
        outcomes = run(send_all(broker, values, options, is_burst=is_burst))
    assert not [each for each in outcomes if isinstance(each, BaseException)]
    assert ledger.values(HERE) == values
    assert ledger.producers == 1


def test_without_idempotence_a_lost_answer_writes_twice() -> None:
    """So the test above would see it."""
    ledger = Ledger({"t": 1}, faults=deque(["lost after"]))
    with (broker := ledger.broker(with_producer_ids=False)).running():
        run(send_all(broker, [b"a"]))
    assert ledger.values(HERE) == [b"a", b"a"]


def test_what_the_broker_refuses_for_good_fails_with_its_words_and_the_rest_goes_on() -> None:
    ledger = Ledger({"t": 1}, faults=deque(["none", "too large"]))
    with (broker := ledger.broker()).running():
        first, second, third = run(send_all(broker, [b"a", b"b", b"c"]))
    assert (first.offset, third.offset) == (0, 1)
    assert isinstance(second, RecordTooLargeError)
    assert "the broker's own words" in str(second)
    assert ledger.values(HERE) == [b"a", b"c"]
    assert ledger.producers == 1  # a sure failure took no sequence


def taking_hours(ledger: Ledger) -> tuple[ScriptedBroker, ManualClock]:
    """Whatever is sent to the broker, there is no time to send it again."""
    clock, broker = ManualClock(), ledger.broker()

    def produce(request: ProduceRequest, version: int) -> ProduceResponse | None:
        response = ledger.produce(request, version)
        clock.advance(2 * EAGER.delivery_timeout_ms)
        return response

    broker.answers[ApiKey.PRODUCE] = produce
    return broker, clock


def test_after_a_batch_of_unknown_fate_the_producer_has_another_epoch() -> None:
    ledger = Ledger({"t": 1}, faults=deque(["none", "no answer"]))
    quick = replace(QUICK, request_timeout_ms=150)
    broker, clock = taking_hours(ledger)
    with broker.running():
        first, second, third = run(send_all(broker, [b"a", b"b", b"c"], client=quick, clock=clock))
    assert first.offset == 0
    assert "did not answer PRODUCE" in str(second)
    assert third.offset == 2
    assert ledger.values(HERE) == [b"a", b"b", b"c"]
    headers = [read_header(batch) for batch in ledger.logs[HERE]]
    assert [(each.producer_id, each.producer_epoch) for each in headers] == [(1, 0), (1, 0), (1, 1)]


def test_what_a_leader_refused_that_was_one_no_more_takes_no_sequence_of_another_batch() -> None:
    ledger = Ledger({"t": 1}, faults=deque(["none", "leader no more"]))
    broker, clock = taking_hours(ledger)
    with broker.running():
        first, second, third = run(send_all(broker, [b"a", b"b", b"c"], clock=clock))
    assert first.offset == 0
    assert isinstance(second, BrokerError)
    assert third.offset == 2
    assert ledger.values(HERE) == [b"a", b"b", b"c"]


def test_records_without_a_key_stay_together_and_with_one_go_by_it() -> None:
    ledger = Ledger({"t": 8})

    async def story() -> None:
        async with cluster(broker) as there, Producer(there) as producer:
            for number in range(40):
                await producer.send("t", Record(b"%d" % number))
            for number in range(40):
                await producer.send("t", Record(b"", b"key %d" % number))

    with (broker := ledger.broker()).running():
        run(story())
    keyless = [p for p in ledger.logs if any(each.key is None for each in ledger.records(p))]
    assert len(keyless) == 1
    for partition in ledger.logs:
        for record in ledger.records(partition):
            if record.key is not None:
                assert partition_of(record.key, 8) == partition.partition


def test_many_records_make_few_requests_and_each_batch_is_reported() -> None:
    ledger = Ledger({"t": 3})
    reports: list[BatchReport] = []

    async def story() -> None:
        async with cluster(broker) as there, Producer(there, on_batch=reports.append) as producer:
            for number in range(3000):
                await producer.send("t", Record(b"%d" % number), number % 3)

    with (broker := ledger.broker()).running():
        run(story())
    assert sum(each.record_count for each in reports) == 3000
    assert all(each.error is None for each in reports)
    assert broker.count(ApiKey.PRODUCE) < 30
    assert [int(value or b"") for value in ledger.values(HERE)] == list(range(0, 3000, 3))


def test_a_sender_waits_while_too_much_is_on_its_way() -> None:
    ledger = Ledger({"t": 1})
    options = ProducerOptions(
        linger_ms=0, batch_bytes_max=1000, request_bytes_max=2000, buffer_bytes_max=2000
    )
    most = 0

    async def story() -> None:
        nonlocal most
        async with cluster(broker) as there, Producer(there, options) as producer:
            for number in range(100):
                await producer.send("t", Record(b"%d" % number + b"x" * 200))
                most = max(most, producer._accumulator.buffered_bytes)

    with (broker := ledger.broker()).running():
        run(story())
    assert len(ledger.values(HERE)) == 100
    assert most < 3000


def test_acks_zero_waits_for_nobody() -> None:
    ledger = Ledger({"t": 1})
    with (broker := ledger.broker()).running():
        (outcome,) = run(send_all(broker, [b"a"], ProducerOptions(acks=0, linger_ms=0)))
        assert outcome.offset == -1
    assert ledger.producers == 0


def test_after_an_error_of_the_caller_what_was_not_delivered_fails() -> None:
    ledger = Ledger({"t": 1})

    async def story() -> None:
        async with cluster(broker) as there:
            producer = Producer(there, ProducerOptions(linger_ms=60_000))
            delivery = await producer.send("t", Record(b"a"))
            await producer.__aexit__(KeyError, KeyError(), None)
            with pytest.raises(ConnectionLostError, match="closed before"):
                await delivery.wait()

    with (broker := ledger.broker()).running():
        run(story())
    assert ledger.logs == {}


def test_a_partition_or_topic_that_is_not_there_is_told_at_once() -> None:
    async def story() -> None:
        options = ProducerOptions(allow_creation=False)
        async with cluster(broker) as there, Producer(there, options) as producer:
            with pytest.raises(UnknownTopicError, match="partitions 0 to 1, not 2"):
                await producer.send("t", Record(b"a"), 2)
            with pytest.raises(UnknownTopicError, match="no topic 'other'"):
                await producer.send("other", Record(b"a"))

    with (broker := Ledger({"t": 2}).broker()).running():
        run(story())


def test_an_idempotent_producer_needs_a_broker_that_has_ids() -> None:
    async def story() -> list[Any]:
        return await send_all(broker, [b"a"], ProducerOptions(idempotent=True, linger_ms=0))

    with (broker := Ledger({"t": 1}).broker(with_producer_ids=False)).running():
        (outcome,) = run(story())
    assert "does not serve INIT_PRODUCER_ID" in str(outcome)


def test_a_record_that_cannot_be_encoded_fails_alone() -> None:
    ledger = Ledger({"t": 1})

    async def story() -> None:
        async with cluster(broker) as there, Producer(there, EAGER) as producer:
            bad = await producer.send("t", Record(b"a", timestamp_ms=2**70))
            await producer.flush()
            good = await producer.send("t", Record(b"b"))
            await producer.flush()
            with pytest.raises(Exception, match="timestamp"):
                await bad.wait()
            assert (await good.wait()).offset == 0

    with (broker := ledger.broker()).running():
        run(story())


@pytest.mark.parametrize(
    "options",
    [{"acks": 2}, {"acks": 1, "idempotent": True}, {"linger_ms": -1}, {"batch_bytes_max": 2**40}],
    ids=str,
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ProducerOptions(**options)


def test_a_broker_that_refuses_an_id_fails_what_waits() -> None:
    ledger = Ledger({"t": 1})
    broker = ledger.broker()

    refusal = InitProducerIdResponse(error_code=31, producer_epoch=-1)
    broker.answers[ApiKey.INIT_PRODUCER_ID] = lambda *_: refusal
    with broker.running():
        (outcome,) = run(send_all(broker, [b"a"]))
    assert isinstance(outcome, BrokerError)
    assert "CLUSTER_AUTHORIZATION_FAILED" in str(outcome)


@pytest.mark.parametrize("sends", [1, 2])
def test_a_send_that_waits_for_room_when_the_producer_is_closed_is_refused(sends: int) -> None:
    """Nothing is left of the producer then; it began to send again."""
    broker = Ledger({"t": 1}, deque(["no answer"])).broker()

    async def story() -> None:
        options = ProducerOptions(
            linger_ms=0, batch_bytes_max=1000, request_bytes_max=1000, buffer_bytes_max=1000
        )
        async with cluster(broker) as there:
            producer = Producer(there, options)
            first = await producer.send("t", Record(bytes(1000 - HEADER_BYTES - RECORD_OVERHEAD_BYTES)), 0)
            waiting = [
                asyncio.create_task(producer.send("t", Record(b"second"), 0)),
                asyncio.create_task(producer.send_batch(HERE, [Record(b"third", timestamp_ms=1)])),
            ][:sends]
            await asyncio.sleep(0)
            await producer.close()
            for each in waiting:
                with pytest.raises(ClientClosedError):
                    await each
            with pytest.raises(ConnectionLostError, match="closed"):
                await first.wait()
            assert producer._sender is None
            assert producer.buffered_bytes == 0

    with broker.running():
        run(story())
    assert broker.count(ApiKey.PRODUCE) <= 1


@pytest.mark.parametrize("silent", [ApiKey.PRODUCE, ApiKey.INIT_PRODUCER_ID, ApiKey.METADATA])
def test_a_broker_that_is_silent_fails_a_record_when_its_time_is_over(silent: ApiKey) -> None:
    """Whatever a request, or a connection, may take: `delivery_timeout_ms` is the record's."""
    broker = Ledger({"t": 1}).broker()
    patient = replace(QUICK, request_timeout_ms=600_000, call_timeout_ms=600_000)

    async def story() -> None:
        options = ProducerOptions(linger_ms=0, delivery_timeout_ms=50)
        async with cluster(broker, patient) as there, Producer(there, options) as producer:
            await producer.learn("t")
            broker.answers[silent] = lambda *_: None
            there.mark_stale()
            for _ in range(2):
                ended, _ = producer.add_now(HERE, Record(b"v"), 100)
                with pytest.raises(RequestTimedOutError, match=f"{broker.address} .* delivery_timeout_ms"):
                    (await ended).offset_of(0)

    with broker.running():
        run(story())


def test_a_partition_without_a_leader_holds_up_none_of_the_others() -> None:
    ledger = Ledger({"t": 2})
    broker = ledger.broker()

    def without_a_leader(request: MetadataRequest, version: int) -> MetadataResponse:
        response = broker.metadata(request, version)
        for topic in response.topics:
            topic.partitions[1].leader_id, topic.partitions[1].error_code = -1, 5
        return response

    broker.answers[ApiKey.METADATA] = without_a_leader
    with broker.running():
        outcomes = run(send_all(broker, [b"a", b"b"]))
    assert [each.offset for each in outcomes] == [0, 1]
