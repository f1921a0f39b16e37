"""UpdateFeatures: raises the levels of the cluster's features, all that are asked for or none.

The controller judges each feature for itself, so several are first validated together.  A downgrade has to be
called one, and is then refused by the controller: levels have no way down (see `controller.features`).

Results by feature are in the response up to version 1, and only if all went well; otherwise the response as a
whole says what was wrong with the first that failed.
"""

from enum import IntEnum
from typing import TYPE_CHECKING

from distributedlog.broker.handlers._forwarding import bound_timeout_ms, forward
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import RequestError, handles
from distributedlog.controller import requests as controller
from distributedlog.controller.image import MetadataImage
from distributedlog.controller.requests import FeaturesReply
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import InvalidUpdateVersionError
from distributedlog.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

if TYPE_CHECKING:
    from distributedlog.broker.services import Services


class UpgradeType(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@handles(
    UpdateFeaturesRequest,
    versions=(0, 2),
    timeout_ms=lambda request: bound_timeout_ms(request.timeout_ms),
)
async def update_features(
    services: "Services", request: UpdateFeaturesRequest, context: RequestContext
) -> UpdateFeaturesResponse:
    for update in request.feature_updates:
        _check_direction(services.metadata.image, update, context.api_version)
    levels = tuple((each.feature, each.max_version_level) for each in request.feature_updates)
    rehearsal = (True,) if len(levels) > 1 and not request.validate_only else ()
    for validate_only in (*rehearsal, request.validate_only):
        asked = controller.UpdateFeaturesRequest(levels, validate_only)
        reply = await forward(services, context, asked, FeaturesReply, request.timeout_ms)
        for name, outcome in reply.features:
            if outcome.error is not ErrorCode.NONE:
                raise RequestError(outcome.error, f"{name}: {outcome.message}")
    return UpdateFeaturesResponse(results=[UpdatableFeatureResult(feature=name) for name, _ in levels])


def _check_direction(image: MetadataImage, update: FeatureUpdateKey, api_version: int) -> None:
    kind = update.upgrade_type
    if api_version == 0:
        kind = UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE
    if kind not in list(UpgradeType):
        raise InvalidUpdateVersionError(f"there are no upgrades of type {kind}")
    now = image.features.get(update.feature, 0)
    if kind != UpgradeType.UPGRADE and update.max_version_level > now:
        raise InvalidUpdateVersionError(
            f"{update.feature}: from {now} to {update.max_version_level} is no downgrade"
        )
