"""Who calls: the control server's side of authentication.

A caller authenticates once on its connection (authentication.proto, `model/cluster_secret`) and gets a
session; each of its calls names it and is signed.  Before a session is known nothing of a call is read but
its metadata.

| refused                | when                                                                              |
|------------------------|-----------------------------------------------------------------------------------|
| `not authenticated`    | a call without a session                                                          |
| `unknown session`      | one that ended, or never was: the caller authenticates anew, as after a restart   |
| `another connection`   | the session was begun on another connection                                       |
| `wrong signature`      | the call is not what its caller signed, or came a second time                     |
| `wrong proof`          | the caller does not hold the cluster's secret                                     |
| `wrong header`         | it is of another cluster, or means another node, or needs a newer version         |
| `too slow`             | it began to authenticate and did not go on                                        |
| `not its own`          | it speaks for another node, or in a role that it has not                          |

Whoever holds no secret costs a little: one nonce and one proof for each hello, and of HANDSHAKES_MAX that are
under way the oldest makes way.  Sessions are made only for who does; beyond SESSIONS_MAX the one that was not
used for the longest time ends.
"""

import asyncio
import os
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final

import grpc

from distributedlog.control.contract import Identity
from distributedlog.control.credentials import (
    NUMBER_BYTES,
    SESSION_METADATA,
    SIGNATURE_METADATA,
    Credentials,
    client_claim,
    server_claim,
)
from distributedlog.control.unproven import UnprovenMembers
from distributedlog.model.cluster_secret import (
    NONCE_BYTES,
    is_signed,
    prove,
    proving_secret,
    session_key,
)
from distributedlog.model.errors import ClusterAuthorizationError, DlogError, MalformedMessageError

if TYPE_CHECKING:
    from grpc.aio import ServicerContext

    from distributedlog.control._generated import authentication_pb2 as pb
    from distributedlog.control.late import LateService

HANDSHAKE_TIMEOUT_S: Final = 5.0
HANDSHAKES_MAX: Final = 256
HANDSHAKE_BYTES_MAX: Final = 4096
SESSIONS_MAX: Final = 2_048
SESSION_ID_BYTES: Final = 16
NUMBERS_BACK_MAX: Final = 4_096
"""Calls may overtake each other by so many."""
ROLES: Final = frozenset({"broker", "controller"})
NOBODY_YET: Final = -1

Refused = Callable[[str, str, str], None]
"""Whom, for which of the reasons above, and what there is to say about it."""


