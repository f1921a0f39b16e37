"""UpdateFeatures (57): raises or lowers the cluster's finalized features.

Versions 0 to 2, all flexible.  1 tells safe from unsafe downgrades and can validate only, 2 leaves the
results out.
"""

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import BOOL, INT8, INT16, INT32, STRING, array, nullable
from distributedlog.protocol.schema import Message, Struct, field


class FeatureUpdateKey(Struct):
    feature: str = field(STRING)
    max_version_level: int = field(INT16)
    """The level of the feature, which is deleted below 1."""
    allow_downgrade: bool = field(BOOL, until=0, default=False)
    upgrade_type: int = field(INT8, since=1, default=1)


class UpdateFeaturesRequest(Message, api_key=ApiKey.UPDATE_FEATURES, versions=(0, 2), flexible_since=0):
    timeout_ms: int = field(INT32, default=60000)
    feature_updates: list[FeatureUpdateKey] = field(array(FeatureUpdateKey))
    validate_only: bool = field(BOOL, since=1, default=False)


class UpdatableFeatureResult(Struct):
    feature: str = field(STRING)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(nullable(STRING), default=None)


class UpdateFeaturesResponse(Message, api_key=ApiKey.UPDATE_FEATURES, versions=(0, 2), flexible_since=0):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(nullable(STRING), default=None)
    results: list[UpdatableFeatureResult] = field(
        array(UpdatableFeatureResult), until=1, default_factory=list
    )
