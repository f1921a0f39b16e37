"""What the sink can be told, and what it answers to what it cannot."""

import pickle

import pytest

from distributedlog.model.errors import ConfigError
from distributedlog.records.compression import Codec
from distributedlog.spark.sink.options import parse_sink_options

HERE = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
ONCE = {"delivery": "exactly-once"}
AT_LEAST = {"delivery": "at-least-once"}


def test_nothing_but_the_cluster_must_be_said() -> None:
    options = parse_sink_options(HERE)
    assert options.topic is None
    assert (options.producer.acks, options.producer.idempotent) == (-1, None)
    assert options.without_effect == ()


def test_the_settings_of_kafkas_producer_mean_what_they_mean_there() -> None:
    options = parse_sink_options(
        {
            "KAFKA.Bootstrap.Servers": "a:1,b:2",
            "Topic": "orders",
            "Delivery": "at-least-once",
            "kafka.acks": "1",
            "kafka.enable.idempotence": "false",
            "kafka.compression.type": "zstd",
            "kafka.batch.size": "1000",
            "kafka.max.request.size": "20000",
            "kafka.buffer.memory": "30000",
            "kafka.delivery.timeout.ms": "5000",
            "kafka.request.timeout.ms": "700",
            "kafka.max.block.ms": "800",
            "kafka.client.id": "me",
            "kafka.security.protocol": "PLAINTEXT",
        }
    )
    producer = options.producer
    assert (options.bootstrap, options.topic) == ("a:1,b:2", "orders")
    assert (producer.acks, producer.idempotent, producer.codec) == (1, False, Codec.ZSTD)
    assert (producer.batch_bytes_max, producer.request_bytes_max, producer.buffer_bytes_max) == (
        1000,
        20000,
        30000,
    )
    assert (producer.delivery_timeout_ms, options.client.request_timeout_ms) == (5000, 700)
    assert (options.client.call_timeout_ms, options.client.client_id) == (800, "me")


def test_options_travel_to_tasks_and_equal_ones_find_the_same_producer() -> None:
    options = parse_sink_options(HERE | {"topic": "t"})
    again = pickle.loads(pickle.dumps(options))
    assert again == options
    assert hash(again) == hash(options)


@pytest.mark.parametrize(
    ("batch", "request_max", "expected"),
    [("100000000", None, 100_000_000), (None, "1000", 1000), ("0", None, 1)],
)
def test_sizes_that_were_not_told_make_room(
    batch: str | None, request_max: str | None, expected: int
) -> None:
    told = {"kafka.batch.size": batch, "kafka.max.request.size": request_max}
    options = parse_sink_options(HERE | {name: value for name, value in told.items() if value is not None})
    assert options.producer.batch_bytes_max == expected


def test_exactly_once_is_the_default_and_has_a_name() -> None:
    assert parse_sink_options(HERE | ONCE) == parse_sink_options(HERE)
    assert parse_sink_options(HERE).is_exactly_once
    assert not parse_sink_options(HERE | AT_LEAST).is_exactly_once


def test_exactly_once_is_chosen_with_a_name_for_the_write_and_a_timeout() -> None:
    options = parse_sink_options(HERE | ONCE | {"writeId": "w", "kafka.transaction.timeout.ms": "9000"})
    assert (options.is_exactly_once, options.write_id, options.batch_timeout_ms) == (True, "w", 9_000)
    assert options.without_effect == ()
    plain = parse_sink_options(HERE | ONCE)
    assert (plain.write_id, plain.batch_timeout_ms, plain.producer.acks) == (None, 300_000, -1)


def test_the_batches_of_a_write_have_their_producer_in_common() -> None:
    first, second = (parse_sink_options(HERE | {"writeId": "w", "batchId": number}) for number in "01")
    assert (first.batch_id, second.batch_id) == (0, 1)
    assert first == second
    assert hash(first) == hash(second)


@pytest.mark.parametrize(
    ("told", "answer"),
    [
        ({"delivery": "at-most-once"}, "it can be at-least-once or exactly-once"),
        (AT_LEAST | {"writeId": "w"}, "writeId is for delivery=exactly-once"),
        (AT_LEAST | {"kafka.transaction.timeout.ms": "9"}, "timeout.ms is for delivery=exactly-once"),
        (ONCE | {"writeId": ""}, "writeId has 0 bytes; it may have 1 to 200"),
        (ONCE | {"writeId": "é" * 101}, "writeId has 202 bytes"),
        (AT_LEAST | {"batchId": "1"}, "batchId is for delivery=exactly-once"),
        (ONCE | {"batchId": "1"}, "batchId needs the option writeId"),
        (ONCE | {"writeId": "w", "batchId": "-1"}, "batchId is '-1'; it must be a number from 0"),
        (ONCE | {"writeId": "w", "batchId": "x"}, "batchId is 'x'"),
        (ONCE | {"writeId": "w", "batchId": str(2**63)}, "must be a number from 0 to 9223372036854775807"),
        (ONCE | {"kafka.acks": "1"}, "needs kafka.acks=all"),
        ({"kafka.acks": "1"}, "the default, needs kafka.acks=all: .* choose delivery=at-least-once"),
        (ONCE | {"kafka.enable.idempotence": "false"}, "needs kafka.enable.idempotence=true"),
        (ONCE | {"kafka.transaction.timeout.ms": "0"}, "must be a number from 1"),
        (ONCE | {"writeIt": "w"}, "did you mean writeid"),
        ({"kafka.bootstrap.servers": " "}, "kafka.bootstrap.servers is missing"),
        ({"kafka.bootstrap.servers": "a b"}, "is not an address"),
        ({"topic": "no/slashes"}, "the option topic"),
        ({"topik": "t"}, "did you mean topic"),
        ({"delivry": "at-least-once"}, "did you mean delivery"),
        ({"kafka.compresion.type": "gzip"}, "did you mean kafka.compression.type"),
        ({"kafka.compression.type": "brotli"}, "it can be none, gzip, snappy, lz4, zstd"),
        ({"kafka.acks": "2"}, "it can be all, 1 or 0"),
        ({"kafka.enable.idempotence": "yes"}, "it can be true or false"),
        (AT_LEAST | {"kafka.enable.idempotence": "true", "kafka.acks": "1"}, "needs acks=all"),
        ({"kafka.batch.size": "many"}, "must be a number"),
        ({"kafka.batch.size": "2000", "kafka.max.request.size": "1000"}, "must rise"),
        ({"kafka.key.serializer": "x"}, "cast the column to string or binary"),
        ({"kafka.transactional.id": "x"}, "names its transactions itself"),
        ({"kafka.partitioner.class": "x"}, "a column named partition"),
        ({"kafka.security.protocol": "SSL"}, "only PLAINTEXT"),
        ({"kafka.sasl.mechanism": "PLAIN"}, "only PLAINTEXT"),
    ],
    ids=lambda value: list(value)[-1] if isinstance(value, dict) else None,
)
def test_what_cannot_be_is_answered_with_what_to_do(told: dict[str, str], answer: str) -> None:
    with pytest.raises(ConfigError, match=answer):
        parse_sink_options(HERE | told)


def test_what_has_no_effect_is_said_and_does_no_harm() -> None:
    told = {"kafka.linger.ms": "5", "failOnDataLoss": "false", "checkpointLocation": "c", "path": "p"}
    assert parse_sink_options(HERE | told).without_effect == ("failondataloss", "kafka.linger.ms")
