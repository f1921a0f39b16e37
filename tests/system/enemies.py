"""Clients that mean harm, each from an address of its own: what the log says of it is about nobody else.

All of 127.0.0.0/8 is this machine, so an enemy chooses from where it comes (`Enemy.host`).  Frames are made
by hand where the codec would not make them.
"""

import contextlib
import resource
import select
import socket
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from random import Random
from types import TracebackType
from typing import Final

from distributedlog.model.config import KIB, MIB
from distributedlog.protocol.codec import join_parts
from distributedlog.protocol.framing import decode_response, encode_request
from distributedlog.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from distributedlog.protocol.schema import Message
from distributedlog.records.batch import HEADER_BYTES, read_header
from distributedlog.records.checksum import crc32c
from distributedlog.records.compression import Codec, compress
from distributedlog.records.record import Record, encode_batch, finish_batch

TIMEOUT_SECONDS: Final = 60.0
CRC_AT: Final = 17
CHECKED_FROM: Final = 21
COUNT_AT: Final = 57
MAX_TIMESTAMP_AT: Final = 35
MAGIC_AT: Final = 16
BOMB_BYTES: Final = 40 * MIB
PRODUCE_VERSION: Final = 9
NOW_MS: Final = time.time_ns() // 1_000_000


def raise_descriptor_limit(wanted: int) -> None:
    """Raises the limit as far as one may; what is missing then shows when it is used up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))


class Enemy:
    """Some connections from one address to one broker.  A context manager: they end with it."""

    def __init__(self, address: str, host: str) -> None:
        where, _, port = address.rpartition(":")
        self._address = (where, int(port))
        self.host = host
        self.sockets: list[socket.socket] = []

    def __enter__(self) -> "Enemy":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self.sockets:
            each.close()

    def connect(self, count: int = 1) -> list[socket.socket]:
        made = []
        for _ in range(count):
            each = socket.socket()
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * KIB)
            each.settimeout(TIMEOUT_SECONDS)
            each.bind((self.host, 0))
            each.connect(self._address)
            self.sockets.append(each)
            made.append(each)
        return made

    def send_each(self, connections: Sequence[socket.socket], data: Callable[[int], bytes]) -> None:
        """What the broker cuts off meanwhile is no error: it may well."""
        for number, each in enumerate(connections):
            with contextlib.suppress(OSError):
                each.sendall(data(number))

    def send_what_is_taken(
        self, connections: Sequence[socket.socket], data: Callable[[int], bytes], seconds: float = 2.0
    ) -> None:
        """Sends as much of it as the broker reads, and its kernel holds, in so many seconds."""
        left = {each: memoryview(data(number)) for number, each in enumerate(connections)}
        give_up = time.monotonic() + seconds
        while left and (wait := give_up - time.monotonic()) > 0:
            for each in select.select((), list(left), (), wait)[1]:
                try:
                    left[each] = left[each][each.send(left[each][: 64 * KIB]) :]
                except OSError:
                    del left[each]
                else:
                    if not left[each]:
                        del left[each]

    def ask(self, request: Message, version: int, connection: socket.socket | None = None) -> bytes:
        """The answer's frame; empty if the broker hung up instead."""
        connection = connection or self.connect()[0]
        connection.sendall(frame_of(request, version))
        return read_frame(connection)


# --- what is awaited ---------------------------------------------------------------------------


def closed_by_broker(connections: Sequence[socket.socket], seconds: float = TIMEOUT_SECONDS) -> int:
    """Waits until the broker has ended all of them, or for so long; how many it has.  Answers are dropped."""
    polled = select.poll()
    waiting = {}
    for each in connections:
        each.setblocking(False)
        waiting[each.fileno()] = each
        polled.register(each.fileno(), select.POLLIN)
    ended = 0
    give_up = time.monotonic() + seconds
    while waiting and (left := give_up - time.monotonic()) > 0:
        for number, _ in polled.poll(left * 1000):
            if _has_ended(waiting[number]):
                polled.unregister(number)
                del waiting[number]
                ended += 1
    return ended


def _has_ended(connection: socket.socket) -> bool:
    try:
        while connection.recv(MIB):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def read_exactly(connection: socket.socket, count: int) -> bytes:
    """Fewer only if the broker hung up."""
    pieces = []
    while count:
        try:
            piece = connection.recv(min(count, MIB))
        except ConnectionError:
            break
        if not piece:
            break
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)


def read_frame(connection: socket.socket) -> bytes:
    size = read_exactly(connection, 4)
    return read_exactly(connection, struct.unpack(">i", size)[0]) if len(size) == 4 else b""


