"""The feature `transaction.version`: how clients end transactions."""

from distributedlog.controller.features import FEATURES, TRANSACTION_FEATURE
from distributedlog.controller.image import SupportedLevels
from distributedlog.controller.requests import FeaturesReply, UpdateFeaturesRequest
from distributedlog.model.error_codes import ErrorCode
from tests.unit.controller.stage import Stage, config

SOFTWARE = {"features": tuple(SupportedLevels(name, *levels) for name, levels in FEATURES.items())}


def raise_level(stage: Stage, level: int) -> ErrorCode:
    request = UpdateFeaturesRequest(((TRANSACTION_FEATURE, level),))
    ((_, outcome),) = stage.ask(request, FeaturesReply).features
    return outcome.error


def test_a_new_cluster_begins_with_it() -> None:
    stage = Stage(config(bootstrap_group_level=1, bootstrap_transaction_level=2))
    assert stage.image.features.get(TRANSACTION_FEATURE, 0) == 2
    stage.start(1, **SOFTWARE)
    stage.failover(config())
    assert stage.image.features.get(TRANSACTION_FEATURE, 0) == 2


def test_an_earlier_cluster_is_raised_when_every_broker_knows_it() -> None:
    stage = Stage()
    stage.start(1)
    stage.start(2, **SOFTWARE)
    assert raise_level(stage, 2) is ErrorCode.INVALID_UPDATE_VERSION, "broker 1 does not know it"
    stage.silence(1)
    stage.start(1, previous_broker_epoch=stage.epochs[1], **SOFTWARE)
    assert raise_level(stage, 2) is ErrorCode.NONE
    assert raise_level(stage, 1) is ErrorCode.INVALID_UPDATE_VERSION, "there is no way down"
    assert raise_level(stage, 3) is ErrorCode.INVALID_UPDATE_VERSION
    assert stage.image.features.get(TRANSACTION_FEATURE, 0) == 2
