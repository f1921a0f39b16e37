"""Calls and streams between processes over the simulated network: what gRPC's connections do, and no more.

A call needs a connection.  Until there is one nothing has left, so "unreachable" is certain; after that, a
cut, a loss or a crash leaves the caller in doubt, at once if the connection is seen to break and at its
deadline if not:

    no connection yet     other side down: refused after a round trip      UnreachableError
                          cut, lost, or paused: no answer in time          UnreachableError
    request sent          lost, cut, the other process ends, no answer     RequestTimedOutError

Requests may overtake each other, but none is doubled.  A stream is in order and without gaps until it breaks,
and breaks at the first message that the network swallows; its reader notices some time later.
"""

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from distributedlog.control.contract import ControllerReply, MetadataSink
from distributedlog.controller.requests import Request
from distributedlog.model.errors import DlogError, RequestTimedOutError, UnreachableError
from distributedlog.ports.executor import Done, Outcome
from tests.simulation.loop import SimLoop
from tests.simulation.network import SimNetwork

if TYPE_CHECKING:
    from tests.simulation.control_host import ControlHost

CONNECT_US_MAX = 1_000_000
BREAK_US_MAX = 2_000_000
KEEPALIVE_MS = 700
PAUSE_MS = 100


class Wire:
    def __init__(self, loop: SimLoop, network: SimNetwork, chance: random.Random) -> None:
        self.loop = loop
        self.network = network
        self.chance = chance
        self.hosts: dict[int, ControlHost] = {}
        self._connected: dict[tuple[int, int], tuple[int, int]] = {}
        # In the order they came: a set's order would differ from one run to the next.
        self._pending: dict[int, dict[_Call, None]] = {}
        self.calls = 0
        self.cut_refuses = False
        """Whether something refuses connections in the name of those that are cut off."""

    def delay_us(self) -> int:
        network = self.network
        return network.delay_min_us + int(
            self.chance.random() * (network.delay_max_us - network.delay_min_us)
        )

    def swallows(self, sender: int, receiver: int) -> bool:
        """Whether what is sent now is lost."""
        network = self.network
        if (sender, receiver) in network.cut:
            return True
        return network.loss > 0 and self.chance.random() < network.loss / 3

    def is_cut(self, one: int, other: int) -> bool:
        cut = self.network.cut
        return (one, other) in cut or (other, one) in cut

    def try_ports(
        self, caller: "ControlHost", processes: Sequence["ControlHost"], then: Callable[[bool], None]
    ) -> None:
        """`then` is told whether the ports of these, which are the same, refuse.  Where the network is cut
        nobody answers, or something in between does and refuses, in runs that have that.  Draws nothing."""
        reached = [host for host in processes if not self.is_cut(caller.node_id, host.node_id)]
        refused = not any(host.is_up for host in reached) if reached else self.cut_refuses
        delay_us = 2 * self.network.delay_max_us if refused or reached else CONNECT_US_MAX
        self.loop.call_after(delay_us, then, refused)

    # --- connections ---------------------------------------------------------------------------

    def is_connected(self, caller: "ControlHost", callee: "ControlHost") -> bool:
        lives = self._connected.get((caller.node_id, callee.node_id))
        return lives == (caller.life, callee.life)

    def connect(self, caller: "ControlHost", callee: "ControlHost", then: Callable[[bool], None]) -> None:
        """`then` is told whether there is a connection, some time later."""
        if self.is_connected(caller, callee):
            self.loop.call_after(0, then, True)
        elif self.is_cut(caller.node_id, callee.node_id) or callee.paused:
            self.loop.call_after(self.chance.randrange(CONNECT_US_MAX), then, False)
        else:
            lives = (caller.life, callee.life)
            self.loop.call_after(2 * self.delay_us(), self._greeted, caller, callee, lives, then)

    def _greeted(
        self,
        caller: "ControlHost",
        callee: "ControlHost",
        lives: tuple[int, int],
        then: Callable[[bool], None],
    ) -> None:
        swallowed = self.swallows(caller.node_id, callee.node_id)
        lost = swallowed or self.swallows(callee.node_id, caller.node_id)
        made = not lost and callee.is_up and lives == (caller.life, callee.life)
        if made:
            self._connected[caller.node_id, callee.node_id] = lives
        then(made)

    def disconnect(self, caller: int, callee: int) -> None:
        self._connected.pop((caller, callee), None)

    def ended(self, node_id: int) -> None:
        """A process is gone: who waits for it sees its connection break, if the news gets through."""
        for call in self._pending.pop(node_id, {}):
            call.broken()

    # --- calls ---------------------------------------------------------------------------------

    def call(
        self,
        caller: "ControlHost",
        node_id: int,
        request: Request,
        timeout_ms: int,
        done: Done[ControllerReply],
    ) -> None:
        self.calls += 1
        call = _Call(self, caller, self.hosts[node_id], request, timeout_ms, done)
        self.connect(caller, self.hosts[node_id], call.connected)

    def await_end(self, call: "_Call", node_id: int) -> None:
        self._pending.setdefault(node_id, {})[call] = None

    def answered(self, call: "_Call", node_id: int) -> None:
        self._pending.get(node_id, {}).pop(call, None)


