import pytest

from distributedlog.controller.features import LEVEL_MAX, METADATA_FEATURE
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import RequestTimedOutError
from distributedlog.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.unit.broker.handlers.admin_stage import Broker, versions_of

EVERY = versions_of(UpdateFeaturesRequest)
UPGRADE, SAFE_DOWNGRADE = 1, 2


def ask(
    broker: Broker,
    *updates: tuple[str, int],
    version: int = EVERY[-1],
    kind: int = UPGRADE,
    validate_only: bool = False,
) -> UpdateFeaturesResponse:
    keys = [
        FeatureUpdateKey(
            feature=name, max_version_level=level, upgrade_type=kind, allow_downgrade=kind != UPGRADE
        )
        for name, level in updates
    ]
    request = UpdateFeaturesRequest(feature_updates=keys, validate_only=validate_only)
    return broker.ask(request, version, UpdateFeaturesResponse)


@pytest.mark.parametrize("version", EVERY)
def test_every_version_raises_a_level(version: int) -> None:
    broker = Broker(bootstrap_level=1)
    response = ask(broker, (METADATA_FEATURE, 2), version=version)
    assert (response.error_code, response.error_message) == (0, None)
    assert broker.image.level == 2
    names = [(each.feature, each.error_code) for each in response.results]
    assert names == ([(METADATA_FEATURE, 0)] if version <= 1 else [])


def test_validation_changes_nothing() -> None:
    broker = Broker(bootstrap_level=1)
    assert ask(broker, (METADATA_FEATURE, 2), validate_only=True).error_code == 0
    assert broker.image.level == 1


@pytest.mark.parametrize("version", EVERY)
def test_all_features_change_or_none(version: int) -> None:
    broker = Broker(bootstrap_level=1)
    response = ask(broker, (METADATA_FEATURE, 2), ("no.such.feature", 1), version=version)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "no.such.feature" in (response.error_message or "")
    assert response.results == []
    assert broker.image.level == 1


@pytest.mark.parametrize("version", EVERY)
@pytest.mark.parametrize("kind", [UPGRADE, SAFE_DOWNGRADE])
def test_there_is_no_way_down(version: int, kind: int) -> None:
    broker = Broker()
    response = ask(broker, (METADATA_FEATURE, 1), version=version, kind=kind)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert broker.image.level == LEVEL_MAX


@pytest.mark.parametrize("version", EVERY)
def test_a_downgrade_goes_down(version: int) -> None:
    broker = Broker(bootstrap_level=1)
    response = ask(broker, (METADATA_FEATURE, 2), version=version, kind=SAFE_DOWNGRADE)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert broker.image.level == 1


def test_an_upgrade_of_no_known_kind_is_refused() -> None:
    response = ask(Broker(), (METADATA_FEATURE, 2), kind=9)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION


def test_a_controller_that_does_not_answer_is_told() -> None:
    broker = Broker()
    broker.controller.failure = RequestTimedOutError("late")
    response = ask(broker, (METADATA_FEATURE, 2))
    assert (response.error_code, response.error_message) == (ErrorCode.REQUEST_TIMED_OUT, "late")
