"""A gRPC service that is imported on its first call, or when the node has nothing else to do.

A node's start waits for its ports, not for what is said on them: protobuf and the generated messages are a
tenth of what a node imports, and a node alone sends none.  So a server is made of names; what answers for a
name is made once somebody calls it.
"""

from collections.abc import Callable
from typing import Any

import grpc


class LateService(grpc.GenericRpcHandler):
    """Stands for a service, by its full name, until there is one.  Lives on the control loop."""

    def __init__(self, name: str, make: Callable[[], grpc.GenericRpcHandler]) -> None:
        self.name = name
        self._methods = f"/{name}/"
        self._make = make
        self._handler: grpc.GenericRpcHandler | None = None

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> "grpc.RpcMethodHandler[Any, Any] | None":
        return self.load().service(handler_call_details) if self.has(handler_call_details.method) else None

    def has(self, method: str) -> bool:
        """Returns whether a method, by its full name, is of this service."""
        return method.startswith(self._methods)

    def load(self) -> grpc.GenericRpcHandler:
        if self._handler is None:
            self._handler = self._make()
        return self._handler
