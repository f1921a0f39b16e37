"""The options of a reader: Spark's Kafka source's, and what is said about wrong ones."""

import logging

import pytest

from distributedlog.client.offset_specs import EARLIEST, LATEST, Isolation
from distributedlog.client.timestamps import TimestampSpec
from distributedlog.client.view import PartitionView, TopicView
from distributedlog.model.errors import ConfigError
from distributedlog.model.ids import TopicPartition
from distributedlog.spark.source.columns import ALL, PLAIN
from distributedlog.spark.source.kafka_options import REFUSED, TAKEN, WITHOUT_EFFECT
from distributedlog.spark.source.options import (
    SPELLED,
    AtEnd,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Bound,
    ReadOptions,
    check_read_options,
    is_relative_to_now,
    parse_batch_options,
    parse_stream_options,
)
from distributedlog.spark.source.subscription import Subscription, parse_subscription

NEEDED = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}
ORDERS_0 = TopicPartition("orders", 0)


def stream(**more: str) -> ReadOptions:
    return parse_stream_options({**NEEDED, **{name.replace("__", "."): each for name, each in more.items()}})


def batch(**more: str) -> ReadOptions:
    return parse_batch_options({**NEEDED, **{name.replace("__", "."): each for name, each in more.items()}})


def test_a_stream_starts_at_the_end_and_a_bounded_read_at_the_beginning() -> None:
    assert stream().start == AtEnd(LATEST)
    assert batch().start == AtEnd(EARLIEST)
    assert batch().end == AtEnd(LATEST)
    assert stream().columns == PLAIN


def test_names_of_options_may_be_written_in_any_case() -> None:
    found = parse_stream_options(
        {
            "KAFKA.Bootstrap.Servers": "h:1",
            "SUBSCRIBE": "a",
            "maxoffsetspertrigger": "7",
            "INCLUDEHEADERS": "True",
        }
    )
    assert found.limits.offsets_max == 7
    assert found.columns == ALL


@pytest.mark.parametrize(
    ("options", "bound"),
    [
        ({"startingOffsets": "Earliest"}, AtEnd(EARLIEST)),
        ({"startingOffsets": " latest "}, AtEnd(LATEST)),
        ({"startingOffsets": "-10m"}, AtTimestamp(TimestampSpec(600_000, is_ago=True))),
        ({"startingTimestamp": "5", "startingOffsets": "earliest"}, AtTimestamp(TimestampSpec(5))),
        (
            {"startingTimestamp": "5", "startingOffsetsByTimestamp": '{"orders":{"0":6}}'},
            AtTimestamp(TimestampSpec(5)),
        ),
        (
            {"startingOffsetsByTimestamp": '{"orders":{"0":6}}', "startingOffsets": "earliest"},
            AtTimestamps({ORDERS_0: TimestampSpec(6)}),
        ),
    ],
)
def test_where_to_start_is_said_in_one_of_several_ways(options: dict[str, str], bound: Bound) -> None:
    assert stream(**options).start == bound


def test_a_start_at_the_end_or_so_long_ago_means_something_else_each_time() -> None:
    assert is_relative_to_now(stream().start)
    assert is_relative_to_now(stream(startingOffsets="-1h").start)
    assert is_relative_to_now(stream(startingOffsets='{"orders":{"0":-1}}').start)
    assert is_relative_to_now(stream(startingOffsetsByTimestamp='{"orders":{"0":"-1h"}}').start)
    assert not is_relative_to_now(stream(startingOffsets="earliest").start)
    assert not is_relative_to_now(stream(startingOffsets='{"orders":{"0":-2,"1":7}}').start)
    assert not is_relative_to_now(stream(startingTimestamp="5").start)


