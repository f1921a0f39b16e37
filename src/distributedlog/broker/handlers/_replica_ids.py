"""Who a replica id in a request says that it is, and when it is believed.

    -1          a consumer
    -2          a tool, which in ListOffsets is told the log's end
    0 and up    the broker with this id, as a follower

A follower reads what is not committed, and its fetch offsets move the high watermark: whoever says so could
read records that vanish, and have records acknowledged that no other broker has.  Any client can put any id
into a request.  So a broker is believed on a connection over which it has proved to be that broker, in its
present epoch (`peers/authentication`); every other request with a replica id is refused.
"""

import logging
from typing import Final

from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.services import Services
from distributedlog.model.errors import ClusterAuthorizationError, StaleBrokerEpochError

logger = logging.getLogger(__name__)

CONSUMER_ID: Final = -1


def authorize_replica(services: Services, replica_id: int, context: RequestContext) -> int:
    """Returns the broker epoch of the follower that asks, -1 for a consumer or a tool.  Raises
    CLUSTER_AUTHORIZATION_FAILED where nothing proves it, STALE_BROKER_EPOCH where it was replaced."""
    if replica_id < 0:
        return -1
    proved = context.broker
    if proved is None or proved.broker_id != replica_id:
        logger.debug("a request of %s as replica %d is refused", context.client_host, replica_id)
        raise ClusterAuthorizationError(f"nothing proves that this is a replica of broker {replica_id}")
    registered = services.metadata.image.brokers.get(replica_id)
    if registered is None or registered.epoch != proved.epoch:
        raise StaleBrokerEpochError(f"broker {replica_id} has registered anew, or not at all")
    return proved.epoch