class RefusedError(ClusterAuthorizationError):
    """The call is refused, with the reason, which is counted."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Session:
    """One authenticated caller on one connection."""

    def __init__(self, node_id: int, roles: frozenset[str], key: bytes, peer: str) -> None:
        self.node_id = node_id
        self.roles = roles
        self.peer = peer
        self._key = key
        self._highest = 0
        self._numbers: set[int] = set()
        """Those that came, of the last NUMBERS_BACK_MAX."""

    def claim(self, node_id: int) -> None:
        """Takes note of who the caller says that it is; the session knows by proof."""

    def accepts(self, method: str, body: bytes, given: bytes) -> bool:
        """Returns whether the caller signed this very call, and this is the first time that it comes."""
        number = int.from_bytes(given[:NUMBER_BYTES], "big")
        if number <= self._highest - NUMBERS_BACK_MAX or number in self._numbers:
            return False
        if not is_signed(self._key, method, number, body, given[NUMBER_BYTES:]):
            return False
        self._numbers.add(number)
        if number > self._highest:
            self._highest = number
            if len(self._numbers) > 2 * NUMBERS_BACK_MAX:
                self._numbers = {each for each in self._numbers if each > number - NUMBERS_BACK_MAX}
        return True


class UnprovenCaller(Session):
    """A caller of an earlier version: it has only said who it is, and not yet that."""

    def __init__(self, unproven: UnprovenMembers, peer: str) -> None:
        super().__init__(NOBODY_YET, ROLES, b"", peer)
        self._unproven = unproven

    def claim(self, node_id: int) -> None:
        if self.node_id == NOBODY_YET:
            if not self._unproven.accept(node_id):
                raise RefusedError("not authenticated", f"it calls itself node {node_id} and proves nothing")
            self.node_id = node_id


class Sessions:
    """Lives on the control loop."""

    def __init__(self, credentials: Credentials, refused: Refused) -> None:
        self._credentials = credentials
        self._refused = refused
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()
        self._handshakes: dict[asyncio.Task[None], None] = {}
        self._closed = False

    # --- calls ---------------------------------------------------------------------------------

    def require(self, context: "ServicerContext[bytes, bytes]", method: str, body: bytes = b"") -> Session:
        """The session of a call; RefusedError if it has none that is good for it."""
        metadata = dict(context.invocation_metadata() or ())
        session_id = metadata.get(SESSION_METADATA)
        if session_id is None and self.accepts_unproven:
            return UnprovenCaller(self._credentials.unproven, context.peer())
        if not isinstance(session_id, bytes):
            raise RefusedError("not authenticated", f"{method} was called without a session")
        session = self._sessions.get(session_id)
        if session is None:
            raise RefusedError("unknown session", f"{method} was called in a session that is not there")
        if session.peer != context.peer():
            raise RefusedError(
                "another connection",
                f"{method} was called in a session that node {session.node_id} has elsewhere",
            )
        given = metadata.get(SIGNATURE_METADATA)
        if not isinstance(given, bytes) or not session.accepts(method, body, given):
            raise RefusedError(
                "wrong signature", f"{method} was called with a signature that is wrong or was used"
            )
        self._sessions.move_to_end(session_id)
        return session

    @property
    def accepts_unproven(self) -> bool:
        """Whether calls without a session are looked at: who calls is checked once it is said."""
        return self._credentials.unproven.is_optional

    def report_refusal(self, context: "ServicerContext[Any, Any]", error: DlogError) -> None:
        """Counts a refusal, and tells of it now and then."""
        reason = error.reason if isinstance(error, RefusedError) else "wrong header"
        self._refused(host_of(context.peer()), reason, str(error))

    async def refuse(self, context: "ServicerContext[Any, Any]", error: DlogError) -> None:
        """Ends a call that is not to begin."""
        self.report_refusal(context, error)
        is_unknown = isinstance(error, ClusterAuthorizationError)
        status = grpc.StatusCode.UNAUTHENTICATED if is_unknown else grpc.StatusCode.FAILED_PRECONDITION
        await context.abort(status, str(error))

    # --- a caller's first call -----------------------------------------------------------------

    def handler(self) -> grpc.GenericRpcHandler:
        authenticate: grpc.RpcMethodHandler[Any, Any] = grpc.stream_stream_rpc_method_handler(
            self.authenticate
        )
        return grpc.method_handlers_generic_handler("dlog.v1.Authentication", {"Authenticate": authenticate})

    async def authenticate(
        self, frames: AsyncIterator[bytes], context: "ServicerContext[bytes, bytes]"
    ) -> None:
        if self._closed:
            return
        steps = asyncio.get_running_loop().create_task(self._steps(frames, context))
        self._handshakes[steps] = None
        if len(self._handshakes) > HANDSHAKES_MAX:
            next(iter(self._handshakes)).cancel()
        try:
            await asyncio.wait({steps}, timeout=HANDSHAKE_TIMEOUT_S)
            if not steps.done() or steps.cancelled():
                raise RefusedError("too slow", "it began to authenticate and did not go on")
            steps.result()
        except DlogError as error:
            await self.refuse(context, error)
        finally:
            steps.cancel()
            self._handshakes.pop(steps, None)

    async def _steps(self, frames: AsyncIterator[bytes], context: "ServicerContext[bytes, bytes]") -> None:
        from distributedlog.control._generated import authentication_pb2 as pb
        from distributedlog.control.conversion.envelope import check_header

        own = self._credentials.identity
        hello = (await _next(frames)).hello
        check_header(hello.header, own)
        roles = _roles(hello)
        caller = Identity(own.cluster_id, hello.header.sender_id)
        nonce, secrets = os.urandom(NONCE_BYTES), self._credentials.secrets()
        nonces = (hello.nonce, nonce)
        own_proof = prove(secrets.proving, server_claim(own, caller.node_id), nonces)
        challenge = pb.Challenge(nonce=nonce, proof=own_proof)
        await context.write(pb.AuthenticateReply(challenge=challenge).SerializeToString())
        claim = client_claim(caller, hello.roles, own.node_id)
        secret = proving_secret(secrets, claim, nonces, (await _next(frames)).proof)
        if secret is None:
            raise RefusedError(
                "wrong proof", f"it calls itself node {caller.node_id} and does not hold the cluster's secret"
            )
        self._credentials.unproven.note_proof(caller.node_id)
        session_id = os.urandom(SESSION_ID_BYTES)
        self._sessions[session_id] = Session(
            caller.node_id, roles, session_key(secret, claim, nonces), context.peer()
        )
        if len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        await context.write(pb.AuthenticateReply(session_id=session_id).SerializeToString())

    def close(self) -> None:
        self._closed = True
        for steps in list(self._handshakes):
            steps.cancel()

    def has(self, session_id: object) -> bool:
        return session_id in self._sessions


async def _next(frames: AsyncIterator[bytes]) -> "pb.AuthenticateRequest":
    from distributedlog.control._generated import authentication_pb2 as pb
    from distributedlog.control.conversion.envelope import parse

    async for data in frames:
        return parse(pb.AuthenticateRequest, data, HANDSHAKE_BYTES_MAX)
    raise RefusedError("wrong proof", "it left before it had proved anything")


def _roles(hello: "pb.Hello") -> frozenset[str]:
    roles = frozenset(hello.roles.split(","))
    if not roles <= ROLES:
        raise MalformedMessageError(f"a node in the roles {hello.roles[:100]!r}")
    if len(hello.nonce) != NONCE_BYTES:
        raise MalformedMessageError(f"a nonce of {len(hello.nonce)} bytes; it has {NONCE_BYTES}")
    return roles


class AuthenticatedService(grpc.GenericRpcHandler):
    """A service in front of another: whoever names no session of ours is refused before anything of the call
    is read."""

    def __init__(self, sessions: Sessions, service: "LateService") -> None:
        self._sessions = sessions
        self._service = service
        self._refusal: grpc.RpcMethodHandler[Any, Any] = grpc.stream_stream_rpc_method_handler(self._refuse)

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> "grpc.RpcMethodHandler[Any, Any] | None":
        if not self._service.has(handler_call_details.method):
            return None
        session_id = dict(handler_call_details.invocation_metadata or ()).get(SESSION_METADATA)
        is_looked_at = session_id is None and self._sessions.accepts_unproven
        if not is_looked_at and not self._sessions.has(session_id):
            return self._refusal
        return self._service.service(handler_call_details)

    async def _refuse(self, frames: AsyncIterator[bytes], context: "ServicerContext[bytes, bytes]") -> None:
        try:
            self._sessions.require(context, self._service.name)
        except RefusedError as error:
            await self._sessions.refuse(context, error)
        await context.abort(grpc.StatusCode.UNAVAILABLE, "the session has only just begun")


def host_of(peer: str) -> str:
    """The address of a gRPC peer, without its port: `ipv4:127.0.0.1:4711`, `ipv6:%5B::1%5D:4711`."""
    return peer.partition(":")[2].rpartition(":")[0].replace("%5B", "[").replace("%5D", "]") or peer
