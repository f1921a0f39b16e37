"""One truth of the settings of the whole cluster, whoever asks and whichever controller is active."""

import pytest

from distributedlog.controller.cluster_settings import (
    allows_unclean_election,
    data_loop_lag_ms_max,
    min_insync_replicas,
    read_cluster_setting,
    session_timeout_ms,
)
from distributedlog.controller.configs import ConfigEdit, ControllerConfig
from distributedlog.controller.elections import rules_of
from distributedlog.controller.image import CLUSTER_DEFAULT, ConfigResource, MetadataImage, ResourceType
from distributedlog.controller.records import ConfigChanged
from distributedlog.controller.requests import (
    AlterConfigsRequest,
    ConfigsReply,
    IncrementalAlterConfigsRequest,
)
from distributedlog.model.cluster_settings import CLUSTER_SETTINGS
from distributedlog.model.config_ops import ConfigOp
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import ConfigError
from tests.unit.controller.stage import CLUSTER, Stage, config

OF_ALL = ConfigResource(ResourceType.BROKER, CLUSTER_DEFAULT)
MIN_ISR, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"


def edit(stage: Stage, resource: ConfigResource, name: str, value: str | None) -> tuple[ErrorCode, str]:
    change = ConfigEdit(name, ConfigOp.DELETE if value is None else ConfigOp.SET, value)
    reply = stage.ask(IncrementalAlterConfigsRequest(((resource, (change,)),)), ConfigsReply)
    ((_, outcome),) = reply.resources
    return outcome.error, outcome.message or ""


def of_cluster(image: MetadataImage) -> dict[str, str]:
    return dict(image.settings_of(*OF_ALL).items())


def test_a_new_cluster_has_a_record_of_each() -> None:
    stage = Stage(config(min_insync_replicas=2, unclean_leader_election_enable=True))
    assert set(of_cluster(stage.image)) == set(CLUSTER_SETTINGS)
    assert of_cluster(stage.image)[MIN_ISR] == "2"
    assert of_cluster(stage.image)[UNCLEAN] == "true"
    assert of_cluster(stage.image)["offsets.topic.num.partitions"] == "50"
    assert stage.replayed() == stage.image


@pytest.mark.parametrize(
    ("brokers", "replicas", "min_isr"), [(0, 1, 1), (1, 1, 1), (2, 2, 1), (3, 3, 2), (7, 3, 2)]
)
def test_a_new_cluster_is_formatted_to_replicate_over_the_brokers_it_will_have(
    brokers: int, replicas: int, min_isr: int
) -> None:
    stage = Stage(config(brokers_expected=brokers))
    assert read_cluster_setting(stage.image, "default.replication.factor") == replicas
    assert read_cluster_setting(stage.image, "offsets.topic.replication.factor") == replicas
    assert min_insync_replicas(stage.image, "any") == min_isr
    assert stage.replayed() == stage.image


def test_what_was_given_comes_before_what_a_cluster_of_so_many_brokers_would_have() -> None:
    stage = Stage(config(brokers_expected=3, default_replication_factor=1))
    assert read_cluster_setting(stage.image, "default.replication.factor") == 1
    assert read_cluster_setting(stage.image, "offsets.topic.replication.factor") == 3


def test_a_cluster_of_before_goes_on_with_one_replica() -> None:
    """Its brokers may be of a version that does not replicate: more is for its owner to ask for."""
    stage = Stage()
    of_before = [
        ConfigChanged(resource_type=ResourceType.BROKER, resource_name="", name=name, value=None)
        for name in CLUSTER_SETTINGS
    ]
    stage.log.append(stage.machine._at_level(of_before))
    stage.failover(config(brokers_expected=3))
    assert set(of_cluster(stage.image)) == set(CLUSTER_SETTINGS)
    assert read_cluster_setting(stage.image, "default.replication.factor") == 1
    assert min_insync_replicas(stage.image, "any") == 1


def test_a_session_is_six_seconds_in_a_new_cluster_and_nine_where_nothing_is_written() -> None:
    """Brokers and controllers of two versions read one image: what it lacks must mean the same to all."""
    assert session_timeout_ms(MetadataImage()) == 9_000
    stage = Stage(config(brokers_expected=3))
    assert of_cluster(stage.image)["broker.session.timeout.ms"] == "6000"
    of_before = ConfigChanged(
        resource_type=ResourceType.BROKER, resource_name="", name="broker.session.timeout.ms", value=None
    )
    stage.log.append(stage.machine._at_level([of_before]))
    stage.failover(config(brokers_expected=3))
    assert of_cluster(stage.image)["broker.session.timeout.ms"] == "9000"


def test_the_next_controller_has_the_clusters_values_whatever_it_was_started_with() -> None:
    stage = Stage(config(min_insync_replicas=2, num_partitions=4))
    stage.failover(config(min_insync_replicas=1, num_partitions=9, broker_session_timeout_ms=500))
    assert of_cluster(stage.image)[MIN_ISR] == "2"
    assert rules_of(stage.image, "any").min_isr == 2
    assert read_cluster_setting(stage.image, "num.partitions") == 4
    assert session_timeout_ms(stage.image) == 6_000
    assert data_loop_lag_ms_max(stage.image) == 4_500


