"""The gateway server: the port for programs that speak gRPC and not Kafka's protocol.

It has the standard health service, which says SERVING only from when the node is told to be ready, and the
standard reflection, so that generic tools can list and call what there is.  Services are added before it
starts, by their handlers and full names.
"""

from typing import Any, Final

import grpc

from distributedlog.control import options
from distributedlog.control.server import STOP_GRACE_S, listen

BROKER_SERVICE: Final = "dlog.v1.BrokerService"
_WHOLE_SERVER: Final = ""
CALLS_MAX: Final = 512
"""Under way at a time; each may have a whole message in memory before anybody looks at it."""


class GatewayServer:
    """Make it and call it on the control loop."""

    def __init__(self) -> None:
        from grpc_health.v1.health import aio  # with its protos, a few milliseconds: only where it is served

        self._server = grpc.aio.server(options=options.SERVER, maximum_concurrent_rpcs=CALLS_MAX)
        self._health: Any = aio.HealthServicer()
        self._services: list[str] = []
        self._ready = False

    def add(self, service: str, handler: grpc.GenericRpcHandler) -> None:
        """A service by its full name, as `dlog.v1.BrokerService`."""
        self._server.add_generic_rpc_handlers([handler])
        self._services.append(service)

    async def start(self, host: str, port: int) -> int:
        """The port it listens on; 0 chooses a free one.  It is not SERVING yet."""
        from grpc_health.v1 import health_pb2, health_pb2_grpc
        from grpc_reflection.v1alpha import reflection

        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        health_name = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
        reflection.enable_server_reflection(
            [*self._services, health_name, reflection.SERVICE_NAME], self._server
        )
        await self.set_ready(False)
        return await listen(self._server, host, port)

    async def set_ready(self, ready: bool) -> None:
        """What the health service says of the server as a whole and of each service."""
        from grpc_health.v1.health_pb2 import HealthCheckResponse

        status = HealthCheckResponse.SERVING if ready else HealthCheckResponse.NOT_SERVING
        for service in (_WHOLE_SERVER, *self._services):
            await self._health.set(service, status)

    async def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """NOT_SERVING at once; calls under way may end within `grace_s`."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace_s)