def test_kafkas_own_options_reach_the_client() -> None:
    found = stream(
        kafka__isolation__level="read_committed",
        kafka__client__id="me",
        kafka__request__timeout__ms="11",
        kafka__default__api__timeout__ms="22",
        kafka__max__partition__fetch__bytes="33",
        kafka__fetch__max__wait__ms="44",
        kafka__group__id="g",
        kafka__client__rack="b",
    )
    assert found.kafka.isolation is Isolation.READ_COMMITTED
    assert found.kafka.rack == "b"
    assert (found.kafka.client.client_id, found.kafka.client.request_timeout_ms) == ("me", 11)
    assert (found.kafka.client.call_timeout_ms, found.kafka.fetch_bytes_max) == (22, 33)
    assert (found.kafka.fetch_wait_ms, found.group_id) == (44, "g")
    assert found.kafka.client.waits_for_first_contact
    assert stream(isolation__level="READ_COMMITTED").kafka.isolation is Isolation.READ_COMMITTED
    assert stream(kafka__fetch__max__bytes="2000000000").kafka.fetch_bytes_max == 4 * 1024 * 1024


def test_only_committed_transactions_are_read_unless_others_are_wanted() -> None:
    assert stream().kafka.isolation is Isolation.READ_COMMITTED
    uncommitted = stream(isolation__level="read_uncommitted")
    assert uncommitted.kafka.isolation is Isolation.READ_UNCOMMITTED


def test_the_group_is_named_after_the_topics_unless_it_has_a_name() -> None:
    assert stream().group_id == "spark-orders"
    assert stream(subscribe="a,b", groupIdPrefix="etl").group_id == "etl-a,b"
    assert stream(commitOffsets="false", kafka__group__id="g").group_id == ""
    long = parse_stream_options({**NEEDED, "subscribe": ",".join(f"topic{n}" for n in range(500))})
    assert len(long.group_id) < 60


@pytest.mark.parametrize("name", REFUSED)
def test_what_sparks_kafka_source_refuses_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"kafka\.{name} is not supported"):
        check_read_options({**NEEDED, f"kafka.{name}": "x"})


@pytest.mark.parametrize(
    ("name", "value"),
    [("security.protocol", "SSL"), ("sasl.mechanism", "PLAIN"), ("ssl.keystore.location", "x")],
)
def test_protection_that_is_not_there_is_not_promised(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf"kafka\.{name} is not supported"):
        check_read_options({**NEEDED, f"kafka.{name}": value})
    check_read_options({**NEEDED, "kafka.security.protocol": "plaintext"})


def test_an_option_without_effect_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "distributedlog.spark"):
        for _ in range(2):
            check_read_options({**NEEDED, "kafka.heartbeat.interval.ms": "5", "quite.something.else": "5"})
    told = [record.getMessage() for record in caplog.records]
    assert sorted(told) == [
        "the option kafka.heartbeat.interval.ms has no effect here",
        "the option quite.something.else has no effect here",
    ]


