"""The controller on other nodes, as seen by those who ask it.

What a failed call means is decided by one rule: a request that was not handed to a live connection did not
leave, so nothing was done (UnreachableError); from then on only the other node's own answer is certain, and
everything else (a broken connection, a deadline, an answer that cannot be read) leaves the outcome unknown
(RequestTimedOutError).  gRPC's UNAVAILABLE covers both sides of that line, so the connection is awaited first
and the call is made on it; gRPC is told to try nothing again.

    not encodable, too large          InvalidRequestError       refused here
    no address, no connection         UnreachableError          nothing was done
    it or we did not prove ourselves  ClusterAuthorizationError nothing was done
    UNAUTHENTICATED                   we authenticate anew, once; then as above
    UNIMPLEMENTED                     UnsupportedVersionError   nothing was done: it has no controller service
    any other status, garbage         RequestTimedOutError      unknown
    a reply with an error             that error                as it says
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

import grpc
from grpc.aio import AioRpcError, Channel, UnaryUnaryMultiCallable

from distributedlog.control.authentication import CallerSession
from distributedlog.control.connections import Address, Connections, connected
from distributedlog.control.contract import ControllerReply
from distributedlog.control.credentials import SUBMIT, Credentials
from distributedlog.controller.requests import Request
from distributedlog.model.errors import (
    ClusterAuthorizationError,
    DlogError,
    OverloadedError,
    RequestTimedOutError,
    UnreachableError,
    UnsupportedVersionError,
)
from distributedlog.ports.executor import Done, Outcome
from distributedlog.ports.randomness import Randomness

CALLS_MAX: Final = 1_024
"""The calls that are in flight at a time."""
WARNED_MAX: Final = 1_000

_log = logging.getLogger(__name__)


class ControllerChannelPool:
    """Implements ControllerClient.  Call everything on the control loop."""

    def __init__(
        self, credentials: Credentials, peers: Mapping[int, Address], *, randomness: Randomness
    ) -> None:
        self.identity = credentials.identity
        self.connections = Connections(credentials, peers)
        self.randomness = randomness
        self._warned: set[tuple[int, str]] = set()
        self._calls: set[asyncio.Task[Outcome[ControllerReply]]] = set()
        self._closed = False

    @property
    def peers(self) -> dict[int, Address]:
        """Where the others are; may be changed at any time."""
        return self.connections.peers

    def call(self, node_id: int, request: Request, timeout_ms: int, done: Done[ControllerReply]) -> None:
        loop = asyncio.get_running_loop()
        if self._closed:
            error: DlogError = UnreachableError("this node is stopping")
            loop.call_soon(done, Outcome[ControllerReply](error=error))
            return
        if len(self._calls) >= CALLS_MAX:
            error = OverloadedError(f"{CALLS_MAX} requests to controllers are under way")
            loop.call_soon(done, Outcome[ControllerReply](error=error))
            return
        task = loop.create_task(self._call(node_id, request, timeout_ms / 1000))
        self._calls.add(task)

        def finished(task: asyncio.Task[Outcome[ControllerReply]]) -> None:
            self._calls.discard(task)
            done(_unknown(node_id, "this node is stopping") if task.cancelled() else task.result())

        task.add_done_callback(finished)

    async def _call(self, node_id: int, request: Request, timeout_s: float) -> Outcome[ControllerReply]:
        from distributedlog.control.conversion.envelope import encode_request  # a node alone asks only itself

        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        try:
            data = encode_request(request, self.identity, node_id)
        except DlogError as refused:
            return Outcome(error=refused)
        channel = self.connections.channel(node_id)
        if channel is None:
            return Outcome(error=UnreachableError(f"nobody knows where node {node_id} is"))
        try:
            async with asyncio.timeout_at(deadline):
                live = await connected(channel)
        except (TimeoutError, asyncio.CancelledError):  # late, or this node stops: nothing has left it
            live = False
        if not live or self._closed or deadline <= loop.time():
            return Outcome(error=UnreachableError(f"node {node_id} cannot be reached"))
        outcome = await self._submit(channel, node_id, data, deadline)
        if outcome is None:  # it knows our session no more: another process, or another connection
            outcome = await self._submit(channel, node_id, data, deadline)
        if outcome is None:
            return Outcome(error=ClusterAuthorizationError(f"node {node_id} ends our sessions"))
        return outcome

    async def _submit(
        self, channel: Channel, node_id: int, data: bytes, deadline: float
    ) -> Outcome[ControllerReply] | None:
        """Submits a request; None: nothing was done, and we have to authenticate anew."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(deadline):
                session = await self.connections.session(node_id, channel)
        except (TimeoutError, asyncio.CancelledError):  # nothing but a proof has left this node
            return Outcome(error=UnreachableError(f"node {node_id} did not authenticate us in time"))
        except DlogError as refused:
            self.warn_once(node_id, refused)
            return Outcome(error=refused)
        remaining_s = max(0.0, deadline - loop.time())
        try:
            return await _submitted(channel, node_id, data, session, remaining_s)
        except AioRpcError as failed:
            code = failed.code()
            if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNAVAILABLE):
                self.connections.forget_session(channel)  # the next connection needs another
            if code is grpc.StatusCode.UNAUTHENTICATED:
                return None
            if code is grpc.StatusCode.UNIMPLEMENTED:
                missing = f"node {node_id} has no controller service that we know"
                return Outcome(error=UnsupportedVersionError(missing))
            return _unknown(node_id, f"{code.name}: {failed.details()}")

    def warn_once(self, node_id: int, refused: DlogError) -> None:
        """Logs once for each reason that a node does not prove itself, or does not believe us."""
        warning = (node_id, str(refused)[:300])
        if isinstance(refused, ClusterAuthorizationError) and warning not in self._warned:
            if len(self._warned) < WARNED_MAX:
                self._warned.add(warning)
            _log.warning("the control plane of node %d cannot be used: %s", *warning)

    async def close(self) -> None:
        """Every call is answered before this returns; what was under way, with its outcome unknown."""
        self._closed = True
        calls = list(self._calls)
        for task in calls:
            task.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await self.connections.close()


async def _submitted(
    channel: Channel, node_id: int, data: bytes, session: CallerSession, timeout_s: float
) -> Outcome[ControllerReply]:
    from distributedlog.control.conversion.envelope import decode_reply

    submit: UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
        SUBMIT, request_serializer=None, response_deserializer=None
    )
    try:
        reply: bytes = await submit(data, timeout=timeout_s, metadata=session.metadata(SUBMIT, data))
        return decode_reply(reply)
    except asyncio.CancelledError:
        return _unknown(node_id, "the call was cut off")
    except DlogError as unreadable:
        return _unknown(node_id, f"its answer cannot be read: {unreadable}")


def _unknown(node_id: int, why: str) -> Outcome[ControllerReply]:
    return Outcome(error=RequestTimedOutError(f"no answer of node {node_id} ({why}); it may have acted"))
