import pytest

from distributedlog.broker.handlers.describe_configs import SLICE_RESOURCES
from distributedlog.controller import configs as controller
from distributedlog.model.cluster_settings import CLUSTER_SETTINGS
from distributedlog.model.config import LogConfig
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.kept_settings import KEPT_SETTINGS
from distributedlog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from distributedlog.settings.config_layers import TOPIC_SETTINGS
from distributedlog.settings.loading import load_settings
from distributedlog.settings.node_settings import SETTINGS
from tests.unit.broker.handlers.admin_stage import Broker
from tests.unit.broker.handlers.config_requests import BROKER, EVERY, GROUP, TOPIC, describe, one, store

OF_TOPIC, OF_BROKER, OF_CLUSTER, STATIC, DEFAULT = 1, 2, 3, 4, 5
BOOLEAN, INT, LONG, DOUBLE, LIST = 1, 3, 5, 6, 7


def layered() -> Broker:
    """A setting in each layer."""
    broker = Broker(settings=load_settings(None, {"log.retention.ms": "4000"}, {}))
    broker.create("t", retention_ms="1000")
    store(broker, BROKER, "1", log_retention_ms="2000")
    store(broker, BROKER, "", log_retention_ms="3000")
    return broker


@pytest.mark.parametrize("version", EVERY)
def test_every_version_tells_all_settings_of_a_topic(version: int) -> None:
    broker = Broker()
    broker.create("t", cleanup_policy="compact")
    result = describe(broker, TOPIC, "t", version=version)
    assert result.error_code == 0
    told = {each.name: each for each in result.configs}
    replication = {"min.insync.replicas", "unclean.leader.election.enable"}
    assert set(told) == set(LogConfig.by_name) | replication | set(KEPT_SETTINGS)
    assert (told["cleanup.policy"].value, told["cleanup.policy"].config_source) == ("compact", OF_TOPIC)
    assert (told["segment.bytes"].value, told["segment.bytes"].config_source) == ("1073741824", DEFAULT)
    assert not any(each.read_only or each.is_sensitive or each.synonyms for each in result.configs)


@pytest.mark.parametrize("version", EVERY)
def test_every_version_tells_all_settings_of_the_broker(version: int) -> None:
    broker = Broker(settings=load_settings(None, {"num.partitions": "7"}, {"DLOG_LOG_LEVEL": "error"}))
    result = describe(broker, BROKER, "1", version=version)
    told = {each.name: each for each in result.configs}
    assert set(told) == set(SETTINGS)
    assert (told["num.partitions"].value, told["num.partitions"].config_source) == ("1", OF_CLUSTER)
    assert (told["log.level"].value, told["log.level"].config_source) == ("error", STATIC)
    assert (told["node.id"].value, told["node.id"].config_source) == ("1", DEFAULT)
    assert told["broker.session.timeout.ms"].read_only
    assert not told["num.partitions"].read_only
    assert not told["log.retention.ms"].read_only
    assert told["listeners"].value == told["advertised.listeners"].value == "PLAINTEXT://127.0.0.1:9092"


def test_types_and_documentation_are_told_from_version_3_on() -> None:
    broker = Broker()
    broker.create("t")
    kinds = {
        "flush.on.commit": BOOLEAN,
        "segment.bytes": INT,
        "retention.ms": LONG,
        "min.cleanable.dirty.ratio": DOUBLE,
        "cleanup.policy": LIST,
    }
    for name, kind in kinds.items():
        assert one(broker, TOPIC, "t", name).config_type == kind
    assert one(broker, TOPIC, "t", "retention.ms").documentation is None
    told = one(broker, TOPIC, "t", "retention.ms", documentation=True)
    assert told.documentation == TOPIC_SETTINGS["retention.ms"].documentation
    (old,) = describe(broker, TOPIC, "t", "retention.ms", version=2, documentation=False).configs
    assert (old.config_type, old.documentation) == (0, None)


