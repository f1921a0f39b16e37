"""A load that saturates a broker and not its client: `python -m tests.bench.broker_load LOAD`, LOAD as JSON.

The same for every broker that speaks Kafka's protocol.  It is a process of its own, and spends as little as
it can on a request, so that the other core is the broker's:

    produce   one frame is encoded beforehand and sent again and again, `window` of them under way on each
              connection; of an answer its length and its error code are read
    consume   each connection reads its own partition from offset 0, and again from there at the end; the
              records of an answer are dropped inside the kernel (MSG_TRUNC)
    paced     single requests at a fixed rate, timed from when each was due, not from when it could be sent:
              a broker that stalls makes all that wait late

Connection n talks to partition n, to the broker that leads it.  The brokers' CPU seconds are those of their
processes, all threads.
"""

import json
import os
import select
import socket
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from struct import Struct as Layout
from typing import Final, NamedTuple

from distributedlog.client.errors import error_from
from distributedlog.protocol.codec import join_parts
from distributedlog.protocol.framing import encode_request
from distributedlog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from distributedlog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from distributedlog.records.record import Record, encode_batch

PRODUCE_VERSION: Final = 9
FETCH_VERSION: Final = 12
PARTITION_BYTES_MAX: Final = 1024 * 1024
"""What a consumer asks of one partition, unless told otherwise."""
SCRATCH_BYTES: Final = 1024 * 1024
TIMEOUT_SECONDS: Final = 30.0

_SIZE: Final = Layout(">i")
CODE: Final = Layout(">h")
_OFFSET: Final = Layout(">q")
_SOME_OFFSET: Final = 0x0102030405060708


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    kind: str
    port: int
    pid: int
    topic: str
    ports: tuple[int, ...] = ()
    """The port of the broker that leads partition n; empty where one broker leads all."""
    pids: tuple[int, ...] = ()
    """All processes of a cluster; empty where `pid` is the only one."""
    record_bytes: int
    batch_records: int = 1
    connections: int = 4
    window: int = 16
    acks: int = 1
    seconds: float = 1.0
    bytes_max: int = 400_000_000
    rate: int = 1000
    end_offset: int = 0
    """The end offset of every partition; `consume` begins anew there."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    def connect(self, partition: int) -> socket.socket:
        return connect(self.ports[partition] if self.ports else self.port)

    def cpu_seconds(self) -> float:
        return sum(map(cpu_seconds, self.pids or (self.pid,)))


class Outcome(NamedTuple):
    requests: int
    data_bytes: int
    """The bytes of record batches."""
    seconds: float
    broker_cpu_seconds: float
    p50_ms: float = 0.0
    p99_ms: float = 0.0

    @property
    def mb_per_second(self) -> float:
        return self.data_bytes / 1e6 / self.seconds

    @property
    def cpu_seconds_per_gb(self) -> float:
        return self.broker_cpu_seconds / (self.data_bytes / 1e9)

    @property
    def cpu_us_per_request(self) -> float:
        return self.broker_cpu_seconds / self.requests * 1e6


def cpu_seconds(pid: int) -> float:
    """What the process and its ended children have used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def batch_of(load: Load) -> bytes:
    value = os.urandom(load.record_bytes)
    now_ms = int(time.time() * 1000)
    return bytes(encode_batch([Record(value, timestamp_ms=now_ms)] * load.batch_records))


