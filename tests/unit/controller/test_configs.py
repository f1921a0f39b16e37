import pytest

from distributedlog.controller import configs
from distributedlog.controller.configs import ConfigEdit, ControllerConfig, check_settings
from distributedlog.controller.image import CLUSTER_DEFAULT, ConfigResource, ResourceType
from distributedlog.controller.requests import (
    AlterConfigsRequest,
    ConfigsReply,
    IncrementalAlterConfigsRequest,
)
from distributedlog.model.config_ops import ConfigOp
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import ConfigError
from tests.unit.controller.stage import Stage

TOPIC = ConfigResource(ResourceType.TOPIC, "t")
CLUSTER = ConfigResource(ResourceType.BROKER, CLUSTER_DEFAULT)
GROUP = ConfigResource(ResourceType.GROUP, "g")
KAFKA_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}
"""The settings of Apache Kafka 4.2.1: all that a topic can have."""


def stage_with_topic(**settings: str) -> Stage:
    stage = Stage()
    stage.start(1)
    stage.create("t", (1,), **settings)
    return stage


def edit(
    stage: Stage, resource: ConfigResource, *edits: ConfigEdit, validate_only: bool = False
) -> ErrorCode:
    request = IncrementalAlterConfigsRequest(((resource, edits),), validate_only)
    return stage.ask(request, ConfigsReply).resources[0][1].error


def replace(stage: Stage, resource: ConfigResource, **settings: str | None) -> ErrorCode:
    named = {key.replace("_", "."): value for key, value in settings.items()}
    return stage.ask(AlterConfigsRequest(((resource, named),)), ConfigsReply).resources[0][1].error


def settings(stage: Stage, resource: ConfigResource = TOPIC) -> dict[str, str]:
    return dict(stage.image.settings_of(*resource).items())


def test_settings_are_set_and_removed_one_by_one() -> None:
    stage = stage_with_topic(retention_ms="1000")
    assert edit(stage, TOPIC, ConfigEdit("segment.bytes", ConfigOp.SET, "1048576")) is ErrorCode.NONE
    assert settings(stage) == {"retention.ms": "1000", "segment.bytes": "1048576"}
    assert edit(stage, TOPIC, ConfigEdit("retention.ms", ConfigOp.DELETE)) is ErrorCode.NONE
    assert settings(stage) == {"segment.bytes": "1048576"}


def test_lists_are_appended_to_and_taken_from() -> None:
    stage = stage_with_topic()
    assert edit(stage, TOPIC, ConfigEdit("cleanup.policy", ConfigOp.APPEND, "compact")) is ErrorCode.NONE
    assert settings(stage) == {"cleanup.policy": "delete,compact"}
    assert edit(stage, TOPIC, ConfigEdit("cleanup.policy", ConfigOp.APPEND, "compact")) is ErrorCode.NONE
    assert settings(stage) == {"cleanup.policy": "delete,compact"}
    assert edit(stage, TOPIC, ConfigEdit("cleanup.policy", ConfigOp.SUBTRACT, "delete")) is ErrorCode.NONE
    assert settings(stage) == {"cleanup.policy": "compact"}
    assert edit(stage, TOPIC, ConfigEdit("cleanup.policy", ConfigOp.SUBTRACT, "compact")) is ErrorCode.NONE
    assert settings(stage) == {"cleanup.policy": ""}
    throttled = "leader.replication.throttled.replicas"
    assert edit(stage, TOPIC, ConfigEdit(throttled, ConfigOp.APPEND, "0:1")) is ErrorCode.NONE
    assert edit(stage, TOPIC, ConfigEdit(throttled, ConfigOp.APPEND, "1:1")) is ErrorCode.NONE
    assert settings(stage)[throttled] == "0:1,1:1"


def test_a_topic_has_every_setting_of_kafka_with_its_default() -> None:
    stage = stage_with_topic()
    for name, value in KAFKA_DEFAULTS.items():
        assert edit(stage, TOPIC, ConfigEdit(name, ConfigOp.SET, value)) is ErrorCode.NONE, name
    assert settings(stage) == KAFKA_DEFAULTS


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", ""),
        ("cleanup.policy", "delete,delete"),
        ("retention.bytes", "-2"),
        ("retention.ms", " +5 "),
        ("min.cleanable.dirty.ratio", "0.5f"),
        ("min.insync.replicas", " +2 "),
        ("segment.index.bytes", "4"),
        ("internal.segment.bytes", "1024"),
    ],
)
def test_what_kafka_takes_is_taken(name: str, value: str) -> None:
    stage = stage_with_topic()
    assert edit(stage, TOPIC, ConfigEdit(name, ConfigOp.SET, value)) is ErrorCode.NONE
    assert settings(stage) == {name: value}


