"""DescribeCluster: the cluster's id, controller and brokers.

Brokers know brokers only: whoever asks for controllers (from 1 on) came to the wrong endpoint.  Fenced
brokers are listed from 2 on, if asked for.
"""

from enum import IntEnum
from typing import TYPE_CHECKING

from distributedlog.broker.cluster.listener_view import Node, controller_for_clients, nodes_on
from distributedlog.broker.handlers._operations import CLUSTER_OPERATIONS, NOT_ASKED_FOR
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import RequestError, handles
from distributedlog.controller.image import Broker
from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    are_epochs_wanted,
    set_broker_epoch,
    set_placement_host,
)

if TYPE_CHECKING:
    from distributedlog.broker.services import Services


class EndpointType(IntEnum):
    BROKER = 1
    CONTROLLER = 2


@handles(DescribeClusterRequest, versions=(0, 2))
def describe_cluster(
    services: "Services", request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    if request.endpoint_type == EndpointType.CONTROLLER:
        raise RequestError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is a broker, and no controller")
    if request.endpoint_type != EndpointType.BROKER:
        text = f"there are no endpoints of type {request.endpoint_type}"
        raise RequestError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, text)
    image = services.metadata.image
    nodes = nodes_on(image, context.listener, with_fenced=request.include_fenced_brokers)
    return DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=controller_for_clients(image, nodes),
        brokers=[
            _describe(each, image.brokers[each.node_id], with_epoch=are_epochs_wanted(request))
            for each in nodes
        ],
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED_FOR
        ),
    )


def _describe(node: Node, broker: Broker, *, with_epoch: bool) -> DescribeClusterBroker:
    described = DescribeClusterBroker(
        broker_id=node.node_id, host=node.host, port=node.port, rack=node.rack, is_fenced=node.is_fenced
    )
    # Where nothing is said the host of the first listener counts, which is not that of any other listener.
    set_placement_host(described, None if broker.placement_host == node.host else broker.placement_host)
    if with_epoch:
        set_broker_epoch(described, broker.epoch)
    return described
