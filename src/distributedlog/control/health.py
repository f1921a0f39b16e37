"""The standard health service: gRPC's own, made when it is first asked.

Until then only what it would say is kept.
"""

from typing import TYPE_CHECKING, Any, Final

import grpc

if TYPE_CHECKING:
    from grpc.aio import ServicerContext
    from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

HEALTH_SERVICE: Final = "grpc.health.v1.Health"
WHOLE_SERVER: Final = ""


class Health:
    """Call everything on the control loop."""

    def __init__(self) -> None:
        self.services = [WHOLE_SERVER]
        """By their full names: they are all as ready as the server is."""
        self._is_ready = False
        self._is_stopping = False
        self._servicer: Any = None

    async def set_ready(self, ready: bool) -> None:
        """Ignored once `stop` was called."""
        self._is_ready = ready and not self._is_stopping
        if self._servicer is not None:
            await self._tell(self._servicer)

    async def stop(self) -> None:
        """NOT_SERVING from here on."""
        self._is_stopping = True
        await self.set_ready(False)

    def handler(self) -> grpc.GenericRpcHandler:
        from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

        read, write = HealthCheckRequest.FromString, HealthCheckResponse.SerializeToString
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "Check": grpc.unary_unary_rpc_method_handler(self._check, read, write),
            "Watch": grpc.unary_stream_rpc_method_handler(self._watch, read, write),
        }
        return grpc.method_handlers_generic_handler(HEALTH_SERVICE, methods)

    async def _check(
        self, request: "HealthCheckRequest", context: "ServicerContext[Any, Any]"
    ) -> "HealthCheckResponse":
        answer: HealthCheckResponse = await (await self._informed()).Check(request, context)
        return answer

    async def _watch(self, request: "HealthCheckRequest", context: "ServicerContext[Any, Any]") -> None:
        await (await self._informed()).Watch(request, context)

    async def _informed(self) -> Any:
        """gRPC's servicer, which knows how things stand before it answers for the first time."""
        if self._servicer is None:
            from grpc_health.v1.health import aio

            servicer = aio.HealthServicer()
            await self._tell(servicer)
            self._servicer = servicer
        return self._servicer

    async def _tell(self, servicer: Any) -> None:
        from grpc_health.v1.health_pb2 import HealthCheckResponse

        status = HealthCheckResponse.SERVING if self._is_ready else HealthCheckResponse.NOT_SERVING
        for service in self.services:
            await servicer.set(service, status)
