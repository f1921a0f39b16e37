"""DescribeCluster (60): the cluster's id, controller and brokers.

Versions 0 to 2, all flexible.  1 adds the kind of endpoint, 2 fenced brokers.
"""

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import BOOL, INT8, INT16, INT32, STRING, array, nullable
from distributedlog.protocol.schema import Message, Struct, field


class DescribeClusterRequest(Message, api_key=ApiKey.DESCRIBE_CLUSTER, versions=(0, 2), flexible_since=0):
    include_cluster_authorized_operations: bool = field(BOOL)
    endpoint_type: int = field(INT8, since=1, default=1)
    """1 brokers, 2 controllers."""
    include_fenced_brokers: bool = field(BOOL, since=2, default=False)


class DescribeClusterBroker(Struct):
    broker_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(nullable(STRING), default=None)
    is_fenced: bool = field(BOOL, since=2, default=False)


class DescribeClusterResponse(Message, api_key=ApiKey.DESCRIBE_CLUSTER, versions=(0, 2), flexible_since=0):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(nullable(STRING), default=None)
    endpoint_type: int = field(INT8, since=1, default=1)
    cluster_id: str = field(STRING)
    controller_id: int = field(INT32, default=-1)
    brokers: list[DescribeClusterBroker] = field(array(DescribeClusterBroker))
    cluster_authorized_operations: int = field(INT32, default=-(2**31))