class _Call:
    def __init__(
        self,
        wire: Wire,
        caller: "ControlHost",
        callee: "ControlHost",
        request: Request,
        timeout_ms: int,
        done: Done[ControllerReply],
    ) -> None:
        self._wire = wire
        self._caller, self._caller_life = caller, caller.life
        self._callee = callee
        self._request = request
        self._timeout_ms = timeout_ms
        self._done: Done[ControllerReply] | None = done
        self._sent = False
        caller.call_at(caller.clock.monotonic_ms() + timeout_ms, self._out_of_time)

    def connected(self, made: bool) -> None:
        if self._done is None or self._caller.life != self._caller_life:
            return
        if not made:
            self._finish(UnreachableError(f"node {self._callee.node_id} cannot be reached"))
            return
        wire, caller_id, callee_id = self._wire, self._caller.node_id, self._callee.node_id
        self._sent = True
        wire.await_end(self, callee_id)
        if wire.swallows(caller_id, callee_id):
            wire.disconnect(caller_id, callee_id)
            wire.loop.call_after(wire.chance.randrange(BREAK_US_MAX), self.broken)
        else:
            wire.loop.call_after(wire.delay_us(), self._arrive, self._callee.life)

    def _arrive(self, callee_life: int) -> None:
        callee, link = self._callee, (self._caller.node_id, self._callee.node_id)
        if link not in self._wire.network.cut:
            callee.run(callee_life, lambda: callee.submit(self._request, self._timeout_ms, self._reply))

    def _reply(self, outcome: Outcome[ControllerReply]) -> None:
        wire, caller_id, callee_id = self._wire, self._caller.node_id, self._callee.node_id
        if not wire.swallows(callee_id, caller_id):
            wire.loop.call_after(wire.delay_us(), self._deliver, outcome)

    def _deliver(self, outcome: Outcome[ControllerReply]) -> None:
        if (self._callee.node_id, self._caller.node_id) not in self._wire.network.cut:
            self._tell(outcome)

    def broken(self) -> None:
        if not self._wire.is_cut(self._caller.node_id, self._callee.node_id):
            self._finish(RequestTimedOutError("the connection broke"))

    def _out_of_time(self) -> None:
        if self._sent:
            self._finish(RequestTimedOutError(f"node {self._callee.node_id} did not answer"))
        else:
            self._finish(UnreachableError(f"there was no connection to node {self._callee.node_id}"))

    def _finish(self, error: DlogError) -> None:
        self._tell(Outcome(error=error))

    def _tell(self, outcome: Outcome[ControllerReply]) -> None:
        self._wire.answered(self, self._callee.node_id)
        done, self._done = self._done, None
        if done is not None:
            self._caller.run(self._caller_life, lambda: done(outcome))