def test_a_cluster_of_before_gets_what_it_lacks_and_single_brokers_lose_theirs() -> None:
    stage = Stage()
    stage.start(1, 2)
    of_before = [
        ConfigChanged(resource_type=ResourceType.BROKER, resource_name="", name=name, value=None)
        for name in CLUSTER_SETTINGS
    ]
    of_before += [
        ConfigChanged(resource_type=ResourceType.BROKER, resource_name="2", name=name, value="3")
        for name in (MIN_ISR, "log.retention.ms")
    ]
    stage.log.append(stage.machine._at_level(of_before))
    stage.failover(config(min_insync_replicas=2))
    assert of_cluster(stage.image)[MIN_ISR] == "2"
    assert set(of_cluster(stage.image)) == set(CLUSTER_SETTINGS)
    assert dict(stage.image.settings_of(ResourceType.BROKER, "2").items()) == {"log.retention.ms": "3"}
    entries = len(stage.log.entries)
    stage.failover(config(min_insync_replicas=5))
    assert of_cluster(stage.image)[MIN_ISR] == "2"
    assert len(stage.log.entries) == entries + 1


def test_leader_and_controller_have_one_truth_of_the_minimum_in_sync() -> None:
    """It comes from every layer: the topic's own, the cluster's, what an earlier version wrote for a
    broker."""
    stage = Stage(config(min_insync_replicas=2))
    stage.start(1, 2)
    stage.create("own", (1, 2), min_insync_replicas="1")
    stage.create("plain", (1, 2))
    stray = ConfigChanged(resource_type=ResourceType.BROKER, resource_name="1", name=MIN_ISR, value="1")
    image = stage.image.apply([stray], stage.image.offset + 1)
    for topic, expected in (("own", 1), ("plain", 2)):
        assert min_insync_replicas(image, topic) == rules_of(image, topic).min_isr == expected
    assert edit(stage, OF_ALL, MIN_ISR, "1") == (ErrorCode.NONE, "")
    assert min_insync_replicas(stage.image, "plain") == rules_of(stage.image, "plain").min_isr == 1


def test_what_cannot_be_read_is_passed_over_by_everybody() -> None:
    records = [
        ConfigChanged(resource_type=ResourceType.BROKER, resource_name="", name=MIN_ISR, value="many"),
        ConfigChanged(
            resource_type=ResourceType.BROKER,
            resource_name="",
            name="unclean.leader.election.enable",
            value="x",
        ),
    ]
    image = MetadataImage().apply(records, 0)
    assert min_insync_replicas(image, "t") == 1
    assert not allows_unclean_election(image, "t")


def test_a_single_brokers_value_is_refused_and_one_of_before_can_be_taken_away() -> None:
    stage = Stage()
    stage.start(1)
    own = ConfigResource(ResourceType.BROKER, "1")
    for name in CLUSTER_SETTINGS:
        error, message = edit(stage, own, name, "true" if name.endswith("enable") else "101")
        assert error is ErrorCode.INVALID_CONFIG
        assert "a setting of the whole cluster, and not of broker 1" in message
    assert edit(stage, own, MIN_ISR, None) == (ErrorCode.NONE, "")


def test_the_clusters_value_is_changed_and_never_removed() -> None:
    stage = Stage()
    error, message = edit(stage, OF_ALL, MIN_ISR, None)
    assert error is ErrorCode.INVALID_CONFIG
    assert "cannot be removed" in message
    assert edit(stage, OF_ALL, MIN_ISR, "0")[0] is ErrorCode.INVALID_CONFIG
    assert edit(stage, OF_ALL, "num.partitions", "10001")[0] is ErrorCode.INVALID_CONFIG
    reply = stage.ask(AlterConfigsRequest(((OF_ALL, {"log.retention.ms": "1"}),)), ConfigsReply)
    assert reply.resources[0][1].error is ErrorCode.NONE
    assert set(of_cluster(stage.image)) == {*CLUSTER_SETTINGS, "log.retention.ms"}


def test_the_session_timeout_is_what_the_cluster_was_formatted_with() -> None:
    stage = Stage(config(broker_session_timeout_ms=3_000))
    error, message = edit(stage, OF_ALL, "broker.session.timeout.ms", "1000")
    assert error is ErrorCode.INVALID_CONFIG
    assert "since the cluster was formatted" in message
    stage.start(1)
    stage.pass_time(2_999)
    assert not stage.image.brokers[1].fenced
    stage.pass_time(1)
    assert stage.image.brokers[1].fenced


def test_a_controller_is_not_set_up_with_values_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="between 1 and"):
        ControllerConfig(controller_id=1, cluster_id=CLUSTER, cluster_settings={MIN_ISR: "0"})