def produce_frame(topic: str, partition: int, batch: bytes, acks: int) -> bytes:
    data = PartitionProduceData(index=partition, records=batch)
    request = ProduceRequest(
        acks=acks, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    return join_parts(encode_request(request, PRODUCE_VERSION, 1, "bench"))


def produce_code_at(topic: str) -> int:
    """Where an answer's error code is, behind size, correlation id, tags, counts, name and index."""
    return 4 + 4 + 1 + 1 + 1 + len(topic) + 1 + 4


def connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _check(code: int) -> None:
    if code:
        raise error_from(code, "the broker refused")


# --- produce -----------------------------------------------------------------------------------


class ProduceLane:
    """One connection: identical frames out, answers counted."""

    def __init__(self, load: Load, partition: int, batch: bytes) -> None:
        frame = produce_frame(load.topic, partition, batch, load.acks)
        self.socket = load.connect(partition)
        self.socket.setblocking(False)
        self.frame_bytes = len(frame)
        # One frame more than the window, so that a slice of it never wraps around.
        self._frames = memoryview(frame * (load.window + 1))
        self._at = 0
        self.unsent = self.frame_bytes * load.window
        self.begun = load.window
        self.answered = 0
        self._code_at = produce_code_at(load.topic)
        self._buffer = bytearray(64 * 1024)
        self._held = 0

    def send(self) -> None:
        try:
            taken = self.socket.send(self._frames[self._at : self._at + self.unsent])
        except BlockingIOError:
            return
        self.unsent -= taken
        self._at = (self._at + taken) % self.frame_bytes

    def begin(self, count: int) -> None:
        self.begun += count
        self.unsent += count * self.frame_bytes

    def receive(self) -> int:
        """How many answers came."""
        buffer = self._buffer
        got = self.socket.recv_into(memoryview(buffer)[self._held :])
        assert got, "the broker hung up"
        position, end, count = 0, self._held + got, 0
        while end - position >= 4:
            after = position + 4 + _SIZE.unpack_from(buffer, position)[0]
            if after > end:
                break
            _check(CODE.unpack_from(buffer, position + self._code_at)[0])
            position = after
            count += 1
        buffer[: end - position] = buffer[position:end]
        self._held = end - position
        self.answered += count
        return count


def produce(load: Load) -> Outcome:
    batch = batch_of(load)
    lanes = {}
    events = select.epoll()
    for partition in range(load.connections):
        lane = ProduceLane(load, partition, batch)
        lanes[lane.socket.fileno()] = lane
        events.register(lane.socket.fileno(), select.EPOLLIN | select.EPOLLOUT)
    lane_requests_max = load.bytes_max // len(batch) // len(lanes)
    waiting = load.window * len(lanes)
    cpu_before, started = load.cpu_seconds(), time.perf_counter()
    while waiting:
        may_begin = time.perf_counter() - started < load.seconds
        for number, event in events.poll(TIMEOUT_SECONDS):
            lane = lanes[number]
            could_send = not lane.unsent
            if event & select.EPOLLIN:
                count = lane.receive()
                waiting -= count
                if may_begin and (more := min(count, lane_requests_max - lane.begun)) > 0:
                    lane.begin(more)
                    waiting += more
            if lane.unsent:
                lane.send()
            if could_send != (not lane.unsent):
                events.modify(number, select.EPOLLIN | (select.EPOLLOUT if lane.unsent else 0))
    seconds = time.perf_counter() - started
    requests = sum(lane.answered for lane in lanes.values())
    return Outcome(requests, requests * len(batch), seconds, load.cpu_seconds() - cpu_before)


# --- consume -----------------------------------------------------------------------------------


class ConsumeLane:
    """One connection: asks for the next megabyte, reads the head of the answer, drops the rest."""

    def __init__(self, load: Load, partition: int, batch_bytes: int) -> None:
        each = FetchPartition(
            partition=partition, fetch_offset=_SOME_OFFSET, partition_max_bytes=PARTITION_BYTES_MAX
        )
        topic = FetchTopic(topic=load.topic, partitions=[each])
        request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=50 * 1024 * 1024, topics=[topic])
        self._frame = bytearray(join_parts(encode_request(request, FETCH_VERSION, 1, "bench")))
        self._offset_at = self._frame.index(_OFFSET.pack(_SOME_OFFSET))
        self.socket = load.connect(partition)
        self._load, self._batch_bytes = load, batch_bytes
        # Behind size, correlation id, tags and throttle time.
        self._code_at = 4 + 4 + 1 + 4
        # Behind that, the session id, counts, the topic's name and the index.
        self._partition_code_at = self._code_at + 2 + 4 + 1 + 1 + len(load.topic) + 1 + 4
        # Behind that, three offsets, no transactions and the nearest replica.
        self._records_at = self._partition_code_at + 2 + 8 + 8 + 8 + 1 + 4
        self._head = bytearray(self._records_at + 4)
        self._held = 0
        self._left = 0
        self._offset = 0
        self.answered = 0
        self.data_bytes = 0

    def ask(self) -> None:
        _OFFSET.pack_into(self._frame, self._offset_at, self._offset)
        self.socket.sendall(self._frame)

    def receive(self, scratch: bytearray) -> bool:
        """Whether an answer is complete."""
        if self._held < len(self._head):
            got = self.socket.recv_into(memoryview(self._head)[self._held :])
            assert got, "the broker hung up"
            self._held += got
            if self._held < len(self._head):
                return False
            self._left = 4 + _SIZE.unpack_from(self._head)[0] - self._held
        if self._left:
            try:
                flags = socket.MSG_TRUNC | socket.MSG_DONTWAIT
                got = self.socket.recv_into(scratch, min(self._left, SCRATCH_BYTES), flags)
            except BlockingIOError:
                return False
            assert got, "the broker hung up"
            self._left -= got
        if not self._left:
            self._end_answer()
        return not self._left

    def _end_answer(self) -> None:
        head = self._head
        _check(CODE.unpack_from(head, self._code_at)[0])
        _check(CODE.unpack_from(head, self._partition_code_at)[0])
        # A length, one more than it is, in groups of seven bits, lowest first.  A cut batch does not count.
        size = shift = 0
        for byte in head[self._records_at :]:
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        batches = (size - 1) // self._batch_bytes
        assert batches > 0, "a fetch brought no batch"
        self.answered += 1
        self.data_bytes += batches * self._batch_bytes
        self._offset += batches * self._load.batch_records
        if self._offset >= self._load.end_offset:
            self._offset = 0
        self._held = 0


