"""ApiVersions: what this broker speaks, derived from what is registered, and the cluster's features.

    the request                                   the response
    versions 0 to 4                               every API with its range
    a version beyond                              version 0, UNSUPPORTED_VERSION, and the range of ApiVersions
                                                  itself: the client asks again with one of those
    a software name that is none (3 and later)    INVALID_REQUEST
    the software name of our own client           the APIs of our own as well

Produce is advertised from version 0 although it is served from 3: older librdkafka looks for 0 before it
compresses anything.  A request of version 0 to 2 ends its connection, as any unserved version does.

The supported features are those that this broker registered with; the finalized ones are the cluster's.  A
feature whose lowest level is 0 is left out below version 4, whose readers stumble over it (KAFKA-17492).
"""

import re
from typing import Final

from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import HANDLERS, handles
from distributedlog.broker.services import Services
from distributedlog.controller.features import FEATURES
from distributedlog.controller.image import MetadataImage, SupportedLevels
from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.api_keys import OWN_APIS, SOFTWARE_NAME, ApiKey
from distributedlog.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

VERSIONS: Final = (0, 4)
_NAMES_ITSELF_SINCE: Final = 3
_LEVEL_ZERO_SINCE: Final = 4
_SOFTWARE_NAME_MAX = 100
_SOFTWARE_NAME_FORM = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?", re.ASCII)
_OWN_FEATURES: Final = tuple(SupportedLevels(name, *levels) for name, levels in FEATURES.items())
"""What is supported until the broker sees its own registration."""


def make_unsupported_version_response() -> ApiVersionsResponse:
    low, high = VERSIONS
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=low, max_version=high)],
    )


@handles(ApiVersionsRequest, versions=VERSIONS, unknown=make_unsupported_version_response)
def api_versions(
    services: Services, request: ApiVersionsRequest, context: RequestContext
) -> ApiVersionsResponse:
    if context.api_version >= _NAMES_ITSELF_SINCE and not (
        _SOFTWARE_NAME_FORM.fullmatch(request.client_software_name)
        and _SOFTWARE_NAME_FORM.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    if context.session is not None:
        context.session.software_name = request.client_software_name[:_SOFTWARE_NAME_MAX]
    image = services.metadata.image
    hidden = frozenset() if request.client_software_name == SOFTWARE_NAME else OWN_APIS
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, low, high in HANDLERS.advertised()
            if key not in hidden
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, low, high in _list_supported_features(image, services.settings.node_id)
            if low > 0 or context.api_version >= _LEVEL_ZERO_SINCE
        ],
        finalized_features_epoch=image.offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in image.features.items()
            if level > 0
        ],
    )


def _list_supported_features(image: MetadataImage, node_id: int) -> tuple[SupportedLevels, ...]:
    broker = image.brokers.get(node_id)
    return _OWN_FEATURES if broker is None else broker.features