# --- frames ------------------------------------------------------------------------------------


def frame_of(request: Message, version: int, client_id: str = "enemy") -> bytes:
    return join_parts(encode_request(request, version, 1, client_id))


def begun_frame(size: int, begin: bytes) -> bytes:
    return struct.pack(">i", size) + begin


def noise(random: Random) -> bytes:
    """Bytes that are nothing, some of which begin like a request."""
    data = random.randbytes(random.randint(1, 2000))
    if random.random() < 0.5:
        return data
    api_key, version = random.randint(0, 80), random.randint(0, 15)
    body = struct.pack(">hhih", api_key, version, 1, 5) + b"enemy" + data
    return struct.pack(">i", len(body)) + body


def array_of_a_million(api_key: int, version: int, element: bytes) -> bytes:
    """A request whose first field is an array of 1,000,001 elements that are all there."""
    body = struct.pack(">hhih", api_key, version, 1, 5) + b"enemy"
    body += struct.pack(">i", 1_000_001) + element * 1_000_001
    return struct.pack(">i", len(body)) + body


# --- batches -----------------------------------------------------------------------------------


def sound_batch(codec: Codec = Codec.NONE, count: int = 3) -> bytearray:
    return encode_batch([Record(b"v", b"k%d" % n, timestamp_ms=NOW_MS) for n in range(count)], codec=codec)


def bomb(codec: Codec, size: int = BOMB_BYTES) -> bytearray:
    """Opens to `size`; on the wire BOMB_BYTES are below a megabyte in every codec but snappy."""
    return encode_batch([Record(bytes(size), b"k", timestamp_ms=NOW_MS)], codec=codec)


def crowd(codec: Codec, count: int) -> bytearray:
    """Very many tiny records."""
    return encode_batch([Record(None, b"k", timestamp_ms=NOW_MS)] * count, codec=codec)


def of_empty_frames(codec: Codec) -> bytearray:
    """A megabyte of frames that hold nothing, with the header of a sound batch before them."""
    frame = bytes(compress(codec, b""))
    batch = sound_batch(codec=codec)[:HEADER_BYTES] + frame * (1_000_000 // len(frame))
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    return with_right_checksum(batch)


def undecodable(codec: Codec) -> bytearray:
    """A right checksum around records that are cut off in the middle of the last one."""
    batch = sound_batch()
    return finish_batch(batch[:-3], read_header(batch)._replace(attributes=int(codec)))


def newer_by_its_header(batch: bytearray) -> bytearray:
    """Claims a newest timestamp that none of its records has."""
    struct.pack_into(">q", batch, MAX_TIMESTAMP_AT, NOW_MS + 1_000)
    return with_right_checksum(batch)


def with_right_checksum(batch: bytearray) -> bytearray:
    struct.pack_into(">I", batch, CRC_AT, crc32c(bytes(batch[CHECKED_FROM:])))
    return batch


def with_wrong_checksum() -> bytearray:
    batch = sound_batch()
    batch[CRC_AT] ^= 1
    return batch


def with_record_count(count: int) -> bytearray:
    batch = sound_batch()
    struct.pack_into(">i", batch, COUNT_AT, count)
    return with_right_checksum(batch)


def of_magic(magic: int) -> bytearray:
    """A message set as Kafka wrote it before version 0.11, which nobody has to serve any more."""
    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", NOW_MS) if magic else b"")
    body += struct.pack(">i", -1) + struct.pack(">i", 5) + b"value"
    message = struct.pack(">I", zlib.crc32(body)) + body
    return bytearray(struct.pack(">qi", 0, len(message)) + message) * 4


def produce_request(
    topic: str, batch: bytes | bytearray, acks: int = 1, partition: int = 0
) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=bytes(batch))
    return ProduceRequest(
        acks=acks, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )


def produced(
    enemy: Enemy, topic: str, batch: bytes | bytearray, partition: int = 0
) -> PartitionProduceResponse:
    """What the broker says to it."""
    frame = enemy.ask(produce_request(topic, batch, partition=partition), PRODUCE_VERSION)
    response = decode_response(ProduceResponse, PRODUCE_VERSION, frame)[1]
    return response.responses[0].partition_responses[0]


def pipelined(frame: bytes, count: int) -> Iterator[bytes]:
    """The same frame again and again, in pieces of about a megabyte."""
    each = max(1, MIB // len(frame))
    while count > 0:
        yield frame * min(each, count)
        count -= each