def consume(load: Load) -> Outcome:
    batch_bytes = len(batch_of(load))
    lanes = {}
    events = select.epoll()
    scratch = bytearray(SCRATCH_BYTES)
    for partition in range(load.connections):
        lane = ConsumeLane(load, partition, batch_bytes)
        lanes[lane.socket.fileno()] = lane
        events.register(lane.socket.fileno(), select.EPOLLIN)
    cpu_before, started = load.cpu_seconds(), time.perf_counter()
    for lane in lanes.values():
        lane.ask()
    waiting = len(lanes)
    while waiting:
        may_ask = time.perf_counter() - started < load.seconds
        for number, _ in events.poll(TIMEOUT_SECONDS):
            lane = lanes[number]
            if lane.receive(scratch):
                if may_ask:
                    lane.ask()
                else:
                    waiting -= 1
    seconds = time.perf_counter() - started
    return Outcome(
        sum(lane.answered for lane in lanes.values()),
        sum(lane.data_bytes for lane in lanes.values()),
        seconds,
        load.cpu_seconds() - cpu_before,
    )


# --- paced -------------------------------------------------------------------------------------


def paced(load: Load) -> Outcome:
    batch = batch_of(load)
    sockets = [load.connect(partition) for partition in range(load.connections)]
    frames = [produce_frame(load.topic, n, batch, load.acks) for n in range(load.connections)]
    due: dict[socket.socket, list[float]] = {each: [] for each in sockets}
    code_at = produce_code_at(load.topic)
    latencies: list[float] = []
    count, sent = int(load.rate * load.seconds), 0
    cpu_before, started = load.cpu_seconds(), time.perf_counter()
    while len(latencies) < count:
        now = time.perf_counter()
        while sent < count and (due_at := started + sent / load.rate) <= now:
            lane = sockets[sent % len(sockets)]
            lane.sendall(frames[sent % len(sockets)])
            due[lane].append(due_at)
            sent += 1
        wait = started + sent / load.rate - time.perf_counter() if sent < count else TIMEOUT_SECONDS
        for lane in select.select(sockets, [], [], max(0.0, wait))[0]:
            answers = lane.recv(SCRATCH_BYTES)
            now = time.perf_counter()
            position = 0
            while position < len(answers):
                # Answers are small and alone: one is never cut.
                _check(CODE.unpack_from(answers, position + code_at)[0])
                position += 4 + _SIZE.unpack_from(answers, position)[0]
                latencies.append(now - due[lane].pop(0))
    seconds = time.perf_counter() - started
    cpu = load.cpu_seconds() - cpu_before
    latencies.sort()
    p50, p99 = latencies[count // 2] * 1000, latencies[count * 99 // 100] * 1000
    return Outcome(count, count * len(batch), seconds, cpu, p50, p99)


KINDS: Final = {"produce": produce, "consume": consume, "paced": paced}


def main() -> None:
    load = Load(**json.loads(sys.argv[1]))
    print(json.dumps(KINDS[load.kind](load)))


if __name__ == "__main__":
    main()
