"""Connections to other nodes, one for each.

Nothing is connected before it is needed.  Addresses may change at any time: the next call goes to the
new one.
"""

import asyncio
from collections.abc import Mapping

import grpc
from grpc.aio import Channel

from distributedlog.control import options

Address = tuple[str, int]


def target(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Connections:
    """Call everything on the control loop."""

    def __init__(self, peers: Mapping[int, Address]) -> None:
        self.peers = dict(peers)
        """Where the others are; may be changed at any time."""
        self._channels: dict[int, tuple[Address, Channel]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    def channel(self, node_id: int) -> Channel | None:
        """None: nobody knows where that node is, or this is closed."""
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

    def _close_later(self, channel: Channel) -> None:
        """Calls that are under way may still get their answers."""
        task = asyncio.get_running_loop().create_task(channel.close(options.CONNECT_TIMEOUT_MS / 1000))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Ends every call that is under way."""
        self._closed = True
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
