"""The values are those that Apache Kafka 4.2.1 takes and refuses for groups."""

import pytest

from distributedlog.model.errors import ConfigError
from distributedlog.model.group_settings import (
    GROUP_SETTINGS,
    HEARTBEAT_INTERVAL,
    SESSION_TIMEOUT,
    check_settings,
    read_consumer_settings,
)

RESET = "share.auto.offset.reset"


def test_there_are_the_eleven_of_kafka() -> None:
    assert len(GROUP_SETTINGS) == 11
    assert {name.partition(".")[0] for name in GROUP_SETTINGS} == {"consumer", "share", "streams"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (SESSION_TIMEOUT, " +50000 "),
        (RESET, "earliest"),
        (RESET, " latest "),
        (RESET, "by_duration:P1D"),
        (RESET, "by_duration:PT0S"),
        (RESET, "by_duration:p1dt2h3m4.5s"),
        (RESET, "by_duration:PT-1H61M"),
        (RESET, "by_duration:-PT-0.5S"),
        ("share.isolation.level", "read_committed"),
        ("share.record.lock.duration.ms", "15000"),
        ("share.session.timeout.ms", "60000"),
        ("share.heartbeat.interval.ms", "15000"),
        ("streams.heartbeat.interval.ms", "5000"),
        ("streams.initial.rebalance.delay.ms", "0"),
        ("streams.num.standby.replicas", "2"),
        ("streams.session.timeout.ms", "45000"),
    ],
)
def test_what_kafka_takes_is_taken(name: str, text: str) -> None:
    check_settings({name: text})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (SESSION_TIMEOUT, "0"),
        (SESSION_TIMEOUT, "2147483648"),
        (SESSION_TIMEOUT, ""),
        (RESET, "none"),
        (RESET, "LATEST"),
        (RESET, "by_duration"),
        (RESET, "by_duration:"),
        (RESET, "by_duration:P"),
        (RESET, "by_duration:PT"),
        (RESET, "by_duration:P1DT"),
        (RESET, "by_duration:-PT1H"),
        (RESET, "by_duration:PT-0.5S"),
        (RESET, "by_duration:P1Y"),
        (RESET, "by_duration:P" + "9" * 19 + "D"),
        ("share.isolation.level", "READ_COMMITTED"),
        ("share.record.lock.duration.ms", "14999"),
        ("share.record.lock.duration.ms", "60001"),
        ("share.session.timeout.ms", "44999"),
        ("share.heartbeat.interval.ms", "x"),
        ("streams.heartbeat.interval.ms", "15001"),
        ("streams.initial.rebalance.delay.ms", "-1"),
        ("streams.num.standby.replicas", "3"),
        ("streams.session.timeout.ms", "60001"),
        ("no.such", "1"),
    ],
)
def test_what_kafka_refuses_is_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=name.replace(".", r"\.")):
        check_settings({name: text})


def test_only_those_of_consumers_have_an_effect() -> None:
    settings = {SESSION_TIMEOUT: "50000", HEARTBEAT_INTERVAL: "7000", RESET: "latest", "of.later": "?"}
    assert read_consumer_settings(settings) == {SESSION_TIMEOUT: 50_000, HEARTBEAT_INTERVAL: 7_000}