def test_no_option_of_ours_or_kafkas_is_taken_for_a_misspelling_of_another() -> None:
    for name in (*SPELLED, *(f"kafka.{each}" for each in (*TAKEN, *WITHOUT_EFFECT))):
        try:
            check_read_options({**NEEDED, name: "1"})
        except ConfigError as error:
            assert "did you mean" not in str(error)  # noqa: PT017 (the value may be wrong, the name is not)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("startingOfsets", "startingOffsets"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("subscribepatern", "subscribePattern"),
        ("kafka.bootstrap.server", "kafka.bootstrap.servers"),
        ("include.headers", "includeHeaders"),
    ],
)
def test_a_misspelt_option_is_answered_with_the_right_one(name: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"there is no option .*: did you mean {meant}"):
        check_read_options({**NEEDED, name: "x"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers is missing"),
        ({"kafka.bootstrap.servers": "::"}, "not an address"),
        ({"kafka.isolation.level": "read_all"}, "kafka.isolation.level is 'read_all'"),
        ({"kafka.isolation.level": "read_committed", "isolation.level": "read_uncommitted"}, "say different"),
        ({"kafka.request.timeout.ms": "-1"}, "kafka.request.timeout.ms is '-1'"),
        ({"kafka.group.id": ""}, "kafka.group.id is empty"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger is '0'"),
        ({"minPartitions": "many"}, "minPartitions is 'many'"),
        ({"failOnDataLoss": "yes"}, "failOnDataLoss is 'yes': write true or false"),
        ({"includeHeaders": "1"}, "includeHeaders is '1'"),
        ({"columns": "value,values"}, "columns names 'values'"),
        ({"columns": "value,value"}, "each once"),
        ({"columns": " , "}, "must name some"),
        ({"columns": "value", "includeHeaders": "true"}, "leaves headers out"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "above maxOffsetsPerTrigger"),
        ({"maxTriggerDelay": "later"}, "maxTriggerDelay is 'later'"),
        ({"startingOffsets": "newest"}, "write earliest, latest, -10m, or JSON"),
        ({"startingTimestamp": "soon"}, "startingTimestamp is 'soon'"),
        ({"startingOffsetsByTimestampStrategy": "first"}, "write error or latest"),
        ({"path": "orders"}, "topics are named with subscribe"),
        ({"subscribe": " , "}, "write names of topics"),
        ({"subscribe": "a b"}, "characters other than"),
        ({"assign": "{}"}, "say different things"),
    ],
)
def test_a_wrong_value_is_said_in_words(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_read_options({**NEEDED, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "latest"}, "cannot start at latest"),
        ({"endingOffsets": "earliest"}, "cannot end at earliest"),
        ({"startingOffsets": '{"orders":{"0":-1}}'}, "cannot have -1"),
        ({"endingOffsets": '{"orders":{"0":-2}}'}, "cannot have -2"),
        (
            {"startingOffsets": '{"orders":{"0":5}}', "endingOffsets": '{"orders":{"0":4}}'},
            "orders-0 would start at 5 and end at 4",
        ),
        (
            {"startingOffsets": '{"orders":{"0":5}}', "endingOffsets": '{"orders":{"1":9}}'},
            "must name the same partitions: orders-0, orders-1",
        ),
    ],
)
def test_a_bounded_read_of_nothing_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        batch(**options)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is for bounded reads"):
        stream(**{name: "latest"})


def test_partitions_that_are_assigned_are_those_that_are_given_a_place() -> None:
    assigned = {"kafka.bootstrap.servers": "h:1", "assign": '{"a":[0,1]}'}
    with pytest.raises(ConfigError, match="must name the same partitions: a-1"):
        parse_stream_options({**assigned, "startingOffsets": '{"a":{"0":5}}'})
    found = parse_stream_options({**assigned, "startingOffsets": '{"a":{"0":5,"1":-2}}'})
    assert isinstance(found.start, AtOffsets)


# --- subscriptions -----------------------------------------------------------------------------


def topic(name: str, partitions: int = 1, *, is_internal: bool = False) -> TopicView:
    return TopicView(
        name, tuple(PartitionView(index, 1) for index in range(partitions)), is_internal=is_internal
    )


def test_a_pattern_finds_topics_but_no_internal_ones() -> None:
    found = parse_subscription({"subscribepattern": "ord.*"})
    assert found.matches(topic("orders"))
    assert found.matches(topic("old-orders"))
    assert not found.matches(topic("payments"))
    assert not found.matches(topic("__ord", is_internal=True))
    with pytest.raises(ConfigError, match="which is no pattern"):
        parse_subscription({"subscribepattern": "("})
    with pytest.raises(ConfigError, match="is empty"):
        parse_subscription({"subscribepattern": " "})


def test_a_subscription_means_all_partitions_or_those_assigned() -> None:
    two = topic("t", 2)
    assert Subscription(("t",)).partitions_of([two]) == [TopicPartition("t", 0), TopicPartition("t", 1)]
    assigned = parse_subscription({"assign": '{"t":[1]}'})
    assert assigned.partitions_of([two]) == [TopicPartition("t", 1)]
    missing = parse_subscription({"assign": '{"t":[1,5]}'})
    with pytest.raises(ConfigError, match="assign names t-5"):
        missing.partitions_of([two])
    assert missing.partitions_of([two], must_exist=False) == [TopicPartition("t", 1)]
