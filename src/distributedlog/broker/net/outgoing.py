"""The sending half of a connection: the parts of responses, in order, until the channel has taken them.

    bytes                         gathered with their neighbours into one call
    a region below SENDFILE_MIN   read, and then as bytes: one gathered write is cheaper than two calls
    a larger region               sent from its file: its bytes never come into the process.  Where the file
                                  or the channel cannot do that, read and sent

Small regions are read only when their turn to be sent has come, so that a queue of responses holds few bytes.

The queue owns its regions: each is closed exactly once, when its bytes are sent or when the queue is closed.
A region whose file was truncated meanwhile raises; part of a response may be sent by then, so all that is
left to do is to close the connection.

One call sends at most about as much as it is told, TURN_BYTES if its connection is the only one with so much
to send, so that clients that read as fast as we write hold up nobody.  What is then left of little size goes
with it: the last bytes of a response behind a large region would else cost another turn of the loop.

Pages that are not in memory would make `sendfile` wait for the disk, and the loop with it.  A `Warmer`, if
there is one, is asked before a large region is begun; it may have its pages read in a thread first.
"""

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Final, Protocol, cast

from distributedlog.broker.net.channel import Channel
from distributedlog.model.buffers import Buffer
from distributedlog.model.config import KIB, MIB
from distributedlog.model.errors import CorruptLogError
from distributedlog.protocol.codec import Part
from distributedlog.protocol.schema import Struct
from distributedlog.storage.files import FileRegion

SENDFILE_MIN: Final = 64 * KIB
TURN_BYTES: Final = 1 * MIB
TURN_BYTES_MIN: Final = 64 * KIB
TAIL_BYTES_MAX: Final = 1 * KIB
GATHERED_PARTS_MAX: Final = 256

Queued = Buffer | FileRegion


class Warmer(Protocol):
    def warm(self, region: FileRegion, ready: Callable[[], None]) -> bool:
        """True if the pages are in memory.  Else they are brought there, and `ready` is called on the loop,
        exactly once and not from within this call, after which the region is touched no more."""
        ...


class Sent(Enum):
    ALL = 0
    BLOCKED = 1
    """The channel takes no more for now."""
    TURN_OVER = 2
    """It would take more, but others are waiting."""
    WARMING = 3
    """A region's pages are on their way; `ready` comes."""


