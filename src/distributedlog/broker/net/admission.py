"""How much the server takes on: connections, and bytes of requests that are not answered yet.

Connections are counted in all and per address; one too many is closed as soon as it is accepted.

Bytes are held back by not reading.  The rules are such that the broker's memory is bounded and that nobody
waits for somebody who waits for him (a delayed `acks=all` needs the followers' fetches to come through):

    a request on a connection with none unanswered   is taken, up to SMALL_FRAME_BYTES_MAX
    the next requests on the same connection         are read only while the broker is below its limit
    a larger frame that is only partly here          gets memory once all of its size fits below the limit and
                                                     into the share of it that its address has

So a frame that got its memory needs nothing more to be completed, and the sum of what is held is at most the
limit, plus one small frame for each connection.

A claim costs four bytes and takes room for a hundred million.  Therefore the share: the claims of an address
that fill it wait in a line of their own, and nothing else does.  Within the share it is first come first
served, and the lines come in turn; one that waits for room that is nobody's share holds back all behind it,
so that large frames are not overtaken for ever.

Responses that clients have not taken are counted in the same way: beyond the limit in all of them, a request
is begun only on a connection that has taken all of its own.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from distributedlog.model.config import KIB, MIB, MINUTE_MS, SECOND_MS
from distributedlog.settings.node_settings import NodeSettings

SMALL_FRAME_BYTES_MAX: Final = 64 * KIB
NEVER_MS: Final = 2**62
UNANSWERED_MAX: Final = 1024
"""Requests of one connection, however small."""
SHARE: Final = 4
"""An address may hold one part in so many of the room for frames, and at least one frame."""
BYTES_PER_SECOND_MIN: Final = 1 * KIB
"""Who sends a frame or takes a response more slowly than this, after a time of grace, is cut off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    frame_bytes_max: int = 100 * MIB
    connections_max: int = 10_000
    connections_per_host_max: int = 2_000
    in_flight_bytes_per_connection_max: int = 64 * MIB
    in_flight_bytes_max: int = 512 * MIB
    response_bytes_per_connection_max: int = 64 * MIB
    """Responses that the client has not taken; beyond them nothing more is read from it."""
    response_bytes_max: int = 512 * MIB
    """Responses that no client has taken, in all."""
    idle_ms_max: int = 10 * MINUTE_MS
    setup_ms_max: int = 30 * SECOND_MS
    """Time until the first whole request is here; also the time of grace for a frame that is begun."""
    stalled_ms_max: int = 30 * SECOND_MS
    """The time of grace for a client that does not take its responses."""
    request_ms_max: int = 30 * SECOND_MS
    tick_ms: int = 500
    """How exactly times are kept."""

    @classmethod
    def of(cls, settings: NodeSettings) -> "ServerLimits":
        # One that needs more of the room might wait for ever: some of it is always in use.
        room_bytes = max(SMALL_FRAME_BYTES_MAX, settings.queued_bytes_max // 2)
        return cls(
            frame_bytes_max=min(settings.socket_request_bytes_max, room_bytes),
            connections_max=settings.connections_max,
            connections_per_host_max=settings.connections_per_ip_max,
            in_flight_bytes_per_connection_max=settings.queued_bytes_per_connection_max,
            in_flight_bytes_max=settings.queued_bytes_max,
            response_bytes_per_connection_max=settings.queued_bytes_per_connection_max,
            response_bytes_max=settings.queued_bytes_max,
            idle_ms_max=settings.connections_idle_ms_max,
            setup_ms_max=settings.connection_setup_timeout_ms,
            stalled_ms_max=settings.request_timeout_ms,
            request_ms_max=settings.request_timeout_ms,
        )


class Waiter(Protocol):
    peer_host: str

    def room_made(self, reserved_bytes: int) -> None:
        """So many bytes, as many as it waited for, are its own now."""
        ...


Line = OrderedDict[Waiter, int]
"""Who waits, for how many bytes: none if only for the broker to come below its limit."""


class Admission:
    def __init__(self, limits: ServerLimits, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._limits = limits
        self._call_soon = call_soon
        self._per_host: dict[str, int] = {}
        self._lines: OrderedDict[tuple[str, bool], Line] = OrderedDict()
        """The claims of each address, and who only waits to go on; the first is the next whose turn it is."""
        self._is_held_back = False
        """Somebody waits for room that is not in the way of his own address only."""
        self._reserved_bytes: dict[str, int] = {}
        self._wakes_soon = False
        self.connections = 0
        self.in_flight_bytes = 0
        self.untaken_bytes = 0
        """Bytes of responses, as each connection last counted them."""

    # --- connections ---------------------------------------------------------------------------

    def find_excess(self, host: str) -> str | None:
        """Why one more connection from there cannot be had; None if it can."""
        if self.connections >= self._limits.connections_max:
            return f"{self.connections} connections are open (max.connections)"
        of_host = self._per_host.get(host, 0)
        if of_host >= self._limits.connections_per_host_max:
            return f"it has {of_host} connections open (max.connections.per.ip)"
        return None

    def enter(self, host: str) -> None:
        self.connections += 1
        self._per_host[host] = self._per_host.get(host, 0) + 1

    def leave(self, host: str) -> None:
        self.connections -= 1
        self._per_host[host] -= 1
        if not self._per_host[host]:
            del self._per_host[host]

    # --- bytes ---------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        return self.in_flight_bytes >= self._limits.in_flight_bytes_max

    def is_backed_up(self, more_bytes: int) -> bool:
        """Too much was answered and is not taken; `more_bytes` of it are not counted yet."""
        return self.untaken_bytes + more_bytes >= self._limits.response_bytes_max

    def charge(self, count: int) -> None:
        """Counts what is here already."""
        self.in_flight_bytes += count

    def release(self, count: int) -> None:
        """Gives back what was charged."""
        self.in_flight_bytes -= count
        assert self.in_flight_bytes >= 0
        self._wake_soon()

    def reserve(self, count: int, waiter: Waiter) -> bool:
        """Takes room for `count` bytes; or else calls `room_made` once it is taken."""
        host = waiter.peer_host
        if (host, True) not in self._lines and self._is_within_share(host, count):
            if not self._is_held_back and self._fits(count):
                self._take(host, count)
                return True
            self._is_held_back = True
        self._lines.setdefault((host, True), OrderedDict())[waiter] = count
        return False

    def unreserve(self, host: str, count: int) -> None:
        """Gives back what was reserved for frames from there."""
        if not count:
            return
        self._reserved_bytes[host] -= count
        assert self._reserved_bytes[host] >= 0
        if not self._reserved_bytes[host]:
            del self._reserved_bytes[host]
        self.release(count)

    def wait(self, waiter: Waiter) -> None:
        """Calls `room_made` once the broker is below its limit."""
        self._lines.setdefault((waiter.peer_host, False), OrderedDict())[waiter] = 0
        self._is_held_back = True

    def forget(self, waiter: Waiter) -> None:
        for name in ((waiter.peer_host, True), (waiter.peer_host, False)):
            line = self._lines.get(name)
            if line is not None and line.pop(waiter, None) is not None:
                if not line:
                    del self._lines[name]
                self._wake_soon()

    def _fits(self, count: int) -> bool:
        if not count:
            return not self.is_full
        return self.in_flight_bytes + count <= self._limits.in_flight_bytes_max

    def _is_within_share(self, host: str, count: int) -> bool:
        held = self._reserved_bytes.get(host, 0)
        return not count or not held or held + count <= self._limits.in_flight_bytes_max // SHARE

    def _take(self, host: str, count: int) -> None:
        self.in_flight_bytes += count
        if count:
            self._reserved_bytes[host] = self._reserved_bytes.get(host, 0) + count

    def _wake_soon(self) -> None:
        if (self._lines or self._is_held_back) and not self._wakes_soon:
            # Not at once: it would handle one connection's requests in the midst of another's.
            self._wakes_soon = True
            self._call_soon(self._wake)

    def _wake(self) -> None:
        self._wakes_soon = False
        self._is_held_back = False
        full_shares = 0
        while len(self._lines) > full_shares:
            name, line = next(iter(self._lines.items()))
            waiter, count = next(iter(line.items()))
            host = waiter.peer_host
            if not self._is_within_share(host, count):
                full_shares += 1
            elif self._fits(count):
                full_shares = 0
                del line[waiter]
                self._take(host, count)
                waiter.room_made(count)
            else:
                self._is_held_back = True
                return
            if line:
                self._lines.move_to_end(name)
            else:
                del self._lines[name]
