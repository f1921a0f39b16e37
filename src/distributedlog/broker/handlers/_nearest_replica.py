"""Which replica a consumer that says where it stands should read from (KIP-392).

A consumer that sends a rack with its fetch (`client.rack`) is sent to a follower in that rack
(`broker.rack`), so that records need not leave it.  Asked is the leader:

| the leader                                       | the consumer reads from                      |
|--------------------------------------------------|----------------------------------------------|
| stands in that rack itself                       | the leader                                   |
| has followers there that are in sync, can be     | the one whose log goes furthest, and of      |
| reached, and have the offset                     | equals the one that caught up last           |
| has none                                         | the leader                                   |

A follower serves up to its own high watermark, which is behind the leader's by a fetch.  It sends nobody
elsewhere: a consumer asks the leader again from time to time, or when the follower has an error for it.
There is no `replica.selector.class`: who does not want this sends no rack.
"""

from typing import TYPE_CHECKING

from distributedlog.broker.cluster.listener_view import endpoint_of
from distributedlog.replication.isr import Follower
from distributedlog.replication.partition import Partition

if TYPE_CHECKING:
    from distributedlog.broker.services import Services


def find_nearest_replica(
    services: "Services", partition: Partition, offset: int, rack: str, listener: str
) -> int | None:
    """Returns the broker to read from; None: this one."""
    view = partition.view
    if view is None or len(view.isr) == 1 or services.settings.rack == rack:
        return None
    brokers = services.metadata.image.brokers

    def is_near(follower: Follower) -> bool:
        broker = brokers.get(follower.broker_id)
        return (
            broker is not None
            and broker.rack == rack
            and broker.is_active
            and endpoint_of(broker, listener) is not None
        )

    near = [each for each in view.find_in_sync_with(offset) if is_near(each)]
    best = max(near, key=lambda each: (each.log_end_offset, each.caught_up_ms or 0), default=None)
    return None if best is None else best.broker_id
