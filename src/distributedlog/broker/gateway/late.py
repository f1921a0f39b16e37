"""The gateway's service, imported on its first call or when the node has nothing else to do.

A node's start does not wait for what few programs use: some twenty milliseconds of imports.  Lives on the
control loop.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import grpc

from distributedlog.control.gateway import BROKER_SERVICE
from distributedlog.control.late import LateService

if TYPE_CHECKING:
    from distributedlog.broker.gateway.service import BrokerService

GATEWAY_LISTENER: Final = "dlog.gateway"
"""The name under which a broker's gateway is registered; no listener of the settings can have it."""


class LateBrokerService(LateService):
    """What it was told before there was a service, it tells that."""

    def __init__(self, make: "Callable[[], BrokerService]") -> None:
        super().__init__(BROKER_SERVICE, self._handler_of_new)
        self._make_service = make
        self._service: BrokerService | None = None
        self._is_open = False
        self._is_closed = False

    def _handler_of_new(self) -> grpc.GenericRpcHandler:
        self._service = self._make_service()
        if self._is_open:
            self._service.open()
        if self._is_closed:
            self._service.close()
        return self._service.handler()

    def open(self) -> None:
        """The node is ready: calls are answered from now on."""
        self._is_open = True
        if self._service is not None:
            self._service.open()

    def close(self) -> None:
        """Ends the streams."""
        self._is_closed = True
        if self._service is not None:
            self._service.close()
