"""The control server: consensus and the controller, on one port, for other nodes of the same cluster.

Who calls has to prove first that it holds the cluster's secret (`sessions`); nothing else is answered.  What
is said is not encrypted, so the settings refuse an address that is not loopback unless that is asked for.
"""

from functools import partial
from typing import TYPE_CHECKING, Final

import grpc
from grpc.aio import Server

from distributedlog.control import options
from distributedlog.control.connections import target
from distributedlog.control.contract import ControllerService, MetadataSource
from distributedlog.control.credentials import Credentials
from distributedlog.control.late import LateService
from distributedlog.control.sessions import AuthenticatedService, Refused, Sessions
from distributedlog.control.transport import GrpcTransport
from distributedlog.model.errors import ConfigError

if TYPE_CHECKING:
    from distributedlog.control.services import ControllerServicer, RaftService

STOP_GRACE_S: Final = 0.5


async def listen(server: Server, host: str, port: int) -> int:
    """Starts; the port that was bound.  ConfigError if it cannot be."""
    address = target((host, port))
    try:
        bound = server.add_insecure_port(address)
    except RuntimeError:  # which does not say why
        bound = 0
    if bound == 0:
        raise ConfigError(
            f"cannot listen on {address}: it is in use, or is not this machine's; choose another in"
            " `control.listener`"
        )
    await server.start()
    return bound


class ControlServer:
    """Make it and call it on the control loop."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        transport: GrpcTransport | None,
        controller: ControllerService | None,
        metadata: MetadataSource | None,
        refused: Refused = lambda host, reason, detail: None,
    ) -> None:
        """A node that takes no part in consensus has no transport.  `refused` is told who got no answer."""
        self._identity = credentials.identity
        self._sessions = Sessions(credentials, refused)
        self._controller = controller
        self._metadata = metadata
        self._made: list[ControllerServicer | RaftService] = []
        self._is_stopping = False
        authentication = LateService("dlog.v1.Authentication", self._sessions.handler)
        guarded = [LateService("dlog.v1.Controller", self._controller_service)]
        if transport is not None:
            guarded.append(LateService("dlog.v1.Raft", partial(self._raft_service, transport)))
        self.services = [authentication, *guarded]
        self._server = grpc.aio.server(options=options.SERVER)
        guards = [AuthenticatedService(self._sessions, service) for service in guarded]
        self._server.add_generic_rpc_handlers([authentication, *guards])

    async def start(self, host: str, port: int) -> int:
        """The port it listens on; 0 chooses a free one."""
        return await listen(self._server, host, port)

    async def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """Takes nothing new; requests under way may be answered for so long, then all is cut."""
        self._is_stopping = True
        self._sessions.close()
        for service in self._made:
            service.close()
        await self._server.stop(grace_s)

    def _controller_service(self) -> grpc.GenericRpcHandler:
        from distributedlog.control.services import ControllerServicer

        servicer = ControllerServicer(self._identity, self._sessions, self._controller, self._metadata)
        return self._handler_of(servicer)

    def _raft_service(self, transport: GrpcTransport) -> grpc.GenericRpcHandler:
        from distributedlog.control.services import RaftService

        is_voter = transport.peers.__contains__
        return self._handler_of(RaftService(self._identity, self._sessions, is_voter, transport.deliver))

    def _handler_of(self, service: "ControllerServicer | RaftService") -> grpc.GenericRpcHandler:
        self._made.append(service)
        if self._is_stopping:
            service.close()
        return service.handler()
