"""UnregisterBroker: has the controller forget a broker for good.

As in Kafka nothing is refused but a broker that is not registered: one that lives loses what it leads, and
replicas that it holds are gone from the ISR.  `dlog cluster unregister` looks first.
"""

from types import NoneType
from typing import TYPE_CHECKING

from distributedlog.broker.handlers._forwarding import forward
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import handles
from distributedlog.controller import requests as controller
from distributedlog.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

if TYPE_CHECKING:
    from distributedlog.broker.services import Services


@handles(UnregisterBrokerRequest, versions=(0, 0))
async def unregister_broker(
    services: "Services", request: UnregisterBrokerRequest, context: RequestContext
) -> UnregisterBrokerResponse:
    asked = controller.UnregisterBrokerRequest(request.broker_id)
    await forward(services, context, asked, NoneType, services.settings.request_timeout_ms)
    return UnregisterBrokerResponse()
