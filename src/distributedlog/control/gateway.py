"""The gateway server: the port for programs that speak gRPC and not Kafka's protocol.

It has the standard health service, which says SERVING only from when the node is told to be ready, and the
standard reflection, so that generic tools can list and call what there is.  Services are added before it
starts, by their handlers and full names.
"""

from typing import Any, Final

import grpc

from distributedlog.control import options
from distributedlog.control.health import HEALTH_SERVICE, Health
from distributedlog.control.late import LateService
from distributedlog.control.server import STOP_GRACE_S, listen

BROKER_SERVICE: Final = "dlog.v1.BrokerService"
REFLECTION_SERVICE: Final = "grpc.reflection.v1alpha.ServerReflection"
CALLS_MAX: Final = 512
"""Under way at a time; each may have a whole message in memory before anybody looks at it."""


class GatewayServer:
    """Make it and call it on the control loop."""

    def __init__(self) -> None:
        self._server = grpc.aio.server(options=options.SERVER, maximum_concurrent_rpcs=CALLS_MAX)
        self._health = Health()
        self._services: list[str] = [HEALTH_SERVICE, REFLECTION_SERVICE]
        self.standard = (
            LateService(HEALTH_SERVICE, self._health.handler),
            LateService(REFLECTION_SERVICE, lambda: reflection(self._services)),
        )
        self._server.add_generic_rpc_handlers(self.standard)

    def add(self, service: str, handler: grpc.GenericRpcHandler) -> None:
        """A service by its full name, as `dlog.v1.BrokerService`."""
        self._server.add_generic_rpc_handlers([handler])
        self._services.append(service)
        self._health.services.append(service)

    async def start(self, host: str, port: int) -> int:
        """The port it listens on; 0 chooses a free one.  It is not SERVING yet."""
        return await listen(self._server, host, port)

    async def set_ready(self, ready: bool) -> None:
        """What the health service says of the server as a whole and of each service."""
        await self._health.set_ready(ready)

    async def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """NOT_SERVING at once; calls under way may end within `grace_s`."""
        await self._health.stop()
        await self._server.stop(grace_s)


def reflection(services: list[str]) -> grpc.GenericRpcHandler:
    """The standard reflection of these services; what describes them is imported with it."""
    from grpc_health.v1 import health_pb2  # noqa: F401 - it describes
    from grpc_reflection.v1alpha.reflection import aio
    from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

    from distributedlog.control._generated import broker_service_pb2  # noqa: F401 - it describes

    servicer = aio.ReflectionServicer(services)
    info: grpc.RpcMethodHandler[Any, Any] = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        ServerReflectionRequest.FromString,
        ServerReflectionResponse.SerializeToString,
    )
    return grpc.method_handlers_generic_handler(REFLECTION_SERVICE, {"ServerReflectionInfo": info})
