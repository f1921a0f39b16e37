"""DescribeCluster (60): the cluster's id, controller and brokers.

Tagged fields of ours say on which machine a broker runs that said so itself, and, to who asks for it by one,
the epoch of its registration, by which one that was restarted is told from one that was not yet.  Others pass
over them.

Versions 0 to 2, all flexible.  1 adds the kind of endpoint, 2 fenced brokers.
"""

from typing import Final

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import BOOL, INT8, INT16, INT32, STRING, array, nullable
from distributedlog.protocol.schema import Message, Struct, field


class DescribeClusterRequest(Message, api_key=ApiKey.DESCRIBE_CLUSTER, versions=(0, 2), flexible_since=0):
    include_cluster_authorized_operations: bool = field(BOOL)
    endpoint_type: int = field(INT8, since=1, default=1)
    """1 brokers, 2 controllers."""
    include_fenced_brokers: bool = field(BOOL, since=2, default=False)


EPOCHS_WANTED_TAG: Final = 10_000


def set_epochs_wanted(request: DescribeClusterRequest) -> None:
    request.unknown_tags = ((EPOCHS_WANTED_TAG, b""),)


def are_epochs_wanted(request: DescribeClusterRequest) -> bool:
    return any(tag == EPOCHS_WANTED_TAG for tag, _ in request.unknown_tags)


class DescribeClusterBroker(Struct):
    broker_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(nullable(STRING), default=None)
    is_fenced: bool = field(BOOL, since=2, default=False)


PLACEMENT_HOST_TAG: Final = 10_000
BROKER_EPOCH_TAG: Final = 10_001


def set_placement_host(broker: DescribeClusterBroker, host: str | None) -> None:
    if host is not None:
        broker.unknown_tags = (*broker.unknown_tags, (PLACEMENT_HOST_TAG, host.encode()))


def get_placement_host(broker: DescribeClusterBroker) -> str:
    """Returns the machine on which the broker counts as standing."""
    for tag, value in broker.unknown_tags:
        if tag == PLACEMENT_HOST_TAG:
            return value.decode(errors="replace") or broker.host
    return broker.host


def set_broker_epoch(broker: DescribeClusterBroker, epoch: int) -> None:
    broker.unknown_tags = (*broker.unknown_tags, (BROKER_EPOCH_TAG, epoch.to_bytes(8, "big")))


def get_broker_epoch(broker: DescribeClusterBroker) -> int | None:
    """Returns the epoch of the broker's registration; None: it is not told."""
    for tag, value in broker.unknown_tags:
        if tag == BROKER_EPOCH_TAG:
            return int.from_bytes(value, "big")
    return None


class DescribeClusterResponse(Message, api_key=ApiKey.DESCRIBE_CLUSTER, versions=(0, 2), flexible_since=0):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(nullable(STRING), default=None)
    endpoint_type: int = field(INT8, since=1, default=1)
    cluster_id: str = field(STRING)
    controller_id: int = field(INT32, default=-1)
    brokers: list[DescribeClusterBroker] = field(array(DescribeClusterBroker))
    cluster_authorized_operations: int = field(INT32, default=-(2**31))