class Outgoing:
    __slots__ = (
        "_channel", "_closed", "_on_warm", "_parts", "_region_sent", "_warm", "_warmer", "_warming",
        "queued_bytes", "sent_bytes",
    )  # fmt: skip

    def __init__(
        self, channel: Channel, warmer: Warmer | None = None, on_warm: Callable[[], None] | None = None
    ) -> None:
        self._channel = channel
        self._parts: deque[Queued] = deque()
        self._region_sent = 0
        """Bytes of the region in front that are sent."""
        self._closed = False
        self._warmer = warmer
        self._on_warm = on_warm
        self._warming: FileRegion | None = None
        self._warm: FileRegion | None = None
        self.queued_bytes = 0
        self.sent_bytes = 0
        """The sum of all bytes ever sent."""

    def add(self, parts: Iterable[Part]) -> None:
        for part in parts:
            self._parts.append(cast(Queued, part))
            self.queued_bytes += len(part)

    def send(self, turn_bytes: int = TURN_BYTES) -> Sent:
        """Sends what the channel takes.  Raises OSError if it is broken, DlogError if a region is."""
        turn_end = self.sent_bytes + turn_bytes
        parts = self._parts
        while parts:
            if self._warming is not None:
                return Sent.WARMING
            if self.sent_bytes >= turn_end and self.queued_bytes > TAIL_BYTES_MAX:
                return Sent.TURN_OVER
            first = parts[0]
            try:
                if isinstance(first, FileRegion):
                    self._send_region(first, turn_bytes)
                elif len(parts) == 1:
                    self._took(self._channel.send((_begin_of(first, turn_bytes),)))
                else:
                    self._send_gathered(turn_bytes)
            except BlockingIOError:
                return Sent.BLOCKED
        return Sent.ALL

    def _took(self, count: int) -> None:
        """The channel took so many bytes of the parts in front, none of which is a region."""
        self.sent_bytes += count
        self.queued_bytes -= count
        parts = self._parts
        while count:
            part = cast(Buffer, parts[0])
            size = len(part)
            if count < size:
                parts[0] = memoryview(part)[count:]
                return
            parts.popleft()
            count -= size
        while parts and not len(parts[0]):
            # An empty part would never be taken.
            self._drop_first()

    # --- gathered writes -----------------------------------------------------------------------

    def _send_gathered(self, turn_bytes: int) -> None:
        gathered: list[Buffer] = []
        size = 0
        is_more = False
        for index, part in enumerate(itertools.islice(self._parts, GATHERED_PARTS_MAX)):
            if isinstance(part, FileRegion):
                if len(part) >= SENDFILE_MIN:
                    # The begin of the response is held back until the region follows.
                    is_more = True
                    break
                self._parts[index] = part = self._read(part)
            gathered.append(_begin_of(part, turn_bytes - size))
            size += len(part)
            if size >= turn_bytes:
                break
        self._took(self._channel.send(gathered, is_more=is_more))

    @staticmethod
    def _read(region: FileRegion) -> bytes:
        data = region.read()
        region.close()
        return data

    # --- regions -------------------------------------------------------------------------------

    def _send_region(self, region: FileRegion, turn_bytes: int) -> None:
        size = len(region)
        if size < SENDFILE_MIN and not self._region_sent:
            self._parts[0] = self._read(region)
            if not size:
                self._drop_first()
            return
        if not self._warm_up(region):
            return
        count = self._send_file(region, min(size - self._region_sent, turn_bytes))
        if count is None:
            self._parts[0] = memoryview(self._read(region))[self._region_sent :]
            self._region_sent = 0
            return
        self._region_sent += count
        self.sent_bytes += count
        self.queued_bytes -= count
        if self._region_sent == size:
            region.check_unchanged()
            self._drop_first()

    def _send_file(self, region: FileRegion, count: int) -> int | None:
        """How many bytes were taken; None if this region cannot be sent so."""
        try:
            descriptor = region.fileno()
        except OSError:
            return None
        sent = self._channel.send_file(descriptor, region.position + self._region_sent, count)
        if sent == 0:
            region.check_unchanged()
            raise CorruptLogError("a log file ends inside what was written to it")
        return sent

    def _drop_first(self) -> None:
        part = self._parts.popleft()
        if isinstance(part, FileRegion):
            self._region_sent = 0
            part.close()

    def _warm_up(self, region: FileRegion) -> bool:
        """Returns True if the region is in memory; else has it read, and `_warmed` called then."""
        if self._warmer is None or self._warm is region:
            return True
        self._warm = region
        if self._warmer.warm(region, self._warmed):
            return True
        self._warming = region
        return False

    def _warmed(self) -> None:
        region, self._warming = self._warming, None
        if self._closed and region is not None:
            region.close()
        elif self._on_warm is not None:
            self._on_warm()

    def close(self) -> None:
        self._closed = True
        self._on_warm = None
        self.queued_bytes = 0
        while self._parts:
            part = self._parts.popleft()
            # A thread may be reading the one that is being warmed: it is closed when that has ended.
            if isinstance(part, FileRegion) and part is not self._warming:
                part.close()


def _begin_of(part: Buffer, bytes_max: int) -> Buffer:
    return part if len(part) <= bytes_max else memoryview(part)[:bytes_max]


def close_regions(message: Struct) -> None:
    """Closes the regions of a response that is not sent after all."""
    for region in _regions_within(message):
        region.close()


def _regions_within(value: object) -> Iterator[FileRegion]:
    if isinstance(value, FileRegion):
        yield value
    elif isinstance(value, Struct):
        for each in value.fields:
            yield from _regions_within(getattr(value, each.name, None))
    elif isinstance(value, list):
        for item in value:
            yield from _regions_within(item)
