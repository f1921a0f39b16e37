"""Accepting: from listening sockets to channels.

One reader of the loop per listening socket.  When the process has no descriptors left the listener rests for
a moment instead of spinning: what is open goes on.

    bind    takes every address (port 0: a free one, see `addresses`), all or none
    accept  gives each client's channel to the server, with the client's address and the listener's name
    close   takes no more
"""

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from distributedlog.broker.net.channel import Channel, SocketChannel
from distributedlog.broker.observability.rate_limited_log import RateLimitedLog
from distributedlog.model.errors import ConfigError
from distributedlog.ports.clock import Clock
from distributedlog.settings.addresses import Endpoint, Listener

logger = logging.getLogger(__name__)

BACKLOG_MAX: Final = 1024
ACCEPTS_PER_TURN: Final = 4
"""One takes as long as a request, and those who are connected wait."""
REST_SECONDS: Final = 0.2
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

OnAccepted = Callable[[Channel, str, str], None]
"""Called with a channel, its peer's address and the name of the listener."""


class Acceptor(Protocol):
    @property
    def addresses(self) -> dict[str, Endpoint]:
        """Where each listener is bound, by its name."""
        ...

    def bind(self) -> None:
        """Takes the addresses, all or none; ConfigError if one cannot be had.  Accepts nobody yet."""
        ...

    def accept(self, on_accepted: OnAccepted) -> None:
        """Begins to accept."""
        ...

    def close(self) -> None: ...


class SocketAcceptor:
    """Listens on TCP."""

    def __init__(self, listeners: Sequence[Listener], loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._listeners = listeners
        self._loop = loop
        self._limited_log = RateLimitedLog(logger, clock)
        self._sockets: dict[str, socket.socket] = {}
        self._resting: dict[str, asyncio.TimerHandle] = {}

    @property
    def addresses(self) -> dict[str, Endpoint]:
        return {name: Endpoint(*bound.getsockname()[:2]) for name, bound in self._sockets.items()}

    def bind(self) -> None:
        try:
            for listener in self._listeners:
                self._sockets[listener.name] = _bind(listener)
        except ConfigError:
            self.close()
            raise

    def accept(self, on_accepted: OnAccepted) -> None:
        for name, listening in self._sockets.items():
            listening.listen(BACKLOG_MAX)
            self._loop.add_reader(listening.fileno(), self._on_acceptable, name, on_accepted)

    def _on_acceptable(self, name: str, on_accepted: OnAccepted) -> None:
        listening = self._sockets[name]
        for _ in range(ACCEPTS_PER_TURN):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._rest(name, on_accepted, error)
                    return
                # The client gave up before it was accepted.
                continue
            # A client that is gone already cannot be set up; reading will say so.
            with contextlib.suppress(OSError):
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            on_accepted(SocketChannel(accepted, self._loop), str(address[0]), name)

    def _rest(self, name: str, on_accepted: OnAccepted, error: OSError) -> None:
        self._limited_log.warn("listener " + name, "cannot accept", error.strerror or str(error))
        self._loop.remove_reader(self._sockets[name].fileno())
        self._resting[name] = self._loop.call_later(REST_SECONDS, self._go_on, name, on_accepted)

    def _go_on(self, name: str, on_accepted: OnAccepted) -> None:
        del self._resting[name]
        self._loop.add_reader(self._sockets[name].fileno(), self._on_acceptable, name, on_accepted)

    def close(self) -> None:
        for timer in self._resting.values():
            timer.cancel()
        self._resting.clear()
        for listening in self._sockets.values():
            self._loop.remove_reader(listening.fileno())
            listening.close()
        self._sockets.clear()


def _bind(listener: Listener) -> socket.socket:
    family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((listener.host, listener.port))
    except OSError as error:
        bound.close()
        raise ConfigError(
            f"cannot listen on {listener}: {error.strerror or error}; choose another address in `listeners`"
        ) from error
    bound.setblocking(False)
    return bound
