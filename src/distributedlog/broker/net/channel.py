"""A channel: the stream of bytes to and from one client, of which a connection knows nothing else.

Nothing in it waits: what cannot be done now raises BlockingIOError, and whoever asked is called back when it
can be.  A broken stream raises another OSError.

`SocketChannel` is the real one: it alone calls a socket's functions, and asks the loop to watch one.  So a
server whose channels are others needs of its loop only callbacks, timers and futures, and no file descriptor.
"""

import asyncio
import errno
import os
import select
import socket
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from distributedlog.model.buffers import Buffer, MutableBuffer

Callback = Callable[[], None]

_NO_SENDFILE: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})


class Channel(Protocol):
    """Used from the loop's thread only."""

    def receive_into(self, first: MutableBuffer, then: MutableBuffer | None = None) -> int:
        """Receives what is here, at most what fits into the first buffer and behind it into the other; how
        many bytes, 0 at the end of the stream.  It need not fill them, though more may be here."""
        ...

    def send(self, parts: Sequence[Buffer], *, is_more: bool = False) -> int:
        """Sends the parts one after the other; how many bytes of them were taken.  With `is_more` something
        follows at once: what is taken now may leave together with it."""
        ...

    def send_file(self, descriptor: int, position: int, count: int) -> int | None:
        """Sends a region of a file; how many bytes of it were taken, 0 if the file ends before.  None if
        this channel cannot send from this file: then its bytes have to be read and sent."""
        ...

    def notify_readable(self, callback: Callback | None) -> None:
        """Calls back again and again, each turn of the loop, while there is something to receive or the
        stream has ended; with None, no more."""
        ...

    def notify_writable(self, callback: Callback | None) -> None:
        """Calls back again and again, each turn of the loop, while something would be taken; with None, no
        more."""
        ...

    def has_hung_up(self) -> bool:
        """Whether the peer sends no more, though what it sent before may not be received yet."""
        ...

    def close(self) -> None:
        """Ends the stream in both directions; nobody is called back any more."""
        ...


class SocketChannel:
    """A TCP connection."""

    __slots__ = ("_loop", "_recv_into", "_send", "_socket")

    def __init__(self, connected: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._loop = loop
        self._recv_into = connected.recv_into
        self._send = connected.send

    def receive_into(self, first: MutableBuffer, then: MutableBuffer | None = None) -> int:
        if then is None:
            return self._recv_into(first)
        return self._socket.recvmsg_into((first, then))[0]

    def send(self, parts: Sequence[Buffer], *, is_more: bool = False) -> int:
        if is_more:
            return self._socket.sendmsg(parts, (), socket.MSG_MORE)
        if len(parts) == 1:
            return self._send(parts[0])
        return self._socket.sendmsg(parts)

    def send_file(self, descriptor: int, position: int, count: int) -> int | None:
        try:
            return os.sendfile(self._socket.fileno(), descriptor, position, count)
        except OSError as error:
            if error.errno in _NO_SENDFILE:
                return None
            raise

    def notify_readable(self, callback: Callback | None) -> None:
        if callback is None:
            self._loop.remove_reader(self._socket.fileno())
        else:
            self._loop.add_reader(self._socket.fileno(), callback)

    def notify_writable(self, callback: Callback | None) -> None:
        if callback is None:
            self._loop.remove_writer(self._socket.fileno())
        else:
            self._loop.add_writer(self._socket.fileno(), callback)

    def has_hung_up(self) -> bool:
        poll = select.poll()
        poll.register(self._socket.fileno(), select.POLLRDHUP)
        return bool(poll.poll(0))

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            self.notify_readable(None)
            self.notify_writable(None)
            self._socket.close()
