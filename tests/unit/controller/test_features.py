"""A cluster of mixed versions, and its way up."""

import pytest

from distributedlog.controller.bundles import decode_bundle
from distributedlog.controller.features import LEVEL_HOSTS, LEVEL_MAX, LEVELS, METADATA_FEATURE
from distributedlog.controller.image import MetadataImage, SupportedLevels
from distributedlog.controller.records import FeatureLevelSet, PartitionCreated
from distributedlog.controller.requests import (
    CreateTopicsRequest,
    FeaturesReply,
    NewTopic,
    RegisterBrokerReply,
    TopicsReply,
    UpdateFeaturesRequest,
)
from distributedlog.controller.snapshots import decode_snapshot, encode_snapshot
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import UnsupportedVersionError
from tests.unit.controller.stage import SESSION_MS, MemoryLog, Stage, config

OLD = config(level_max=1, bootstrap_level=1)
NEW = config(bootstrap_level=1)
OLD_SOFTWARE = {"features": (SupportedLevels(METADATA_FEATURE, 1, 1),)}


def raise_level(
    stage: Stage, level: int, name: str = METADATA_FEATURE, *, validate_only: bool = False
) -> ErrorCode:
    request = UpdateFeaturesRequest(((name, level),), validate_only)
    ((_, outcome),) = stage.ask(request, FeaturesReply).features
    return outcome.error


def assert_no_record_is_above_its_level(log: MemoryLog) -> None:
    """Every record is in the version of the level that stood in the log before it."""
    level = 0
    for entry in log.entries:
        records = decode_bundle(entry)
        if level == 0:
            assert isinstance(records[0].message, FeatureLevelSet)
            level = records[0].message.feature_level
        for message, version in records:
            assert version == LEVELS[level][type(message)]
        for message, _ in records:
            if isinstance(message, FeatureLevelSet):
                level = message.feature_level


def test_a_cluster_is_upgraded_node_by_node_and_then_raised() -> None:
    stage = Stage(OLD)
    stage.start(1, 2, 3, **OLD_SOFTWARE)
    stage.create("before", (1, 2, 3), min_insync_replicas="2")
    stage.failover(NEW)
    for broker_id in (1, 2, 3):
        assert raise_level(stage, 2) is ErrorCode.INVALID_UPDATE_VERSION
        stage.silence(broker_id)
        stage.start(broker_id, previous_broker_epoch=stage.epochs[broker_id])
        stage.create(f"meanwhile-{broker_id}", (1, 2, 3), min_insync_replicas="2")
    assert stage.image.level == 1
    assert raise_level(stage, 2) is ErrorCode.NONE
    assert stage.image.level == 2
    stage.create("after", (1, 2, 3), min_insync_replicas="2")
    for expiry in ((3,), (3, 2), (3, 2, 1)):
        stage.silence(*expiry)
    assert stage.partition("after").elr == (1, 2)
    stage.failover(NEW)
    assert stage.image == stage.replayed()
    assert_no_record_is_above_its_level(stage.log)


def test_new_software_replays_a_log_of_the_level_before() -> None:
    stage = Stage(OLD)
    stage.start(1, 2, **OLD_SOFTWARE)
    stage.create("t", (1, 2))
    stage.silence(1)
    written = stage.image
    stage.failover(NEW)
    assert stage.image.topics == written.topics
    assert stage.image.level == 1
    records = [record for entry in stage.log.entries for record in decode_bundle(entry)]
    assert {version for message, version in records if isinstance(message, PartitionCreated)} == {0}


def test_old_software_refuses_a_log_and_a_snapshot_that_are_newer_and_says_so() -> None:
    stage = Stage(NEW)
    stage.start(1)
    assert raise_level(stage, 2) is ErrorCode.NONE
    snapshot = encode_snapshot(stage.image)
    with pytest.raises(UnsupportedVersionError, match=r"level 2 .* knows up to 1"):
        decode_snapshot(snapshot, level_max=1)
    with pytest.raises(UnsupportedVersionError, match="install a newer one"):
        stage.failover(OLD)


def test_a_feature_that_nobody_has_heard_of_cannot_be_replayed() -> None:
    unknown = FeatureLevelSet(name="time.travel", feature_level=1)
    with pytest.raises(UnsupportedVersionError, match=r"time\.travel"):
        MetadataImage().apply([unknown], 0)


def test_even_a_fenced_broker_keeps_the_level_down_until_it_is_unregistered() -> None:
    stage = Stage(NEW)
    stage.start(1)
    stage.register(2, **OLD_SOFTWARE)
    assert raise_level(stage, 2) is ErrorCode.INVALID_UPDATE_VERSION


def test_levels_that_do_not_exist_and_steps_down_are_refused() -> None:
    stage = Stage()
    assert raise_level(stage, LEVEL_MAX + 1) is ErrorCode.INVALID_UPDATE_VERSION
    assert raise_level(stage, 0) is ErrorCode.INVALID_UPDATE_VERSION
    assert raise_level(stage, 1) is ErrorCode.INVALID_UPDATE_VERSION
    assert raise_level(stage, 1, "another") is ErrorCode.INVALID_UPDATE_VERSION
    twice = UpdateFeaturesRequest(((METADATA_FEATURE, 2), (METADATA_FEATURE, 2)))
    assert stage.refusal(twice) is ErrorCode.INVALID_REQUEST


def test_to_validate_only_does_not_raise_the_level() -> None:
    stage = Stage(NEW)
    assert raise_level(stage, 2, validate_only=True) is ErrorCode.NONE
    assert stage.image.level == 1


def test_hosts_are_kept_from_the_level_on_that_has_them() -> None:
    stage = Stage(config(bootstrap_level=LEVEL_HOSTS - 1))
    said = stage.registration(1, host="machine-1")
    stage.epochs[1] = stage.ask(said, RegisterBrokerReply).broker_epoch
    stage.heartbeat(1)
    assert (stage.image.brokers[1].host, stage.image.brokers[1].placement_host) == (None, "host-1")
    assert raise_level(stage, LEVEL_HOSTS) is ErrorCode.NONE
    assert stage.ask(said, RegisterBrokerReply).broker_epoch == stage.epochs[1]
    broker = stage.image.brokers[1]
    assert (broker.placement_host, broker.is_active) == ("machine-1", True)
    assert decode_snapshot(encode_snapshot(stage.image)) == stage.image == stage.replayed()
    assert_no_record_is_above_its_level(stage.log)


def test_a_raised_level_that_does_not_commit_takes_all_behind_it_along() -> None:
    stage = Stage(NEW)
    stage.start(1)
    committed = len(stage.log.entries)
    stage.runtime.submit(UpdateFeaturesRequest(((METADATA_FEATURE, 2),)), stage.now_ms, SESSION_MS)
    topic = NewTopic(name="t", num_partitions=1, replication_factor=1)
    stage.runtime.submit(CreateTopicsRequest((topic,)), stage.now_ms, SESSION_MS)
    assert stage.image.level == 2
    del stage.log.entries[committed:]
    stage.failover()
    assert stage.image.level == 1
    assert stage.ask(CreateTopicsRequest((topic,)), TopicsReply).topics[0].outcome.error is ErrorCode.NONE
    assert_no_record_is_above_its_level(stage.log)