@pytest.mark.parametrize(
    ("name", "kind", "value", "synonyms"),
    [
        ("preallocate", BOOLEAN, "false", [("log.preallocate", "false", DEFAULT)]),
        ("compression.lz4.level", INT, "9", [("compression.lz4.level", "9", DEFAULT)]),
        ("local.retention.ms", LONG, "-2", [("log.local.retention.ms", "-2", DEFAULT)]),
        ("remote.storage.enable", BOOLEAN, "false", []),
    ],
)
def test_a_setting_without_effect_is_told_as_by_kafka_and_that_it_has_none(
    name: str, kind: int, value: str, synonyms: list[tuple[str, str, int]]
) -> None:
    broker = Broker()
    broker.create("t")
    told = one(broker, TOPIC, "t", name, synonyms=True, documentation=True)
    assert (told.value, told.config_source, told.config_type) == (value, DEFAULT, kind)
    assert [(each.name, each.value, each.source) for each in told.synonyms] == synonyms
    assert told.documentation is not None
    assert told.documentation.startswith("Kept and described, without effect here.")
    with_effect = one(broker, TOPIC, "t", "retention.ms", documentation=True)
    assert "without effect" not in (with_effect.documentation or "")


def test_a_topics_own_values_are_told_as_they_are_read() -> None:
    broker = Broker()
    given = {
        "preallocate": " TRUE ",
        "min_cleanable_dirty_ratio": "0.25f",
        "cleanup_policy": "compact, delete",
    }
    broker.create("t", min_insync_replicas="+1", internal_segment_bytes="2048", **given)
    told = {each.name: each for each in describe(broker, TOPIC, "t").configs}
    values = {name: each.value for name, each in told.items() if each.config_source == OF_TOPIC}
    assert values == {
        "cleanup.policy": "compact,delete",
        "min.cleanable.dirty.ratio": "0.25",
        "min.insync.replicas": "1",
        "preallocate": "true",
    }


def test_an_explicit_min_insync_replicas_is_told_before_the_default() -> None:
    broker = Broker()
    broker.create("t", min_insync_replicas="1")
    store(broker, BROKER, "", min_insync_replicas="1")
    told = one(broker, TOPIC, "t", "min.insync.replicas", synonyms=True)
    assert [(each.value, each.source) for each in told.synonyms] == [
        ("1", OF_TOPIC),
        ("1", OF_CLUSTER),
        ("1", DEFAULT),
    ]


def test_a_topics_setting_comes_from_the_first_layer_that_has_it() -> None:
    told = one(layered(), TOPIC, "t", "retention.ms", synonyms=True)
    assert (told.value, told.config_source) == ("1000", OF_TOPIC)
    assert [(each.name, each.value, each.source) for each in told.synonyms] == [
        ("retention.ms", "1000", OF_TOPIC),
        ("log.retention.ms", "2000", OF_BROKER),
        ("log.retention.ms", "3000", OF_CLUSTER),
        ("log.retention.ms", "4000", STATIC),
        ("log.retention.ms", "604800000", DEFAULT),
    ]


def test_a_brokers_setting_comes_from_the_first_layer_that_has_it() -> None:
    told = one(layered(), BROKER, "1", "log.retention.ms", synonyms=True)
    assert (told.value, told.config_source) == ("2000", OF_BROKER)
    assert [each.source for each in told.synonyms] == [OF_BROKER, OF_CLUSTER, STATIC, DEFAULT]


def test_what_is_set_for_all_brokers_is_told_alone() -> None:
    broker = layered()
    store(broker, BROKER, "", somebody_elses="secret")
    described = describe(broker, BROKER, "", synonyms=True).configs
    told = [each for each in described if each.name not in CLUSTER_SETTINGS]
    assert [(each.name, each.value, each.config_source) for each in told] == [
        ("log.retention.ms", "3000", OF_CLUSTER),
        ("somebody.elses", None, OF_CLUSTER),
    ]
    assert [(each.value, each.source) for each in told[0].synonyms] == [("3000", OF_CLUSTER)]
    assert [each.name for each in describe(Broker(), BROKER, "").configs] == sorted(CLUSTER_SETTINGS)


