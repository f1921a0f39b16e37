"""The feature `group.version`: whether a cluster has consumer groups."""

import pytest

from distributedlog.controller.features import FEATURES, GROUP_FEATURE, has_consumer_groups
from distributedlog.controller.image import MetadataImage, SupportedLevels
from distributedlog.controller.records import FeatureLevelSet
from distributedlog.controller.requests import FeaturesReply, UpdateFeaturesRequest
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import UnsupportedVersionError
from tests.unit.controller.stage import Stage, config

SOFTWARE = {"features": tuple(SupportedLevels(name, *levels) for name, levels in FEATURES.items())}


def raise_level(stage: Stage, level: int) -> ErrorCode:
    ((_, outcome),) = stage.ask(UpdateFeaturesRequest(((GROUP_FEATURE, level),)), FeaturesReply).features
    return outcome.error


def test_a_new_cluster_has_consumer_groups() -> None:
    stage = Stage(config(bootstrap_group_level=1))
    assert has_consumer_groups(stage.image.features)
    stage.start(1, **SOFTWARE)
    stage.failover(config())
    assert has_consumer_groups(stage.image.features)


def test_an_earlier_cluster_has_none_until_every_broker_knows_them_and_it_is_raised() -> None:
    stage = Stage()
    stage.start(1)
    stage.start(2, **SOFTWARE)
    assert not has_consumer_groups(stage.image.features)
    assert raise_level(stage, 0) is ErrorCode.NONE, "where it is already"
    assert raise_level(stage, 1) is ErrorCode.INVALID_UPDATE_VERSION, "broker 1 does not know it"
    stage.silence(1)
    stage.start(1, previous_broker_epoch=stage.epochs[1], **SOFTWARE)
    before = len(stage.log.entries)
    assert raise_level(stage, 1) is ErrorCode.NONE
    assert len(stage.log.entries) == before + 1
    assert raise_level(stage, 1) is ErrorCode.NONE
    assert len(stage.log.entries) == before + 1, "nothing is written for what is so already"
    assert has_consumer_groups(stage.image.features)


def test_there_is_no_way_down_and_nothing_above() -> None:
    stage = Stage(config(bootstrap_group_level=1))
    for level in (-1, 0, 2):
        assert raise_level(stage, level) is ErrorCode.INVALID_UPDATE_VERSION


def test_a_broker_that_does_not_know_them_is_not_registered_where_they_are() -> None:
    stage = Stage(config(bootstrap_group_level=1))
    with pytest.raises(Exception, match=GROUP_FEATURE) as raised:
        stage.register(1)
    assert raised.type is UnsupportedVersionError


def test_a_level_that_this_version_does_not_know_is_not_read() -> None:
    with pytest.raises(UnsupportedVersionError, match=GROUP_FEATURE):
        MetadataImage().apply([FeatureLevelSet(name=GROUP_FEATURE, feature_level=2)], 0)
