"""The gateway's port: BrokerService, the standard health service, and the standard reflection.

Reflection lets generic tools list and call what there is.  Health says SERVING while the cluster serves.
"""

from typing import Any, Final

import grpc
from grpc_reflection.v1alpha.reflection import aio as reflection
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

from distributedlog.gateway import options
from distributedlog.gateway.health import HEALTH_SERVICE, Health
from distributedlog.gateway.metrics import GatewayMetrics, Uncounted
from distributedlog.gateway.service import BROKER_SERVICE, BrokerService
from distributedlog.model.errors import ConfigError

REFLECTION_SERVICE: Final = "grpc.reflection.v1alpha.ServerReflection"
STOP_GRACE_S: Final = 2.0


class GatewayServer:
    """The gRPC server, on the gateway's loop."""

    def __init__(self, service: BrokerService, metrics: GatewayMetrics | None = None) -> None:
        self._service = service
        self._metrics: GatewayMetrics = metrics or Uncounted()
        self._health = Health((BROKER_SERVICE,))
        self._server = grpc.aio.server(options=options.SERVER, maximum_concurrent_rpcs=options.CALLS_MAX)
        self._server.add_generic_rpc_handlers((service.handler(), self._health.handler(), _reflection()))

    async def start(self, host: str, port: int) -> int:
        """Returns the port it listens on; 0 chooses a free one.  ConfigError if it cannot be."""
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            bound = self._server.add_insecure_port(address)
        except RuntimeError:  # which does not say why
            bound = 0
        if bound == 0:
            raise ConfigError(
                f"cannot listen on {address}: it is in use, or is not this machine's; choose another with"
                " --listen"
            )
        await self._health.set_serving(False)
        await self._server.start()
        return bound

    async def check_health(self) -> None:
        """Asks the cluster, and tells the standard health service."""
        reason = await self._service.why_not_serving()
        self._metrics.set_health(reason)
        await self._health.set_serving(reason is None)

    async def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """Reports NOT_SERVING at once; streams end, other calls in flight may end within `grace_s`."""
        await self._health.stop()
        self._service.close()
        await self._server.stop(grace_s)
        await self._service.wait_closed()


def _reflection() -> grpc.GenericRpcHandler:
    servicer = reflection.ReflectionServicer((BROKER_SERVICE, HEALTH_SERVICE, REFLECTION_SERVICE))
    info: grpc.RpcMethodHandler[Any, Any] = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        ServerReflectionRequest.FromString,
        ServerReflectionResponse.SerializeToString,
    )
    return grpc.method_handlers_generic_handler(REFLECTION_SERVICE, {"ServerReflectionInfo": info})
