"""Channels in memory: a pair of them is one connection, without a socket.

Each direction holds at most `window_bytes`, and with a chance every call takes or gives only some of what it
could: what a network does to a stream, and nothing it does not.  A peer that closes ends the stream behind
what it sent; one that resets takes that back too.
"""

import asyncio
import os
import random
from collections.abc import Sequence

from distributedlog.broker.net.acceptor import OnAccepted
from distributedlog.broker.net.channel import Callback
from distributedlog.model.buffers import Buffer, MutableBuffer
from distributedlog.settings.addresses import Endpoint

WINDOW_BYTES = 64 * 1024


class Stream:
    """One direction."""

    def __init__(self, window_bytes: int) -> None:
        self.window_bytes = window_bytes
        self.data = bytearray()
        self.has_ended = False
        """The sender sends no more."""
        self.is_abandoned = False
        """The receiver takes no more."""
        self.is_reset = False

    @property
    def room(self) -> int:
        return max(0, self.window_bytes - len(self.data))


class MemoryChannel:
    """One end; `pair` makes both."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        incoming: Stream,
        outgoing: Stream,
        chance: random.Random | None,
    ) -> None:
        self._loop = loop
        self._incoming = incoming
        self._outgoing = outgoing
        self._chance = chance
        self._on_readable: Callback | None = None
        self._on_writable: Callback | None = None
        self._is_armed = False
        self._is_closed = False
        self.peer: MemoryChannel | None = None
        self.can_send_files = True

    def receive_into(self, first: MutableBuffer, then: MutableBuffer | None = None) -> int:
        stream = self._incoming
        if stream.is_reset:
            raise ConnectionResetError("the peer reset the connection")
        if not stream.data:
            if stream.has_ended:
                return 0
            raise BlockingIOError
        count = received = self._draw(min(len(stream.data), len(first) + (0 if then is None else len(then))))
        for buffer in (first, then):
            if buffer is not None:
                part = min(received, len(buffer))
                buffer[:part] = stream.data[:part]
                del stream.data[:part]
                received -= part
        self._arm_peer()
        return count

    def send(self, parts: Sequence[Buffer], *, is_more: bool = False) -> int:
        return self._send(b"".join(parts))

    def send_file(self, descriptor: int, position: int, count: int) -> int | None:
        if not self.can_send_files:
            return None
        self._check_taken()
        return self._send(data) if (data := os.pread(descriptor, count, position)) else 0

    def _send(self, data: bytes) -> int:
        stream = self._outgoing
        self._check_taken()
        if data and not stream.room:
            raise BlockingIOError
        count = self._draw(min(len(data), stream.room))
        stream.data += data[:count]
        self._arm_peer()
        return count

    def _check_taken(self) -> None:
        if self._outgoing.is_abandoned or self._incoming.is_reset:
            raise BrokenPipeError("the peer takes no more")

    def _draw(self, count_max: int) -> int:
        return count_max if self._chance is None or count_max < 2 else self._chance.randint(1, count_max)

    def notify_readable(self, callback: Callback | None) -> None:
        self._on_readable = callback
        self._arm()

    def notify_writable(self, callback: Callback | None) -> None:
        self._on_writable = callback
        self._arm()

    @property
    def _is_readable(self) -> bool:
        return bool(self._incoming.data) or self._incoming.has_ended or self._incoming.is_reset

    @property
    def _is_writable(self) -> bool:
        return self._outgoing.room > 0 or self._outgoing.is_abandoned or self._incoming.is_reset

    def _arm(self) -> None:
        can_call = (self._on_readable is not None and self._is_readable) or (
            self._on_writable is not None and self._is_writable
        )
        if can_call and not self._is_armed and not self._is_closed:
            self._is_armed = True
            self._loop.call_soon(self._call_back)

    def _arm_peer(self) -> None:
        if self.peer is not None:
            self.peer._arm()

    def _call_back(self) -> None:
        self._is_armed = False
        if self._on_readable is not None and self._is_readable:
            self._on_readable()
        if self._on_writable is not None and self._is_writable:
            self._on_writable()
        self._arm()

    def has_hung_up(self) -> bool:
        return self._incoming.has_ended or self._incoming.is_reset

    def shut_down(self) -> None:
        """Sends no more, and goes on receiving."""
        self._outgoing.has_ended = True
        self._arm_peer()

    def reset(self) -> None:
        """Goes away as a process does that is killed with something unread."""
        self._outgoing.data.clear()
        self._outgoing.is_reset = True
        self.close()

    def close(self) -> None:
        self._is_closed = True
        self._on_readable = self._on_writable = None
        self._outgoing.has_ended = True
        self._incoming.is_abandoned = True
        self._arm_peer()
        self.peer = None


def pair(
    loop: asyncio.AbstractEventLoop, window_bytes: int = WINDOW_BYTES, chance: random.Random | None = None
) -> tuple[MemoryChannel, MemoryChannel]:
    there, back = Stream(window_bytes), Stream(window_bytes)
    ours = MemoryChannel(loop, there, back, chance)
    theirs = MemoryChannel(loop, back, there, chance)
    ours.peer, theirs.peer = theirs, ours
    return ours, theirs


class MemoryAcceptor:
    """Accepts whoever `connect`s."""

    def __init__(self, loop: asyncio.AbstractEventLoop, names: Sequence[str] = ("PLAINTEXT",)) -> None:
        self._loop = loop
        self._on_accepted: OnAccepted | None = None
        self.addresses = {name: Endpoint("memory", number) for number, name in enumerate(names)}

    def bind(self) -> None:
        """There are enough addresses."""

    def accept(self, on_accepted: OnAccepted) -> None:
        self._on_accepted = on_accepted

    def connect(
        self,
        listener: str = "PLAINTEXT",
        host: str = "127.0.0.1",
        *,
        window_bytes: int = WINDOW_BYTES,
        chance: random.Random | None = None,
    ) -> MemoryChannel:
        """The client's end of a new connection."""
        if self._on_accepted is None:
            raise ConnectionRefusedError
        ours, theirs = pair(self._loop, window_bytes, chance)
        self._on_accepted(ours, host, listener)
        return theirs

    def close(self) -> None:
        self._on_accepted = None
