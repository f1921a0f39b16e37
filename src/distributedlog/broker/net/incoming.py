"""The receiving half of a connection: from a stream of bytes to frames.

All connections receive into one scratch buffer, since nothing stays in it: 10,000 idle connections cost no
buffer.  What of it is

    a whole frame              is copied out, into a bytearray of its own
    the begin of a frame       is copied into that frame's buffer; the rest is received there straight
    less than a frame's size   is kept (at most 3 bytes) and stands in front of the next receipt

A frame's buffer is the memory that goes down to the log: it is neither copied nor reused afterwards.

A size is checked as soon as its four bytes are here.  A frame above SMALL_FRAME_BYTES_MAX gets its buffer
only when room was made for it (see `admission`); until then it `is_waiting_for_room`, and nothing may be
received.  Even then the buffer grows with what has arrived: GROWTH_BYTES first, then twice what is there.
"""

from struct import Struct as Layout
from typing import Final

from distributedlog.broker.net.admission import SMALL_FRAME_BYTES_MAX
from distributedlog.broker.net.channel import Channel
from distributedlog.model.config import KIB, MIB
from distributedlog.model.errors import MalformedMessageError

SCRATCH_BYTES: Final = 64 * KIB
GROWTH_BYTES: Final = 4 * MIB
"""Above what ordinary frames have: growing costs a copy."""

_SIZE = Layout(">i")
_size_at = _SIZE.unpack_from


class Incoming:
    __slots__ = (
        "_frame", "_frame_bytes_max", "_frame_size", "_kept", "_scratch", "failure", "filled", "was_filled",
    )  # fmt: skip

    def __init__(self, scratch: bytearray, frame_bytes_max: int) -> None:
        self._scratch = scratch
        self._frame_bytes_max = frame_bytes_max
        self._kept = b""
        self._frame: bytearray | None = None
        self._frame_size = 0
        self.filled = 0
        """Bytes of the frame under way that are here."""
        self.failure: MalformedMessageError | None = None
        """Why nothing behind the frames received so far can be read."""
        self.was_filled = False
        """The last receipt took all the room there was: more may be there."""

    @property
    def is_under_way(self) -> bool:
        """A frame is begun and not ended."""
        return self._frame is not None or bool(self._kept)

    @property
    def frame_size(self) -> int:
        """The size of the frame under way."""
        return self._frame_size

    @property
    def is_waiting_for_room(self) -> bool:
        return self._frame is not None and self._frame_size > SMALL_FRAME_BYTES_MAX >= len(self._frame)

    @property
    def may_receive_more(self) -> bool:
        """More is probably here already, and there is a place for it."""
        return self.was_filled and not self.is_waiting_for_room

    @property
    def reserved_bytes(self) -> int:
        """The room that the frame under way has got."""
        if self._frame is None or self._frame_size <= SMALL_FRAME_BYTES_MAX or self.is_waiting_for_room:
            return 0
        return self._frame_size

    def receive(self, channel: Channel) -> list[bytearray] | None:
        """The frames that are complete now; None at the end of the stream."""
        assert not self.is_waiting_for_room
        frames: list[bytearray] = []
        try:
            if self._frame is None:
                is_open = self._receive_scratch(channel, frames)
            else:
                is_open = self._receive_frame(channel, self._frame, frames)
        except BlockingIOError:
            self.was_filled = False
            return frames
        return frames if is_open else None

    def _receive_scratch(self, channel: Channel, frames: list[bytearray]) -> bool:
        kept = len(self._kept)
        if kept:
            self._scratch[:kept] = self._kept
            with memoryview(self._scratch) as view:
                count = channel.receive_into(view[kept:])
        else:
            count = channel.receive_into(self._scratch)
        if count:
            self._kept = b""
            self.was_filled = kept + count == len(self._scratch)
            self._split(kept + count, frames)
        return count > 0

    def _receive_frame(self, channel: Channel, frame: bytearray, frames: list[bytearray]) -> bool:
        with memoryview(frame) as view, view[self.filled :] as rest:
            wanted = len(rest)
            # What follows the frame goes to the scratch buffer: but only if all of the frame has its place.
            is_whole = len(frame) == self._frame_size
            count = channel.receive_into(rest, self._scratch) if is_whole else channel.receive_into(rest)
        self.was_filled = count == (wanted + len(self._scratch) if is_whole else wanted)
        self._fill(min(count, wanted), frames)
        if count > wanted:
            self._split(count - wanted, frames)
        return count > 0

    def close(self) -> None:
        """Lets go of what is here of a frame."""
        self._frame = None
        self._kept = b""

    def make_room(self) -> None:
        """Gives a frame above SMALL_FRAME_BYTES_MAX its buffer."""
        assert self._frame is not None
        self._grow(self._frame, max(GROWTH_BYTES, 2 * self.filled))

    def _fill(self, count: int, frames: list[bytearray]) -> None:
        frame = self._frame
        assert frame is not None
        self.filled += count
        if self.filled == self._frame_size:
            frames.append(frame)
            self._frame = None
            self.filled = 0
        elif self.filled == len(frame):
            self._grow(frame, 2 * self.filled)

    def _grow(self, frame: bytearray, room: int) -> None:
        self._frame = grown = bytearray(min(self._frame_size, room))
        with memoryview(frame) as view:
            grown[: self.filled] = view[: self.filled]

    def _split(self, end: int, frames: list[bytearray]) -> None:
        """Takes apart what stands in the scratch buffer up to `end`."""
        scratch = self._scratch
        position = 0
        while end - position >= 4:
            (size,) = _size_at(scratch, position)
            if not 0 <= size <= self._frame_bytes_max:
                self.failure = MalformedMessageError(
                    f"a frame claims {size} bytes; at most {self._frame_bytes_max} are allowed"
                )
                return
            position += 4
            if position + size > end:
                self._begin(size, scratch[position:end])
                return
            frames.append(scratch[position : position + size])
            position += size
        self._kept = bytes(scratch[position:end])

    def _begin(self, size: int, begin: bytearray) -> None:
        self._frame_size = size
        self.filled = len(begin)
        self._frame = begin
        if size <= SMALL_FRAME_BYTES_MAX:
            self._grow(begin, size)
