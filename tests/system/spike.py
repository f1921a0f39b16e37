"""Producers that send faster than a broker can take: they never wait for an answer, only for their sockets.

Every record says who wrote it and which it was, so that afterwards the log itself can be asked for all that
was acknowledged.  The frames of one connection differ in a few bytes only, and are made from one.
"""

import select
import socket
import struct
import time
from dataclasses import dataclass, field
from typing import Final

from distributedlog.protocol.codec import join_parts
from distributedlog.protocol.framing import decode_response, encode_request
from distributedlog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from distributedlog.records.checksum import crc32c
from distributedlog.records.record import Record, decode_batch, encode_batch
from tests.system.enemies import NOW_MS, PRODUCE_VERSION, Enemy, frame_of, produce_request, read_frame

RECORD_BYTES: Final = 4_000
UNANSWERED_MAX: Final = 2_000
"""The bytes of one connection without a response: 8 MB, far more than it is allowed to have."""
_NAME: Final = struct.Struct(">II")
_MARK: Final = _NAME.pack(0xDEADBEEF, 0xDEADBEEF)


class Frames:
    """Produce requests with numbered records."""

    def __init__(self, topic: str, writer: int, acks: int) -> None:
        value = _MARK + b"x" * (RECORD_BYTES - _NAME.size)
        batch = bytes(encode_batch([Record(value, timestamp_ms=NOW_MS)]))
        self._frame = bytearray(frame_of(produce_request(topic, batch, acks), PRODUCE_VERSION))
        self._batch_at = self._frame.index(batch)
        self._batch_bytes = len(batch)
        self._value_at = self._frame.index(_MARK)
        self._writer = writer

    def numbered(self, number: int) -> bytes:
        frame, start = self._frame, self._batch_at
        _NAME.pack_into(frame, self._value_at, self._writer, number)
        with memoryview(frame) as view:
            struct.pack_into(">I", frame, start + 17, crc32c(view[start + 21 : start + self._batch_bytes]))
        return bytes(frame)


@dataclass
class Lane:
    socket: socket.socket
    frames: Frames
    sent: int = 0
    """Requests of which at least a byte was sent."""
    acknowledged: int = 0
    refused: int = 0
    unsent: memoryview = field(default_factory=lambda: memoryview(b""))
    received: bytearray = field(default_factory=bytearray)

    def push(self) -> None:
        """Sends until the socket takes no more."""
        while self.sent - self.acknowledged - self.refused < UNANSWERED_MAX or self.unsent:
            if not self.unsent:
                self.unsent = memoryview(self.frames.numbered(self.sent))
                self.sent += 1
            try:
                self.unsent = self.unsent[self.socket.send(self.unsent) :]
            except BlockingIOError:
                return

    def pull(self, code_at: int) -> None:
        data = self.socket.recv(1 << 16)
        assert data, "the broker hung up"
        self.received += data
        position = 0
        while len(self.received) - position >= 4:
            after = position + 4 + struct.unpack_from(">i", self.received, position)[0]
            if after > len(self.received):
                break
            if struct.unpack_from(">h", self.received, position + code_at)[0]:
                self.refused += 1
            else:
                self.acknowledged += 1
            position = after
        del self.received[:position]


class Spike:
    """Some connections from one address, all of which write to partition 0 of a topic."""

    def __init__(self, enemy: Enemy, topic: str, connections: int, *, acks: int = -1) -> None:
        # Behind size, correlation id, tags, counts, the topic's name and the index.
        self._code_at = 4 + 4 + 1 + 1 + 1 + len(topic) + 1 + 4
        self.lanes = [
            Lane(each, Frames(topic, number, acks)) for number, each in enumerate(enemy.connect(connections))
        ]
        for lane in self.lanes:
            lane.socket.setblocking(False)

    @property
    def acknowledged(self) -> int:
        return sum(lane.acknowledged for lane in self.lanes)

    @property
    def refused(self) -> int:
        return sum(lane.refused for lane in self.lanes)

    @property
    def unanswered(self) -> int:
        return sum(lane.sent for lane in self.lanes) - self.acknowledged - self.refused

    def run(self, seconds: float, drain_seconds: float = 60.0) -> None:
        """Sends for so long; then waits until all is answered."""
        ends = time.monotonic() + seconds
        gives_up = ends + drain_seconds
        events = select.epoll()
        lanes = {lane.socket.fileno(): lane for lane in self.lanes}
        for number in lanes:
            events.register(number, select.EPOLLIN | select.EPOLLOUT)
        is_sending = True
        while (is_sending or self.unanswered) and time.monotonic() < gives_up:
            if is_sending and time.monotonic() >= ends:
                is_sending = False
                for number, lane in lanes.items():
                    events.modify(number, select.EPOLLIN | (select.EPOLLOUT if lane.unsent else 0))
            for number, event in events.poll(1.0):
                lane = lanes[number]
                if event & select.EPOLLIN:
                    lane.pull(self._code_at)
                if event & select.EPOLLOUT:
                    if is_sending:
                        lane.push()
                    elif self._is_through(lane):
                        events.modify(number, select.EPOLLIN)
        events.close()

    @staticmethod
    def _is_through(lane: Lane) -> bool:
        """Ends a frame that is half sent."""
        try:
            lane.unsent = lane.unsent[lane.socket.send(lane.unsent) :]
        except BlockingIOError:
            return False
        return not lane.unsent


def written_in(connection: socket.socket, topic: str, count: int) -> list[list[int]]:
    """The numbers that stand in the log, by writer, in the order of the log; reads `count` records."""
    found: dict[int, list[int]] = {}
    offset = 0
    while offset < count:
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=8 << 20)
        request = FetchRequest(
            max_wait_ms=1000, min_bytes=1, max_bytes=8 << 20,
            topics=[FetchTopic(topic=topic, partitions=[partition])],
        )  # fmt: skip
        connection.sendall(join_parts(encode_request(request, 12, 1, "reader")))
        _, response = decode_response(FetchResponse, 12, read_frame(connection))
        answer = response.responses[0].partitions[0]
        data = bytes(memoryview(answer.records))  # type: ignore[arg-type]
        assert data, f"nothing at offset {offset} of {count}"
        at = 0
        while len(data) - at >= 12 and len(data) - at >= (
            size := 12 + struct.unpack_from(">i", data, at + 8)[0]
        ):
            (record,) = decode_batch(data[at : at + size])
            assert record.value is not None
            writer, number = _NAME.unpack_from(record.value)
            found.setdefault(writer, []).append(number)
            offset, at = record.offset + 1, at + size
    return [found.get(writer, []) for writer in range(max(found, default=-1) + 1)]
