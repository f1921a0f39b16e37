"""What a subscription means, and what a query has lost; on a scripted broker."""

import logging

import pytest

from distributedlog.client.metadata import Cluster
from distributedlog.model.errors import (
    ConfigError,
    DlogError,
    OffsetOutOfRangeError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from distributedlog.model.ids import TopicPartition, Uuid
from distributedlog.spark.source.losses import Losses
from distributedlog.spark.source.offsets import Positions
from distributedlog.spark.source.options import ReadOptions, parse_stream_options
from distributedlog.spark.source.subscription import Subscription
from distributedlog.spark.source.topics import SubscribedPartitions, discover, losses_between
from tests.unit.client.stage import QUICK, ScriptedBroker, run

OLD, NEW = Uuid(b"o" * 16), Uuid(b"n" * 16)
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def options(broker: ScriptedBroker, **more: str) -> ReadOptions:
    return parse_stream_options(
        {
            "kafka.bootstrap.servers": broker.bootstrap,
            "fetchOffset.numRetries": "2",
            "fetchOffset.retryIntervalMs": "5",
            **more,
        }
    )


def found_by(broker: ScriptedBroker, *, must_exist: bool = True, **more: str) -> SubscribedPartitions:
    async def story() -> SubscribedPartitions:
        async with Cluster([broker.address], QUICK) as cluster:
            return await discover(cluster, options(broker, **more), must_exist=must_exist)

    return run(story())


def test_a_subscription_means_the_partitions_that_are_there() -> None:
    broker = ScriptedBroker(topics={"t": 2, "u": 1})
    with broker.running():
        assert found_by(broker, subscribe="u,t").partitions == (T0, T1, U0)
        assert found_by(broker, subscribePattern="^t$").partitions == (T0, T1)
        assert found_by(broker, subscribePattern="^none$").partitions == ()
        assert found_by(broker, assign='{"t":[1]}').partitions == (T1,)


def test_a_topic_that_is_named_must_be_there_when_a_query_begins_but_not_later() -> None:
    broker = ScriptedBroker(topics={"t": 1})
    with broker.running():
        with pytest.raises(UnknownTopicError, match="there is no topic 'gone'"):
            found_by(broker, subscribe="t,gone")
        assert found_by(broker, subscribe="t,gone", must_exist=False).partitions == (T0,)
        with pytest.raises(ConfigError, match="assign names t-7"):
            found_by(broker, assign='{"t":[0,7]}')


def lost(before: Positions, ends: dict[TopicPartition, int], ids: dict[str, Uuid]) -> list[DlogError]:
    return losses_between(
        before, ends, SubscribedPartitions(tuple(sorted(ends)), ids), Subscription(pattern=".")
    )


def test_nothing_is_lost_where_ends_are_not_before_the_query() -> None:
    assert lost(Positions({T0: 3}, {"t": OLD}), {T0: 3, T1: 9, U0: 0}, {"t": OLD, "u": NEW}) == []
    assert lost(Positions({T0: 3}), {T0: 3}, {"t": OLD}) == [], "no id was known"
    assert lost(Positions({T0: 3}, {"t": OLD}), {T0: 3}, {}) == [], "no id is told"


@pytest.mark.parametrize(
    ("before", "ends", "ids", "kind", "said"),
    [
        (
            Positions({T0: 3}, {"t": OLD}),
            {T0: 9},
            {"t": NEW},
            UnknownTopicIdError,
            "'t' was deleted and made",
        ),
        (Positions({T0: 3, U0: 1}), {U0: 1}, {}, UnknownTopicError, "the topic 't' is gone"),
        (Positions({T0: 3, T1: 1}), {T0: 3}, {}, UnknownTopicError, "the partition t-1 is gone"),
        (Positions({T0: 3}), {T0: 2}, {}, OffsetOutOfRangeError, "t-0 ends at 2, and the query was at 3"),
    ],
)
def test_what_is_lost_is_named(
    before: Positions, ends: dict[TopicPartition, int], ids: dict[str, Uuid], kind: type[DlogError], said: str
) -> None:
    (error,) = lost(before, ends, ids)
    assert isinstance(error, kind)
    assert said in str(error)


@pytest.mark.parametrize(
    ("subscription", "before", "ends", "said"),
    [
        (
            Subscription(("u",)),
            {T0: 3, U0: 1},
            {U0: 1},
            "has read the topic 't', and is now subscribed to 'u'",
        ),
        (Subscription(pattern="^u"), {T0: 3}, {U0: 1}, "has read the topic 't'"),
        (Subscription(("t",), None, (T0,)), {T0: 3, T1: 1}, {T0: 3}, "has read the partition t-1"),
    ],
)
def test_what_is_not_subscribed_to_any_more_is_not_told_as_gone(
    subscription: Subscription,
    before: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
    said: str,
) -> None:
    (error,) = losses_between(
        Positions(before), ends, SubscribedPartitions(tuple(sorted(ends)), {}), subscription
    )
    assert isinstance(error, ConfigError)
    assert said in str(error)
    assert "gone" not in str(error)


def test_a_topic_that_is_subscribed_to_and_not_there_is_gone() -> None:
    for subscription in (Subscription(("t", "u")), Subscription(pattern="t|u")):
        (error,) = losses_between(Positions({T0: 3}), {U0: 1}, SubscribedPartitions((U0,), {}), subscription)
        assert str(error) == "the topic 't' is gone"


def test_a_loss_is_an_error_or_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    error = OffsetOutOfRangeError("t-0 has no offsets 3 to 4")
    with pytest.raises(OffsetOutOfRangeError, match=r"has no offsets 3 to 4\. .*failOnDataLoss"):
        Losses(fails=True).report(error)
    with caplog.at_level(logging.WARNING, "distributedlog.spark"):
        Losses(fails=False).report(error)
    assert "t-0 has no offsets 3 to 4; it is passed over" in caplog.text
