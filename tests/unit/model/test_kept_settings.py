"""The values are those that Apache Kafka 4.2.1 takes and refuses."""

import pytest

from distributedlog.model.errors import ConfigError
from distributedlog.model.kept_settings import KEPT_SETTINGS

THROTTLED = "leader.replication.throttled.replicas"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("compression.gzip.level", "-1", -1),
        ("compression.gzip.level", "9", 9),
        ("compression.lz4.level", "17", 17),
        ("compression.zstd.level", "-131072", -131072),
        ("local.retention.ms", "-2", -2),
        ("local.retention.bytes", " 5 ", 5),
        ("preallocate", " TRUE ", True),
        ("remote.storage.enable", "false", False),
        ("remote.log.copy.disable", "true", True),
        (THROTTLED, "", ()),
        (THROTTLED, "*", ("*",)),
        (THROTTLED, " 0:1 , 1:2 ", ("0:1", "1:2")),
    ],
)
def test_what_kafka_takes_is_read(name: str, text: str, value: object) -> None:
    assert KEPT_SETTINGS[name].parse(text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("compression.gzip.level", "0"),
        ("compression.gzip.level", "10"),
        ("compression.gzip.level", "-2"),
        ("compression.lz4.level", "0"),
        ("compression.lz4.level", "18"),
        ("compression.zstd.level", "23"),
        ("compression.zstd.level", "-131073"),
        ("local.retention.ms", "-3"),
        ("local.retention.bytes", "9223372036854775808"),
        ("local.retention.bytes", "1" * 5_000),
        ("preallocate", "yes"),
        ("remote.storage.enable", "true"),
        ("remote.log.delete.on.disable", "1"),
        *((THROTTLED, text) for text in ("none", "x", "0:", ":", "0:-1", "*,0:1", "0:1,", "٣:1")),
    ],
)
def test_what_kafka_refuses_is_refused_by_the_settings_name(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=name.replace(".", r"\.")) as caught:
        KEPT_SETTINGS[name].parse(text)
    assert len(str(caught.value)) < 250


def test_the_defaults_can_be_given() -> None:
    for setting in KEPT_SETTINGS.values():
        text = ",".join(setting.default) if setting.default == () else str(setting.default)
        assert setting.parse(text) == setting.default
