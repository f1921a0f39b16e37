"""TCP between simulated processes: streams in memory with a delay, which cut links hold up and break.

    sent ──► on the way (delay, in order) ──► received        a cut link, or a loss: sent again later
                                                              cut for long: the sender gives up, and only it

Nothing is lost, doubled or reordered within a stream; it ends by a close, by a reset, or never.  A process
that is killed resets its streams; a machine that loses its power says nothing, and whoever sends to it learns
that once it is up again.  A paused process is connected to all the same: its system accepts for it.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from distributedlog.broker.net.acceptor import OnAccepted
from distributedlog.model.buffers import Buffer
from distributedlog.settings.addresses import Endpoint
from tests.simulation.loop import SimLoop
from tests.simulation.net.channel import MemoryChannel, Stream
from tests.simulation.network import SimNetwork
from tests.simulation.process import SimProcess

if TYPE_CHECKING:
    from tests.simulation.brokers.process_loop import ProcessLoop

WINDOW_BYTES = 1024 * 1024
SENT_AGAIN_US = 200_000
"""The least time after which something is sent again."""
GIVEN_UP_US = 6_000_000
LISTENER = "PLAINTEXT"


class StreamNetwork:
    """All streams of a run.  Links are cut in `SimNetwork`, for messages and streams alike."""

    def __init__(self, loop: SimLoop, network: SimNetwork, chance: random.Random) -> None:
        self.loop = loop
        self.network = network
        self.chance = chance
        self._listening: dict[tuple[str, int], SimAcceptor] = {}
        self.channels: dict[NetworkChannel, None] = {}
        """Those that are open."""
        self.segments = 0

    def delay_us(self) -> int:
        network = self.network
        span_us = network.delay_max_us - network.delay_min_us
        return network.delay_min_us + int(self.chance.random() * span_us)

    def is_lost(self, sender: int, receiver: int) -> bool:
        network = self.network
        if (sender, receiver) in network.cut:
            return True
        return network.loss > 0 and self.chance.random() < network.loss

    # --- connecting ----------------------------------------------------------------------------

    def listen(self, acceptor: "SimAcceptor") -> None:
        self._listening[acceptor.endpoint.host, acceptor.endpoint.port] = acceptor

    async def connect(
        self,
        process: SimProcess,
        loop: "ProcessLoop",
        host: str,
        port: int,
        protocol_factory: Callable[[], asyncio.BufferedProtocol],
    ) -> tuple[asyncio.Transport, asyncio.BufferedProtocol]:
        greeted: asyncio.Future[NetworkChannel] = loop.create_future()
        self.loop.call_after(self.delay_us(), self._greet, process, loop, (host, port), greeted)
        channel = await greeted
        protocol = protocol_factory()
        transport = ChannelTransport(channel, protocol)
        protocol.connection_made(transport)
        return transport, protocol

    def _greet(
        self,
        process: SimProcess,
        loop: "ProcessLoop",
        address: tuple[str, int],
        greeted: "asyncio.Future[NetworkChannel]",
    ) -> None:
        if loop.is_over or greeted.done():
            return
        acceptor = self._listening.get(address)
        there = None if acceptor is None else acceptor.process
        if there is not None and (
            self.is_lost(process.node_id, there.node_id) or self.is_lost(there.node_id, process.node_id)
        ):
            self.loop.call_after(SENT_AGAIN_US * 2, self._greet, process, loop, address, greeted)
            return
        if acceptor is None or not acceptor.is_accepting:
            self.loop.call_after(self.delay_us(), process.run, process.life, lambda: _refuse(greeted))
            return
        ours, theirs = self._pair(process, loop, acceptor)
        acceptor.process.run(acceptor.life, lambda: acceptor.take(theirs, f"node-{process.node_id}"))
        self.loop.call_after(self.delay_us(), process.run, process.life, lambda: _welcome(greeted, ours))

    def _pair(
        self, process: SimProcess, loop: "ProcessLoop", acceptor: "SimAcceptor"
    ) -> tuple["NetworkChannel", "NetworkChannel"]:
        ours = NetworkChannel(self, process, loop)
        theirs = NetworkChannel(self, acceptor.process, acceptor.loop)
        ours.link, theirs.link = Link(self, ours, theirs), Link(self, theirs, ours)
        self.channels[ours] = self.channels[theirs] = None
        return ours, theirs

    # --- ends ----------------------------------------------------------------------------------

    def process_ended(self, process: SimProcess, *, is_killed: bool) -> None:
        """Ends its streams: their other ends hear of it at once, or when they next send something."""
        for address in [each for each, acceptor in self._listening.items() if acceptor.process is process]:
            del self._listening[address]
        for channel in [each for each in self.channels if each.process is process]:
            channel.is_dead = True
            del self.channels[channel]
            if is_killed:
                channel.link.put(RESET)

    def break_some(self, share: float) -> int:
        """Resets some streams, as a middlebox does: both ends learn it."""
        chosen = [each for each in self.channels if self.chance.random() < share]
        for channel in chosen:
            channel.broken()
            channel.link.put(RESET)
        return len(chosen)


def _refuse(greeted: "asyncio.Future[NetworkChannel]") -> None:
    if not greeted.done():
        greeted.set_exception(ConnectionRefusedError(111, "Connection refused"))


def _welcome(greeted: "asyncio.Future[NetworkChannel]", channel: "NetworkChannel") -> None:
    if greeted.done():
        channel.close()
    else:
        greeted.set_result(channel)


FIN = "fin"
RESET = "reset"


class Link:
    """One direction of a stream: what is on the way."""

    def __init__(self, network: StreamNetwork, sender: "NetworkChannel", receiver: "NetworkChannel") -> None:
        self._network = network
        self._sender = sender
        self._receiver = receiver
        self._queue: deque[tuple[int, bytes | str]] = deque()
        self._last_us = 0
        self._held_us: int | None = None
        self._is_armed = False
        self.bytes = 0

    def put(self, item: bytes | str) -> None:
        loop = self._network.loop
        self._last_us = max(self._last_us, loop.now_us + self._network.delay_us())
        self._queue.append((self._last_us, item))
        if isinstance(item, bytes):
            self.bytes += len(item)
        self._arm(self._last_us)

    def _arm(self, time_us: int) -> None:
        if not self._is_armed:
            self._is_armed = True
            self._network.loop.call_at(time_us, self._pump)

    def _pump(self) -> None:
        self._is_armed = False
        network, queue, now_us = self._network, self._queue, self._network.loop.now_us
        while queue and queue[0][0] <= now_us:
            if network.is_lost(self._sender.process.node_id, self._receiver.process.node_id):
                self._hold(now_us)
                return
            self._held_us = None
            _, item = queue.popleft()
            if isinstance(item, bytes):
                self.bytes -= len(item)
            network.segments += 1
            self._receiver.arrive(item)
        if queue:
            self._arm(queue[0][0])

    def _hold(self, now_us: int) -> None:
        if self._held_us is None:
            self._held_us = now_us
        if now_us - self._held_us > GIVEN_UP_US or self._sender.is_dead:
            self._queue.clear()
            self._sender.broken()
            return
        self._arm(now_us + SENT_AGAIN_US + int(self._network.chance.random() * SENT_AGAIN_US))


class NetworkChannel(MemoryChannel):
    """One end: a channel for a server, and under `ChannelTransport` for a client."""

    link: Link

    def __init__(self, network: StreamNetwork, process: SimProcess, loop: "ProcessLoop") -> None:
        super().__init__(loop, Stream(WINDOW_BYTES), Stream(WINDOW_BYTES), None)
        self.network = network
        self.process = process
        self.is_dead = False
        """The process at this end is gone."""
        self._is_fin_sent = False

    def _send(self, data: bytes) -> int:
        """What is given to be sent leaves at once."""
        self._check_taken()
        if data:
            data = data[:WINDOW_BYTES]
            self.link.put(data)
        return len(data)

    def _arm_peer(self) -> None:
        if self._outgoing.has_ended and not self._is_fin_sent and not self._incoming.is_reset:
            self._is_fin_sent = True
            self.link.put(FIN)

    def close(self) -> None:
        super().close()
        self.network.channels.pop(self, None)

    def arrive(self, item: bytes | str) -> None:
        if self.is_dead:
            if item != RESET and self.process.is_up:
                self.link.put(RESET)  # the machine is up, and knows nothing of such a stream
            return
        if item == RESET:
            self.broken()
        elif item == FIN:
            self._incoming.has_ended = True
        elif self._is_closed:
            self.link.put(RESET)
        else:
            assert isinstance(item, bytes)
            self._incoming.data += item
        self._arm()

    def broken(self) -> None:
        """Ends the stream here."""
        self._incoming.is_reset = True
        self._incoming.data.clear()
        self.network.channels.pop(self, None)
        self._arm()


class SimAcceptor:
    """The acceptor port of one process."""

    def __init__(
        self, network: StreamNetwork, process: SimProcess, loop: "ProcessLoop", endpoint: Endpoint
    ) -> None:
        self._network = network
        self.process = process
        self.life = process.life
        self.loop = loop
        self.endpoint = endpoint
        self.addresses = {LISTENER: endpoint}
        self._on_accepted: OnAccepted | None = None

    @property
    def is_accepting(self) -> bool:
        return self._on_accepted is not None and self.process.life == self.life

    def bind(self) -> None:
        self._network.listen(self)

    def accept(self, on_accepted: OnAccepted) -> None:
        self._on_accepted = on_accepted

    def take(self, channel: NetworkChannel, host: str) -> None:
        if self._on_accepted is None:
            channel.close()
        else:
            self._on_accepted(channel, host, LISTENER)

    def close(self) -> None:
        self._on_accepted = None


class ChannelTransport(asyncio.Transport):
    """A channel under a protocol of asyncio's: the side of a client."""

    def __init__(self, channel: NetworkChannel, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__()
        self._channel = channel
        self._protocol = protocol
        self._is_closing = False
        channel.notify_readable(self._receive)

    def _receive(self) -> None:
        buffer = self._protocol.get_buffer(-1)
        try:
            count = self._channel.receive_into(buffer)  # type: ignore[arg-type]
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(error)
            return
        if count:
            self._protocol.buffer_updated(count)
        else:
            self._protocol.eof_received()
            self._lose(None)

    def _lose(self, error: OSError | None) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._channel.close()
            self._protocol.connection_lost(error)

    def writelines(self, list_of_data: Sequence[Buffer]) -> None:  # type: ignore[override]
        self.write(b"".join(list_of_data))

    def write(self, data: Buffer) -> None:
        if not self._is_closing:
            try:
                self._channel.send((data,))
            except OSError as error:
                self._channel._loop.call_soon(self._lose, error)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """All is taken at once."""

    def is_closing(self) -> bool:
        return self._is_closing

    def abort(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._channel.close()
            self._channel._loop.call_soon(self._protocol.connection_lost, None)

    close = abort
