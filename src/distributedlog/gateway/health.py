"""The standard health service of gRPC, for the server as a whole and for each of its services."""

from collections.abc import Sequence
from typing import Any, Final

import grpc
from grpc_health.v1.health import aio
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

HEALTH_SERVICE: Final = "grpc.health.v1.Health"
WHOLE_SERVER: Final = ""


class Health:
    """NOT_SERVING until it is told otherwise."""

    def __init__(self, services: Sequence[str]) -> None:
        self._services = (WHOLE_SERVER, *services)
        self._servicer = aio.HealthServicer()
        self._is_stopping = False
        self._is_serving: bool | None = None

    async def set_serving(self, is_serving: bool) -> None:
        """Has no effect once `stop` was called."""
        if not self._is_stopping:
            await self._set(is_serving)

    async def stop(self) -> None:
        """Reports NOT_SERVING from here on."""
        self._is_stopping = True
        await self._set(False)

    async def _set(self, is_serving: bool) -> None:
        if is_serving is self._is_serving:
            return
        self._is_serving = is_serving
        status = HealthCheckResponse.SERVING if is_serving else HealthCheckResponse.NOT_SERVING
        for service in self._services:
            await self._servicer.set(service, status)

    def handler(self) -> grpc.GenericRpcHandler:
        read, write = HealthCheckRequest.FromString, HealthCheckResponse.SerializeToString
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "Check": grpc.unary_unary_rpc_method_handler(self._servicer.Check, read, write),
            "Watch": grpc.unary_stream_rpc_method_handler(self._servicer.Watch, read, write),
        }
        return grpc.method_handlers_generic_handler(HEALTH_SERVICE, methods)
