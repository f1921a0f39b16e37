"""The controller on other nodes, as seen by those who ask it.

What a failed call means is decided by one rule: a request that was not handed to a live connection did not
leave, so nothing was done (UnreachableError); from then on only the other node's own answer is certain, and
everything else (a broken connection, a deadline, an answer that cannot be read) leaves the outcome unknown
(RequestTimedOutError).  gRPC's UNAVAILABLE covers both sides of that line, so the connection is awaited first
and the call is made on it; gRPC is told to try nothing again.

    not encodable, too large          InvalidRequestError       refused here
    no address, no connection         UnreachableError          nothing was done
    UNIMPLEMENTED                     UnsupportedVersionError   nothing was done: it has no controller service
    any other status, garbage         RequestTimedOutError      unknown
    a reply with an error             that error                as it says
"""

import asyncio
from collections.abc import Mapping
from typing import Final

import grpc
from grpc.aio import AioRpcError, Channel, UnaryUnaryMultiCallable

from distributedlog.control.connections import Address, Connections, connected
from distributedlog.control.contract import ControllerReply, Identity
from distributedlog.controller.requests import Request
from distributedlog.model.errors import (
    DlogError,
    OverloadedError,
    RequestTimedOutError,
    UnreachableError,
    UnsupportedVersionError,
)
from distributedlog.ports.executor import Done, Outcome
from distributedlog.ports.randomness import Randomness

SUBMIT: Final = "/dlog.v1.Controller/Submit"
CALLS_MAX: Final = 1_024
"""Under way at a time."""


class ControllerChannelPool:
    """Implements ControllerClient.  Call everything on the control loop."""

    def __init__(
        self, node_id: int, cluster_id: str, peers: Mapping[int, Address], *, randomness: Randomness
    ) -> None:
        self.identity = Identity(cluster_id, node_id)
        self.connections = Connections(peers)
        self.randomness = randomness
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
        remaining_s = deadline - loop.time()
        if not live or self._closed or remaining_s <= 0:
            return Outcome(error=UnreachableError(f"node {node_id} cannot be reached"))
        return await _submitted(channel, node_id, data, remaining_s)

    async def close(self) -> None:
        """Every call is answered before this returns; what was under way, with its outcome unknown."""
        self._closed = True
        calls = list(self._calls)
        for task in calls:
            task.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await self.connections.close()


async def _submitted(
    channel: Channel, node_id: int, data: bytes, timeout_s: float
) -> Outcome[ControllerReply]:
    from distributedlog.control.conversion.envelope import decode_reply

    submit: UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
        SUBMIT, request_serializer=None, response_deserializer=None
    )
    try:
        reply: bytes = await submit(data, timeout=timeout_s)
        return decode_reply(reply)
    except AioRpcError as failed:
        if failed.code() is grpc.StatusCode.UNIMPLEMENTED:
            missing = f"node {node_id} has no controller service that we know"
            return Outcome(error=UnsupportedVersionError(missing))
        return _unknown(node_id, f"{failed.code().name}: {failed.details()}")
    except asyncio.CancelledError:
        return _unknown(node_id, "the call was cut off")
    except DlogError as unreadable:
        return _unknown(node_id, f"its answer cannot be read: {unreadable}")


def _unknown(node_id: int, why: str) -> Outcome[ControllerReply]:
    return Outcome(error=RequestTimedOutError(f"no answer of node {node_id} ({why}); it may have acted"))
