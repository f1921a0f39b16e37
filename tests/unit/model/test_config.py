from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.model.config import CLEANUP_POLICIES, INT32_MAX, LogConfig
from distributedlog.model.errors import ConfigError


def test_the_defaults_are_kafkas() -> None:
    properties = LogConfig().to_properties()
    assert properties["segment.bytes"] == str(1 << 30)
    assert properties["segment.ms"] == properties["retention.ms"] == str(7 * 24 * 3600 * 1000)
    assert properties["segment.index.bytes"] == str(10 << 20)
    assert properties["index.interval.bytes"] == "4096"
    assert properties["max.message.bytes"] == "1048588"
    assert properties["retention.bytes"] == "-1"
    assert properties["cleanup.policy"] == "delete"
    assert properties["delete.retention.ms"] == "86400000"
    assert properties["min.cleanable.dirty.ratio"] == "0.5"
    assert properties["message.timestamp.type"] == "CreateTime"
    assert properties["compression.type"] == "producer"
    assert properties["file.delete.delay.ms"] == "60000"


@settings(max_examples=50, deadline=None)
@given(
    st.builds(
        LogConfig,
        segment_bytes=st.integers(1024, INT32_MAX),
        retention_ms=st.integers(-1, 2**62),
        min_cleanable_dirty_ratio=st.floats(0, 1),
        cleanup_policy=st.sampled_from([("delete",), ("compact",), ("compact", "delete")]),
        flush_on_commit=st.booleans(),
        message_timestamp_type=st.sampled_from(["CreateTime", "LogAppendTime"]),
    )
)
def test_properties_say_all_of_a_configuration(config: LogConfig) -> None:
    assert LogConfig.from_properties(config.to_properties()) == config


def test_spelling_is_read_with_indulgence() -> None:
    config = LogConfig.from_properties(
        {"cleanup.policy": "compact, delete", "flush.on.commit": " FALSE ", "compression.type": " zstd "}
    )
    assert config.cleanup_policy == ("compact", "delete")
    assert config.compacts
    assert config.deletes
    assert not config.flush_on_commit
    assert config.compression_type == "zstd"


def test_values_are_read_as_kafka_reads_them() -> None:
    config = LogConfig.from_properties(
        {
            "cleanup.policy": "",
            "retention.bytes": "-2",
            "retention.ms": " +5 ",
            "min.cleanable.dirty.ratio": ".25f",
            "segment.index.bytes": "4",
        }
    )
    assert (config.cleanup_policy, config.compacts, config.deletes) == ((), False, False)
    assert (config.retention_bytes, config.retention_ms) == (-2, 5)
    assert config.min_cleanable_dirty_ratio == 0.25
    assert config.index_bytes_max == 12, "one entry always fits"


def test_an_unknown_name_is_refused_and_the_known_ones_told() -> None:
    with pytest.raises(ConfigError, match=r"segment\.byte'; known are .*segment\.bytes"):
        LogConfig.from_properties({"segment.byte": "1"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("segment.bytes", "many"),
        ("segment.bytes", "1023"),
        ("segment.bytes", str(INT32_MAX + 1)),
        ("segment.index.bytes", "3"),
        ("flush.on.commit", "yes"),
        ("min.cleanable.dirty.ratio", "half"),
        ("min.cleanable.dirty.ratio", "1.01"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("retention.ms", "-2"),
        ("segment.ms", "0"),
        ("cleanup.policy", "shred"),
        ("cleanup.policy", ","),
        ("cleanup.policy", "delete,"),
        ("retention.bytes", "9223372036854775808"),
        ("retention.bytes", "1_000"),
        ("compression.type", "brotli"),
        ("message.timestamp.type", "createtime"),
    ],
)
def test_impossible_values_are_refused_by_the_settings_name(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=name.replace(".", r"\.")):
        LogConfig.from_properties({name: text})


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("segment_bytes", "1048576"),
        ("segment_bytes", None),
        ("retention_ms", 1.5e9),
        ("retention_bytes", True),
        ("flush_on_commit", "false"),
        ("flush_on_commit", 0),
        ("min_cleanable_dirty_ratio", "0.5"),
        ("compression_type", None),
    ],
)
def test_values_of_another_type_are_refused_by_the_settings_name(setting: str, value: Any) -> None:
    """The text "false" would be true."""
    with pytest.raises(ConfigError, match=setting.replace("_", r"\.")):
        LogConfig(**{setting: value})


def test_every_policy_is_asked_for_by_name() -> None:
    assert [LogConfig(cleanup_policy=(policy,)).compacts for policy in CLEANUP_POLICIES] == [False, True]
    assert [LogConfig(cleanup_policy=(policy,)).deletes for policy in CLEANUP_POLICIES] == [True, False]


def test_a_configuration_does_not_change() -> None:
    with pytest.raises(AttributeError):
        LogConfig().segment_bytes = 5  # type: ignore[misc]
