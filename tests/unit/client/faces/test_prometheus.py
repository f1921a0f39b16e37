"""What clients count, as a dict and as Prometheus collects it."""

import asyncio
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from distributedlog import Admin, ClientCollector, Consumer, NewTopic, Producer, TopicPartition, aio
from distributedlog.client.faces.prometheus import COUNTERS, GAUGES
from distributedlog.model.errors import ConfigError, RecordTooLargeError
from tests.unit.client.faces.stage import running_broker

WAIT_S = 60


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_broker(tmp_path_factory.mktemp("broker")) as address:
        with Admin(address) as admin:
            admin.create_topic(NewTopic("counted", 1, configs={"max.message.bytes": "10000"}))
        yield address


def test_what_is_sent_and_read_is_counted_and_collected(bootstrap: str) -> None:
    collector, registry = ClientCollector(), CollectorRegistry()
    registry.register(collector)
    place = TopicPartition("counted", 0)
    settings = {"group_id": "counting", "auto_offset_reset": "earliest", "max_poll_records": 40}
    with Producer(bootstrap, linger_ms=5) as producer, Consumer(bootstrap, **settings) as consumer:  # type: ignore[arg-type]
        collector.add("writer", producer)
        collector.add("reader", consumer)
        with pytest.raises(ConfigError, match="already"):
            collector.add("writer", producer)
        for number in range(100):
            producer.send("counted", bytes(10), key=str(number))
        producer.flush()
        with pytest.raises(RecordTooLargeError):
            producer.send("counted", bytes(20_000)).result(WAIT_S)
        sent = producer.metrics()
        assert (sent["records_delivered"], sent["records_failed"], sent["batches_failed"]) == (100, 1, 1)
        assert sent["delivery_ms_total"] >= sent["delivery_ms_max"] >= 0
        consumer.assign([place])
        while not (records := consumer.poll()):
            pass
        consumer.commit()
        read = consumer.metrics()
        assert (read["records"], read["lag"], read["lag_max"]) == (len(records), 60, 60)
        assert read["fetch_bytes"] >= 1000
        assert (read["commits"], read["fetches"] >= 1) == (1, True)
        assert {*sent, *read} <= {*COUNTERS, *GAUGES}, "each has its words"
        text = generate_latest(registry).decode()
        assert 'dlog_client_producer_records_delivered_total{name="writer"} 100.0' in text
        assert 'dlog_client_consumer_lag{name="reader"} 60.0' in text
        assert "dlog_client_producer_delivery_ms_total{" in text
        collector.remove(consumer)
    assert b"dlog_client" not in generate_latest(registry), "closed, or taken away"


def test_the_clients_of_a_loop_count_alike(bootstrap: str) -> None:
    async def story() -> tuple[set[str], set[str]]:
        async with aio.Producer(bootstrap) as producer, aio.Consumer(bootstrap) as consumer:
            return set(producer.metrics()), set(consumer.metrics())

    with Producer(bootstrap) as producer, Consumer(bootstrap) as consumer:
        assert asyncio.run(story()) == (set(producer.metrics()), set(consumer.metrics()))
