"""Connections to other nodes, one for each, and our sessions on them.

Nothing is connected before it is needed.  Addresses may change at any time: the next call goes to the
new one.  Calls that need a session at the same moment share one authentication; a session that the other node
does not know any more, since its process or the connection is another, is forgotten by whoever finds out.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

import grpc
from grpc.aio import Channel

from distributedlog.control import options
from distributedlog.control.authentication import CallerSession, UnprovenSession, authenticate
from distributedlog.control.credentials import Credentials

Address = tuple[str, int]
UNPROVEN_SESSION_S: Final = 5.0
"""The time after which a node that proved nothing is asked for a proof again."""


def target(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Connections:
    """Call everything on the control loop."""

    def __init__(self, credentials: Credentials, peers: Mapping[int, Address]) -> None:
        self.peers = dict(peers)
        """Where the others are; may be changed at any time."""
        self._credentials = credentials
        self._sessions: dict[Channel, asyncio.Task[CallerSession]] = {}
        self._begun: dict[Channel, float] = {}
        self._channels: dict[int, tuple[Address, Channel]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    def channel(self, node_id: int) -> Channel | None:
        """Returns the channel; None: nobody knows where that node is, or this is closed."""
        if self._closed:
            return None
        address = self.peers.get(node_id)
        known = self._channels.get(node_id)
        if known is not None:
            if known[0] == address:
                return known[1]
            del self._channels[node_id]
            self._close_later(known[1])
        if address is None:
            return None
        channel = grpc.aio.insecure_channel(target(address), options=options.CHANNEL)
        self._channels[node_id] = (address, channel)
        return channel

    async def session(self, node_id: int, channel: Channel) -> CallerSession:
        """Ours with that node on that channel; raises the DlogError that says why there is none."""
        beginning = self._sessions.get(channel)
        if beginning is not None and self._is_stale(channel, beginning):
            beginning = None
        if beginning is None:
            self._begun[channel] = asyncio.get_running_loop().time()
            beginning = asyncio.get_running_loop().create_task(
                authenticate(channel, self._credentials, node_id)
            )
            self._sessions[channel] = beginning
        try:
            return await asyncio.shield(beginning)
        except BaseException:
            if beginning.done():
                self.forget_session(channel)
            raise

    def _is_stale(self, channel: Channel, beginning: "asyncio.Task[CallerSession]") -> bool:
        """Returns whether a node that proved nothing is to be asked again: it may have been upgraded."""
        if not beginning.done() or beginning.cancelled() or beginning.exception() is not None:
            return False
        age_s = asyncio.get_running_loop().time() - self._begun.get(channel, 0.0)
        return isinstance(beginning.result(), UnprovenSession) and age_s > UNPROVEN_SESSION_S

    def forget_session(self, channel: Channel) -> None:
        """Forgets our session: the next call authenticates anew."""
        self._sessions.pop(channel, None)
        self._begun.pop(channel, None)

    def _close_later(self, channel: Channel) -> None:
        """Calls that are under way may still get their answers."""
        self.forget_session(channel)
        task = asyncio.get_running_loop().create_task(channel.close(options.CONNECT_TIMEOUT_MS / 1000))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Ends every call that is under way."""
        self._closed = True
        sessions = list(self._sessions.values())
        self._sessions.clear()
        for beginning in sessions:
            beginning.cancel()
        await asyncio.gather(*sessions, return_exceptions=True)
        channels = [channel for _, channel in self._channels.values()]
        self._channels.clear()
        await asyncio.gather(*(channel.close(None) for channel in channels), *self._closing)


async def connected(channel: Channel) -> bool:
    """Connects if need be; whether there is a connection.

    There is none, at once, while gRPC pauses after a failure; and none after CONNECT_TIMEOUT_MS.
    """
    try:
        async with asyncio.timeout(options.CONNECT_TIMEOUT_MS / 1000):
            return await _connected(channel)
    except TimeoutError:
        return False


async def _connected(channel: Channel) -> bool:
    state = channel.get_state(try_to_connect=True)
    while state is not grpc.ChannelConnectivity.READY:
        if state in (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN):
            return False
        await channel.wait_for_state_change(state)
        state = channel.get_state(try_to_connect=True)
    return True
