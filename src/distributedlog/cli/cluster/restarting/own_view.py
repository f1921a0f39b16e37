"""What one broker itself says: how it is registered, and what is in sync.

A broker of ours, as one of Kafka's, answers only when its image shows it registered and unfenced.  So what it
says of replicas is not older than its registration.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

from distributedlog.client.connection import Connection
from distributedlog.client.errors import check_response
from distributedlog.client.view import TopicView, view_of
from distributedlog.model.errors import UnsupportedVersionError
from distributedlog.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    get_broker_epoch,
    set_epochs_wanted,
)
from distributedlog.protocol.messages.metadata import MetadataRequest, MetadataResponse

ASK_MS: Final = 10_000


class Registration(NamedTuple):
    is_fenced: bool
    epoch: int | None
    """None: brokers do not tell."""


def is_new(now: Registration | None, before: Registration | None) -> bool:
    """Returns whether a broker takes part by another registration than before; where epochs are not told it
    suffices that it takes part."""
    if now is None or now.is_fenced:
        return False
    return before is None or before.epoch is None or now.epoch is None or now.epoch > before.epoch


async def ask_registration(connection: Connection, broker_id: int) -> Registration | None:
    """Returns how the broker is registered; None: it is not."""
    request = DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=True)
    set_epochs_wanted(request)
    try:
        response = await connection.call(request, DescribeClusterResponse, timeout_ms=ASK_MS)
    except UnsupportedVersionError:  # it does not tell who is fenced
        return Registration(False, None)
    check_response(response.error_code, "the cluster", response.error_message)
    for each in response.brokers:
        if each.broker_id == broker_id:
            return Registration(each.is_fenced, get_broker_epoch(each))
    return None


async def ask_topics(connection: Connection) -> Collection[TopicView]:
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    response = await connection.call(request, MetadataResponse, timeout_ms=ASK_MS)
    return view_of(response).topics.values()
