"""Keyword arguments to options."""

from typing import Any

import pytest

from distributedlog import Admin, Consumer, Producer
from distributedlog.client.faces.settings import (
    as_bytes,
    as_headers,
    client_options,
    producer_options,
    reset_of,
)
from distributedlog.client.offset_specs import BEGINNING, END, Ago, OffsetSpec
from distributedlog.model.errors import ConfigError, InvalidRecordError, InvalidRegularExpressionError
from distributedlog.records.compression import Codec


def test_kafka_s_names_reach_the_options() -> None:
    options = producer_options(
        {"acks": 1, "compression": "lz4", "compression_level": 9, "batch_size": 100, "linger_ms": 3}
    )
    assert (options.acks, options.codec, options.codec_level) == (1, Codec.LZ4, 9)
    assert (options.batch_bytes_max, options.linger_ms) == (100, 3)
    assert producer_options({}).acks == producer_options({"acks": "all"}).acks == -1
    assert client_options({"retry_backoff_ms": 7, "metadata_max_age_ms": 9}).metadata_age_ms_max == 9


def test_a_small_buffer_makes_requests_and_batches_small_as_well() -> None:
    options = producer_options({"buffer_memory": 1000})
    assert (options.request_bytes_max, options.batch_bytes_max) == (1000, 1000)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lingerms": 5}, "do you mean linger_ms"),
        ({"compression": "brotli"}, "there are none, gzip"),
        ({"compression": "gzip", "compression_level": 99}, "no level 99"),
        ({"partitioner": "best"}, "murmur2"),
        ({"acks": 2}, "acks is 2"),
        ({"acks": 1, "enable_idempotence": True}, "acks=all"),
        ({"request_timeout_ms": 0}, "request_timeout_ms"),
        ({"reconnect_backoff_ms": 0}, "reconnect_backoff_ms is 0"),
        ({"buffer_memory": 1000, "batch_size": 2000}, "batch_size, max_request_size and buffer_memory"),
        ({"max_in_flight": 9}, "max_in_flight is 9"),
        ({"metadata_recovery_strategy": "best"}, "rebootstrap or none"),
    ],
)
def test_a_bad_setting_is_told_where_it_is_made(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Producer("127.0.0.1:1", **settings)


@pytest.mark.parametrize("records", [0, -1])
def test_a_consumer_that_would_give_out_nothing_is_refused(records: int) -> None:
    with pytest.raises(ConfigError, match="max_poll_records"):
        Consumer("127.0.0.1:1", max_poll_records=records)


def test_a_pattern_that_is_none_is_told() -> None:
    with pytest.raises(InvalidRegularExpressionError, match="no regular expression"):
        Consumer("127.0.0.1:1", group_id="g").subscribe(pattern="(")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", BEGINNING),
        ("latest", END),
        ("none", None),
        ("by_duration:PT1H30M", Ago(5_400_000)),
        ("by_duration:P3DT0.5S", Ago(3 * 86_400_000 + 500)),
    ],
)
def test_where_to_begin_is_read_as_kafka_s_clients_do(text: str, place: OffsetSpec | None) -> None:
    assert reset_of({"auto_offset_reset": text}) == place


@pytest.mark.parametrize(
    "text", ["best", "by_duration", "by_duration:", "by_duration:1h", "by_duration:-PT1H", 7]
)
def test_no_other_place_to_begin_is_taken(text: object) -> None:
    with pytest.raises(ConfigError, match="by_duration:PT1H for an hour"):
        reset_of({"auto_offset_reset": text})


def test_an_admin_has_no_settings_of_producers() -> None:
    with pytest.raises(ConfigError, match="an admin has no setting 'acks'"):
        Admin("127.0.0.1:1", acks=1)  # type: ignore[call-arg]


def test_keys_values_and_headers_are_bytes_or_text() -> None:
    assert [as_bytes(each) for each in (None, b"a", "é", bytearray(b"b"), memoryview(b"c"))] == [
        None,
        b"a",
        "é".encode(),
        b"b",
        b"c",
    ]
    with pytest.raises(InvalidRecordError, match="int"):
        as_bytes(5)
    assert as_headers([("a", "x"), ("a", None)]) == (("a", b"x"), ("a", None))
    assert as_headers({}) == as_headers(None) == ()