def test_what_an_earlier_version_took_does_not_stand_in_the_way() -> None:
    before = {"segment.bytes": "4096", "min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}
    check_settings(TOPIC, {**before, "retention.ms": "5"}, before)
    for changed in ({"segment.bytes": "4097"}, {"min.compaction.lag.ms": "11"}):
        with pytest.raises(ConfigError, match=next(iter(changed)).replace(".", r"\.")):
            check_settings(TOPIC, {**before, **changed}, before)


def test_to_alter_replaces_all_that_was_there() -> None:
    stage = stage_with_topic(retention_ms="1000", segment_bytes="1048576")
    assert replace(stage, TOPIC, segment_bytes="2097152") is ErrorCode.NONE
    assert settings(stage) == {"segment.bytes": "2097152"}


@pytest.mark.parametrize(
    ("resource", "edits", "code"),
    [
        (TOPIC, (ConfigEdit("no.such", ConfigOp.SET, "1"),), ErrorCode.INVALID_CONFIG),
        (TOPIC, (ConfigEdit("segment.bytes", ConfigOp.SET, "x"),), ErrorCode.INVALID_CONFIG),
        (TOPIC, (ConfigEdit("segment.bytes", ConfigOp.APPEND, "1"),), ErrorCode.INVALID_CONFIG),
        (TOPIC, (ConfigEdit("segment.bytes", ConfigOp.SET, "1048575"),), ErrorCode.INVALID_CONFIG),
        (TOPIC, (ConfigEdit("internal.segment.bytes", ConfigOp.SET, "1023"),), ErrorCode.INVALID_CONFIG),
        (TOPIC, (ConfigEdit("min.insync.replicas", ConfigOp.SET, "1.0"),), ErrorCode.INVALID_CONFIG),
        (
            TOPIC,
            (ConfigEdit("unclean.leader.election.enable", ConfigOp.SET, "on"),),
            ErrorCode.INVALID_CONFIG,
        ),
        (TOPIC, (ConfigEdit("remote.storage.enable", ConfigOp.SET, "true"),), ErrorCode.INVALID_CONFIG),
        (TOPIC, (ConfigEdit("compression.gzip.level", ConfigOp.SET, "0"),), ErrorCode.INVALID_CONFIG),
        (
            TOPIC,
            (
                ConfigEdit("min.compaction.lag.ms", ConfigOp.SET, "10"),
                ConfigEdit("max.compaction.lag.ms", ConfigOp.SET, "5"),
            ),
            ErrorCode.INVALID_CONFIG,
        ),
        (TOPIC, (ConfigEdit("segment.bytes", ConfigOp.SET, None),), ErrorCode.INVALID_REQUEST),
        (TOPIC, (ConfigEdit("segment.bytes", 9, "1048576"),), ErrorCode.INVALID_REQUEST),
        (TOPIC, (ConfigEdit("segment.bytes", 0, "1048576"),) * 2, ErrorCode.INVALID_REQUEST),
        (ConfigResource(ResourceType.TOPIC, "u"), (), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ConfigResource(ResourceType.TOPIC, ""), (), ErrorCode.INVALID_REQUEST),
        (ConfigResource(ResourceType.TOPIC, "a/b"), (), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (ConfigResource(ResourceType.BROKER, "9"), (), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (ConfigResource(ResourceType.BROKER, "nine"), (), ErrorCode.INVALID_REQUEST),
        (ConfigResource(ResourceType.BROKER_LOGGER, "1"), (), ErrorCode.INVALID_REQUEST),
        (ConfigResource(ResourceType.GROUP, ""), (), ErrorCode.INVALID_REQUEST),
        (ConfigResource(ResourceType.GROUP, "g" * 1_001), (), ErrorCode.INVALID_REQUEST),
        (GROUP, (ConfigEdit("consumer.session.timeout.ms", ConfigOp.SET, "0"),), ErrorCode.INVALID_CONFIG),
        (GROUP, (ConfigEdit("consumer.session.timeout.ms", ConfigOp.SET, "1s"),), ErrorCode.INVALID_CONFIG),
        (GROUP, (ConfigEdit("share.session.timeout.ms", ConfigOp.SET, "44999"),), ErrorCode.INVALID_CONFIG),
        (CLUSTER, (ConfigEdit("min.insync.replicas", ConfigOp.SET, "0"),), ErrorCode.INVALID_CONFIG),
        (CLUSTER, (ConfigEdit("n" * 300, ConfigOp.SET, "0"),), ErrorCode.INVALID_CONFIG),
    ],
)
def test_what_cannot_be_set_is_refused_by_its_code(
    resource: ConfigResource, edits: tuple[ConfigEdit, ...], code: ErrorCode
) -> None:
    stage = stage_with_topic()
    before = stage.image
    assert edit(stage, resource, *edits) is code
    assert stage.image is before


def test_a_value_is_required_when_all_are_replaced() -> None:
    stage = stage_with_topic()
    assert replace(stage, TOPIC, segment_bytes=None) is ErrorCode.INVALID_REQUEST
    assert replace(stage, TOPIC, segment_bytes="-5") is ErrorCode.INVALID_CONFIG


def test_brokers_may_have_settings_that_we_do_not_know() -> None:
    stage = stage_with_topic()
    broker = ConfigResource(ResourceType.BROKER, "1")
    assert edit(stage, broker, ConfigEdit("log.cleaner.threads", ConfigOp.SET, "2")) is ErrorCode.NONE
    assert settings(stage, broker) == {"log.cleaner.threads": "2"}


def test_a_group_has_settings_whether_or_not_it_is_there() -> None:
    stage = stage_with_topic()
    assert edit(stage, GROUP, ConfigEdit("consumer.session.timeout.ms", ConfigOp.SET, "50000")) == 0
    assert settings(stage, GROUP) == {"consumer.session.timeout.ms": "50000"}
    assert edit(stage, GROUP, ConfigEdit("consumer.session.timeout.ms", ConfigOp.DELETE)) == 0
    assert GROUP not in stage.image.configs


def test_groups_that_may_not_be_there_do_not_fill_the_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configs, "RESOURCES_WITH_SETTINGS_MAX", 2)
    stage = stage_with_topic()
    change = ConfigEdit("consumer.session.timeout.ms", ConfigOp.SET, "50000")
    codes = [edit(stage, ConfigResource(ResourceType.GROUP, name), change) for name in ("a", "b", "c", "a")]
    assert codes == [0, 0, ErrorCode.INVALID_CONFIG, 0]
    nothing = ConfigEdit("consumer.session.timeout.ms", ConfigOp.DELETE)
    assert edit(stage, ConfigResource(ResourceType.GROUP, "c"), nothing) == 0, "it has none before and after"


def test_one_request_does_not_give_settings_to_more_groups_than_may_have_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(configs, "RESOURCES_WITH_SETTINGS_MAX", 3)
    stage = stage_with_topic()
    change = ConfigEdit("consumer.session.timeout.ms", ConfigOp.SET, "50000")
    edit(stage, GROUP, change)
    resources = tuple((ConfigResource(ResourceType.GROUP, name), (change,)) for name in ("a", "g", "b", "c"))
    reply = stage.ask(IncrementalAlterConfigsRequest(resources), ConfigsReply)
    assert [outcome.error for _, outcome in reply.resources] == [0, 0, 0, ErrorCode.INVALID_CONFIG]
    assert sum(each.kind == ResourceType.GROUP for each in stage.image.configs) == 3


def test_a_resource_named_twice_is_refused_and_the_others_are_not() -> None:
    stage = stage_with_topic()
    set_it = (ConfigEdit("segment.bytes", ConfigOp.SET, "1048576"),)
    request = IncrementalAlterConfigsRequest(((CLUSTER, ()), (TOPIC, set_it), (CLUSTER, ())))
    reply = stage.ask(request, ConfigsReply)
    invalid = ErrorCode.INVALID_REQUEST
    assert [outcome.error for _, outcome in reply.resources] == [invalid, ErrorCode.NONE, invalid]
    assert settings(stage) == {"segment.bytes": "1048576"}


def test_to_validate_only_changes_nothing() -> None:
    stage = stage_with_topic()
    before = stage.image
    change = ConfigEdit("segment.bytes", ConfigOp.SET, "1048576")
    assert edit(stage, TOPIC, change, validate_only=True) is ErrorCode.NONE
    assert stage.image is before


def test_a_change_that_changes_nothing_writes_nothing() -> None:
    stage = stage_with_topic(segment_bytes="1048576")
    entries = len(stage.log.entries)
    assert edit(stage, TOPIC, ConfigEdit("segment.bytes", ConfigOp.SET, "1048576")) is ErrorCode.NONE
    assert len(stage.log.entries) == entries


def test_a_controller_is_not_set_up_with_levels_or_sizes_it_cannot_hold() -> None:
    with pytest.raises(ConfigError, match="level"):
        ControllerConfig(controller_id=1, cluster_id="c", bootstrap_level=2, level_max=1)
    with pytest.raises(ConfigError, match="partitions_max"):
        ControllerConfig(controller_id=1, cluster_id="c", partitions_max=10**6)


def test_the_settings_of_one_resource_are_bounded_in_all() -> None:
    check_settings(CLUSTER, {f"name.{number}": "x" * 100 for number in range(100)})
    with pytest.raises(ConfigError, match="characters"):
        check_settings(CLUSTER, {f"name.{number}": "x" * 30_000 for number in range(3)})