class Watching:
    """A broker that is no voter follows one voter's metadata, and another's when the stream breaks.

    Now and then it moves on by itself: a voter that is cut off from the others has no news to give.
    """

    def __init__(self, wire: Wire, reader: "ControlHost", voters: list[int]) -> None:
        self._wire = wire
        self._reader = reader
        self._voters = voters
        self._next = wire.chance.randrange(len(voters))
        self._stream: _Stream | None = None

    def start(self) -> None:
        reader, life = self._reader, self._reader.life
        self._next += 1
        source = self._wire.hosts[self._voters[self._next % len(self._voters)]]
        self._stream = None

        def connected(made: bool) -> None:
            reader.run(life, lambda: self._connected(source, made))

        self._wire.connect(reader, source, connected)

    def _connected(self, source: "ControlHost", made: bool) -> None:
        if made:
            self._stream = _Stream(self._wire, self._reader, source)
            self._stream.open(self._reader.replica.image.offset + 1)
        self._look_in(KEEPALIVE_MS if made else PAUSE_MS)

    def _look_in(self, pause_ms: int) -> None:
        self._reader.call_at(self._reader.clock.monotonic_ms() + pause_ms, self._look)

    def _look(self) -> None:
        if self._stream is not None and self._stream.is_alive and self._wire.chance.random() < 0.7:
            self._look_in(KEEPALIVE_MS)
            return
        if self._stream is not None:
            self._stream.close()
        self.start()


class _Stream:
    """Is the sink on the side of the source."""

    def __init__(self, wire: Wire, reader: "ControlHost", source: "ControlHost") -> None:
        self._wire = wire
        self._reader, self._reader_life = reader, reader.life
        self._source, self._source_life = source, source.life
        self._is_broken = False
        self._last_us = 0
        self._cancel: Callable[[], None] = lambda: None

    @property
    def is_alive(self) -> bool:
        """Whether it lives, as far as a keepalive tells."""
        reader, source = self._reader.node_id, self._source.node_id
        return (
            not self._is_broken
            and self._source.life == self._source_life
            and not self._source.paused
            and not self._wire.is_cut(reader, source)
        )

    def open(self, from_offset: int) -> None:
        def begin() -> None:
            if not self._is_broken:
                self._cancel = self._source.replica.watch(from_offset, self)

        run = self._source.run
        self._wire.loop.call_after(self._wire.delay_us(), run, self._source_life, begin)

    def close(self) -> None:
        self._is_broken = True
        self._wire.loop.call_after(
            self._wire.delay_us(), self._source.run, self._source_life, lambda: self._cancel()
        )

    # --- the sink ------------------------------------------------------------------------------

    def handle_snapshot(self, data: bytes, offset: int) -> None:
        self._push(lambda sink: sink.handle_snapshot(data, offset))

    def handle_entry(self, payload: bytes, offset: int) -> None:
        self._push(lambda sink: sink.handle_entry(payload, offset))

    def _push(self, give: Callable[[MetadataSink], None]) -> None:
        wire = self._wire
        if self._is_broken or wire.swallows(self._source.node_id, self._reader.node_id):
            self._is_broken = True
            return
        self._last_us = max(self._last_us, wire.loop.now_us + wire.delay_us())
        wire.loop.call_at(self._last_us, self._arrive, give)

    def _arrive(self, give: Callable[[MetadataSink], None]) -> None:
        if (self._source.node_id, self._reader.node_id) in self._wire.network.cut:
            self._is_broken = True
        if not self._is_broken:
            self._reader.run(self._reader_life, lambda: self._take(give))

    def _take(self, give: Callable[[MetadataSink], None]) -> None:
        give(self._reader.replica)
        self._reader.replica.publish()
