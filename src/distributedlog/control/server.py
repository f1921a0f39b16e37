"""The control server: consensus and the controller, on one port, for other nodes of the same cluster.

There is no authentication on it: who can reach the port and knows the cluster's id is taken for a node.  The
settings refuse an address that is not loopback unless that is asked for.
"""

from typing import Final

import grpc
from grpc.aio import Server

from distributedlog.control import options
from distributedlog.control.connections import target
from distributedlog.control.contract import ControllerService, MetadataSource
from distributedlog.control.conversion.envelope import Identity
from distributedlog.control.services import ControllerServicer, RaftService
from distributedlog.control.transport import GrpcTransport
from distributedlog.model.errors import ConfigError

STOP_GRACE_S: Final = 0.5


async def listen(server: Server, host: str, port: int) -> int:
    """Starts; the port that was bound.  ConfigError if it cannot be."""
    address = target((host, port))
    try:
        bound = server.add_insecure_port(address)
    except RuntimeError as refused:
        raise ConfigError(f"cannot listen on {address}: {refused}") from refused
    if bound == 0:
        raise ConfigError(f"cannot listen on {address}")
    await server.start()
    return bound


class ControlServer:
    """Make it and call it on the control loop."""

    def __init__(
        self,
        node_id: int,
        cluster_id: str,
        *,
        transport: GrpcTransport | None,
        controller: ControllerService | None,
        metadata: MetadataSource | None,
    ) -> None:
        """A node that takes no part in consensus has no transport."""
        identity = Identity(cluster_id, node_id)
        self._servicer = ControllerServicer(identity, controller, metadata)
        self._server = grpc.aio.server(options=options.SERVER)
        self._server.add_generic_rpc_handlers([self._servicer.handler()])
        self._raft = None if transport is None else RaftService(identity, transport.deliver)
        if self._raft is not None:
            self._server.add_generic_rpc_handlers([self._raft.handler()])

    async def start(self, host: str, port: int) -> int:
        """The port it listens on; 0 chooses a free one."""
        return await listen(self._server, host, port)

    async def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """Takes nothing new; requests under way may be answered for so long, then all is cut."""
        self._servicer.close()
        if self._raft is not None:
            self._raft.close()
        await self._server.stop(grace_s)
