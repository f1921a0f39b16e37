"""ApiVersions (18): which versions of which APIs a broker speaks, and the cluster's features.

Versions 0 to 4, flexible from 3.  The answer's header is always version 0, since the client does not know
yet what the broker speaks; an unknown version is answered with a body of version 0 and UNSUPPORTED_VERSION.
"""

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import BOOL, INT16, INT32, INT64, STRING, array
from distributedlog.protocol.schema import Message, Struct, field


class ApiVersionsRequest(Message, api_key=ApiKey.API_VERSIONS, versions=(0, 4), flexible_since=3):
    client_software_name: str = field(STRING, since=3, default="")
    client_software_version: str = field(STRING, since=3, default="")


class ApiVersion(Struct):
    api_key: int = field(INT16)
    min_version: int = field(INT16)
    max_version: int = field(INT16)


class SupportedFeatureKey(Struct):
    name: str = field(STRING)
    min_version: int = field(INT16)
    max_version: int = field(INT16)


class FinalizedFeatureKey(Struct):
    name: str = field(STRING)
    max_version_level: int = field(INT16)
    min_version_level: int = field(INT16)


class ApiVersionsResponse(Message, api_key=ApiKey.API_VERSIONS, versions=(0, 4), flexible_since=3):
    error_code: int = field(INT16, default=0)
    api_keys: list[ApiVersion] = field(array(ApiVersion))
    """One range for each API."""
    throttle_time_ms: int = field(INT32, since=1, default=0)
    supported_features: list[SupportedFeatureKey] = field(
        array(SupportedFeatureKey), since=3, tag=0, default_factory=list
    )
    finalized_features_epoch: int = field(INT64, since=3, tag=1, default=-1)
    """-1: unknown."""
    finalized_features: list[FinalizedFeatureKey] = field(
        array(FinalizedFeatureKey), since=3, tag=2, default_factory=list
    )
    zk_migration_ready: bool = field(BOOL, since=3, tag=3, default=False)
    """A field of the time of ZooKeeper: always false here."""
