"""TCP ports that are kept for processes which are yet to be started.

A port that was only found free may be gone when it is used.  So it is bound here and stays bound, but is not
listened on: then the system gives it to nobody who asks for any free port, nor to another of us, who asks for
it alone; while a server that sets SO_REUSEADDR, as servers do, may bind and listen on it.

Free ports are taken from below those that the system gives to outgoing connections, since they are written
down and wanted again after a restart, when any of those might be in use.
"""

import errno
import os
import socket
from collections.abc import Iterable
from typing import Final

from distributedlog.model.errors import StorageError

LOOPBACK: Final = "127.0.0.1"
FREE_PORTS: Final = range(15_000, 32_000)
ATTEMPTS_MAX: Final = 1_000


class PortInUseError(StorageError):
    """Another program listens there."""


class PortReservations:
    """Bound sockets; a context manager that lets go of them."""

    def __init__(self) -> None:
        self._sockets: dict[int, socket.socket] = {}

    def reserve(self, port: int, purpose: str, advice: str) -> None:
        """A port that is wanted; PortInUseError if another has it."""
        if port in self._sockets:
            raise PortInUseError(f"port {port} for {purpose} is used twice; {advice}")
        bound = _bind(port, shared=True)
        if bound is None:
            raise PortInUseError(f"port {port} for {purpose} is in use by another program; {advice}")
        self._sockets[port] = bound

    def reserve_free(self, avoid: Iterable[int] = ()) -> int:
        """Any port that nobody has."""
        avoided = set(avoid) | self._sockets.keys()
        for _ in range(ATTEMPTS_MAX):
            port = FREE_PORTS[int.from_bytes(os.urandom(4)) % len(FREE_PORTS)]
            if port in avoided:
                continue
            bound = _bind(port, shared=False)
            if bound is not None:
                self._sockets[port] = bound
                return port
        raise PortInUseError(f"no free port was found between {FREE_PORTS[0]} and {FREE_PORTS[-1]}")

    def close(self) -> None:
        while self._sockets:
            self._sockets.popitem()[1].close()

    def __enter__(self) -> "PortReservations":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _bind(port: int, *, shared: bool) -> socket.socket | None:
    """Binds a port and leaves it to be listened on; `shared` also takes one on which connections of the past
    linger."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((LOOPBACK, port))
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except OSError as error:
        bound.close()
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            return None
        raise
    return bound
