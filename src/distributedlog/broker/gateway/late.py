"""The gateway's service, imported on its first call or when the node has nothing else to do.

A node's start does not wait for what few programs use: some twenty milliseconds of imports.  Lives on the
control loop.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import grpc

from distributedlog.control.gateway import BROKER_SERVICE

if TYPE_CHECKING:
    from distributedlog.broker.gateway.service import BrokerService

GATEWAY_LISTENER: Final = "dlog.gateway"
"""The name under which a broker's gateway is registered; no listener of the settings can have it."""
_METHODS: Final = f"/{BROKER_SERVICE}/"


class LateBrokerService(grpc.GenericRpcHandler):
    """Stands for the service until there is one."""

    def __init__(self, make: "Callable[[], BrokerService]") -> None:
        self._make = make
        self._service: BrokerService | None = None
        self._handler: grpc.GenericRpcHandler | None = None
        self._is_open = False
        self._is_closed = False

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> "grpc.RpcMethodHandler[Any, Any] | None":
        if not handler_call_details.method.startswith(_METHODS):
            return None
        return self.load().service(handler_call_details)

    def load(self) -> grpc.GenericRpcHandler:
        if self._handler is None:
            self._service = self._make()
            self._handler = self._service.handler()
            if self._is_open:
                self._service.open()
            if self._is_closed:
                self._service.close()
        return self._handler

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