def test_a_setting_that_nobody_here_knows_may_hide_a_secret() -> None:
    broker = Broker()
    store(broker, BROKER, "", somebody_elses="secret", both="secret")
    store(broker, BROKER, "1", both="secret")
    for name, source in (("somebody.elses", OF_CLUSTER), ("both", OF_BROKER)):
        told = one(broker, BROKER, "1", name, synonyms=True, documentation=True)
        assert (told.value, told.is_sensitive, told.read_only) == (None, True, True)
        assert (told.config_source, told.config_type, told.documentation) == (source, 0, None)
        assert [each.value for each in told.synonyms] == [None]


def test_what_the_broker_does_not_take_over_is_not_told_as_in_force() -> None:
    broker = Broker()
    store(broker, BROKER, "1", max_connections="9", log_retention_ms="soon", log_segment_bytes="4096")
    assert one(broker, BROKER, "1", "max.connections").value == "10000"
    assert one(broker, BROKER, "1", "log.retention.ms").config_source == DEFAULT
    assert one(broker, BROKER, "1", "log.segment.bytes").value == "4096"


def test_keys_choose_and_unknown_ones_are_left_out() -> None:
    broker = Broker()
    broker.create("t")
    told = describe(broker, TOPIC, "t", "retention.ms", "no.such", "segment.ms").configs
    assert [each.name for each in told] == ["retention.ms", "segment.ms"]


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "no name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (BROKER, "9" * 5_000, ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_has_no_settings_here_is_refused(kind: int, name: str, code: ErrorCode) -> None:
    result = describe(Broker(1, 2), kind, name)
    assert (result.error_code, result.configs) == (code, [])
    assert result.error_message


def test_a_resource_that_is_named_often_is_told_once() -> None:
    broker = Broker()
    broker.create("t")
    resources = [DescribeConfigsResource(resource_type=TOPIC, resource_name="t", configuration_keys=None)]
    response = broker.ask(DescribeConfigsRequest(resources=resources * 1_000), 4, DescribeConfigsResponse)
    assert [each.resource_name for each in response.results] == ["t"]


def test_each_resource_stands_for_itself() -> None:
    broker = Broker()
    broker.create("t")
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=["retention.ms"])
        for kind, name in ((TOPIC, "u"), (TOPIC, "t"), (77, "x"))
    ]
    response = broker.ask(DescribeConfigsRequest(resources=resources), 4, DescribeConfigsResponse)
    assert [(each.resource_name, each.error_code, len(each.configs)) for each in response.results] == [
        ("u", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0),
        ("t", 0, 1),
        ("x", ErrorCode.INVALID_REQUEST, 0),
    ]


@pytest.mark.parametrize("keys", [None, ["retention.ms", "segment.ms"]])
def test_thousands_of_topics_are_told_as_each_alone_would_be(keys: list[str] | None) -> None:
    broker = Broker()
    names = [f"topic-{number:05}" for number in range(3 * SLICE_RESOURCES)]
    broker.create_many(len(names), 1)
    store(broker, TOPIC, names[7], retention_ms="7")
    store(broker, TOPIC, names[-1], segment_ms="8")
    resources = [
        DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=keys)
        for name in [*names, "absent"]
    ]
    request = DescribeConfigsRequest(resources=resources, include_synonyms=True)
    together = broker.ask(request, 4, DescribeConfigsResponse).results
    for name, result in zip([*names[:9], names[-1]], [*together[:9], together[-2]], strict=True):
        assert result == describe(broker, TOPIC, name, *keys or (), synonyms=True)
    assert [each.resource_name for each in together] == [*names, "absent"]
    assert together[-1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_has_the_settings_that_the_controller_lets_it_have() -> None:
    assert tuple(TOPIC_SETTINGS) == controller.TOPIC_SETTINGS
