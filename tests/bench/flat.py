"""What more of everything costs: partitions, idle connections, bytes of log, and a start after a kill.

    partitions     the same saturated load on 10 partitions, of a broker that has 10 and of one with 1,000;
                   and spread over all of the 1,000, which is what the file system has to do with it
    connections    the same load with and without 1,000 connections that have asked once and are idle
    log            single fetches at random places of a log of 200 MB and of one of 20 GB
    after a kill   2,000 partitions, each with records: SIGKILL, and the time until a record is acknowledged

In turns, as medians; the disk has nothing left to do when a turn begins, and who was first is last in the
next round.  The log is really written, in batches of 64 KB: it takes a while and the room on the disk.
DLOG_BENCH_LOG_GB (20) and DLOG_BENCH_KILL_PARTITIONS (2000) make it smaller.
"""

import os
import random
import signal
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from distributedlog.client.admin.admin import NewTopic
from distributedlog.model.config import KIB
from distributedlog.protocol.messages.api_versions import ApiVersionsRequest
from distributedlog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from distributedlog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from distributedlog.records.record import Record, encode_batch
from tests.bench.broker import offer
from tests.bench.broker_load import CODE, Load, connect, produce_code_at, produce_frame
from tests.bench.control import rss_mb
from tests.bench.figures import Figure, Rounds, at_least, at_most
from tests.bench.harness import Bench
from tests.bench.topics import make_topics
from tests.system.enemies import NOW_MS, Enemy, frame_of, produce_request, raise_descriptor_limit, read_frame
from tests.system.server_process import ServerProcess

ROUNDS: Final = int(os.environ.get("DLOG_BENCH_ROUNDS", "5"))
SECONDS: Final = float(os.environ.get("DLOG_BENCH_SECONDS", "1"))
LOG_GB: Final = float(os.environ.get("DLOG_BENCH_LOG_GB", "20"))
SMALL_LOG_BYTES: Final = 200_000_000
KILL_PARTITIONS: Final = int(os.environ.get("DLOG_BENCH_KILL_PARTITIONS", "2000"))
FEW, MANY = 10, 1_000
IDLE_CONNECTIONS: Final = 1_000
BATCH_BYTES: Final = 64 * KIB
FILL_WINDOW: Final = 32
SEEKS: Final = 300
ACKNOWLEDGED_SECONDS_MAX: Final = 300.0
LANES: Final = 4
SETTINGS: Final = {"max.connections.per.ip": 4_000}


def port_of(node: ServerProcess) -> int:
    return int(node.facts["client"].rpartition(":")[2])


def pid_of(node: ServerProcess) -> int:
    assert node.process is not None
    return node.process.pid


def make_topic(node: ServerProcess, name: str, partitions: int) -> None:
    make_topics(node.facts["client"], NewTopic(name, partitions, 1))


def until_acknowledged(node: ServerProcess, topic: str, partition: int) -> None:
    batch = bytes(encode_batch([Record(b"first", timestamp_ms=NOW_MS)]))
    frame, code_at = produce_frame(topic, partition, batch, 1), produce_code_at(topic)
    give_up = time.monotonic() + ACKNOWLEDGED_SECONDS_MAX
    while time.monotonic() < give_up:
        with connect(port_of(node)) as connection:
            connection.sendall(frame)
            answer = connection.recv(4096)
        if answer and CODE.unpack_from(answer, code_at)[0] == 0:
            return
        time.sleep(0.05)
    raise AssertionError(f"{topic}-{partition} acknowledged nothing in {ACKNOWLEDGED_SECONDS_MAX} s")


def load_on(node: ServerProcess, topic: str) -> Load:
    return Load(
        kind="produce", port=port_of(node), pid=pid_of(node), topic=topic, record_bytes=1000,
        batch_records=16, connections=LANES, window=8, seconds=SECONDS,
    )  # fmt: skip


def speed(node: ServerProcess, topic: str) -> float:
    return offer(load_on(node, topic)).mb_per_second


def cost(node: ServerProcess, topic: str) -> float:
    """The broker's own CPU time for a request: what others do on the machine matters less to it."""
    return offer(load_on(node, topic)).cpu_us_per_request


def in_turns(ours: Callable[[], float], theirs: Callable[[], float]) -> Rounds:
    """What was written before is still on its way to the disk and slows down who comes next: so it is waited
    for, and nobody is always the next."""
    found = Rounds([], [])
    for number in range(ROUNDS):
        pairs = [(found.ours, ours), (found.theirs, theirs)]
        for values, contestant in reversed(pairs) if number % 2 else pairs:
            os.sync()
            values.append(contestant())
    return found


# --- partitions --------------------------------------------------------------------------------


def spread(node: ServerProcess, topic: str, partitions: int) -> float:
    """Requests a second of one connection that writes to partition after partition, eight on their way."""
    batch = bytes(encode_batch([Record(bytes(1000), timestamp_ms=NOW_MS)] * 16))
    frames = [produce_frame(topic, number, batch, 1) for number in range(partitions)]
    code_at = produce_code_at(topic)
    with connect(port_of(node)) as connection:
        for frame in frames[:8]:
            connection.sendall(frame)
        begun, ended, started = 8, 0, time.perf_counter()
        while ended < begun:
            answer = read_frame(connection)
            assert CODE.unpack_from(answer, code_at - 4)[0] == 0
            ended += 1
            if time.perf_counter() - started < SECONDS:
                connection.sendall(frames[begun % partitions])
                begun += 1
        return ended / (time.perf_counter() - started)


def of_partitions(scratch: Path) -> list[Figure]:
    with ServerProcess(scratch / "few", SETTINGS) as few, ServerProcess(scratch / "many", SETTINGS) as many:
        make_topic(few, "load", FEW)
        make_topic(many, "load", FEW)
        before_mb = rss_mb(pid_of(many))
        make_topic(many, "rest", MANY - FEW)
        time.sleep(1.0)
        after_mb = rss_mb(pid_of(many))
        for node in (few, many):
            speed(node, "load")
        speeds = in_turns(lambda: speed(many, "load"), lambda: speed(few, "load"))
        costs = in_turns(lambda: cost(many, "load"), lambda: cost(few, "load"))
        rates = in_turns(lambda: spread(many, "rest", MANY - FEW), lambda: spread(few, "load", FEW))
        for node in (few, many):
            node.stop()
    return [
        at_least(
            speeds.named(f"same load, {MANY:,} partitions against {FEW}", "MB/s"), speeds.ratio(), "×", 0.9
        ),
        Figure(costs.named("broker CPU of the same", "µs a request"), costs.ratio(), "×"),
        Figure(rates.named(f"spread over {MANY - FEW:,} against {FEW}", "requests/s"), rates.ratio(), "×"),
        Figure("memory of a partition", (after_mb - before_mb) * 1024 / (MANY - FEW), "kB"),
    ]  # fmt: skip


# --- connections -------------------------------------------------------------------------------


def of_connections(scratch: Path) -> list[Figure]:
    greeting = frame_of(ApiVersionsRequest(client_software_name="idle", client_software_version="1"), 3)
    with ServerProcess(scratch / "idle", SETTINGS) as node:
        make_topic(node, "load", FEW)
        speed(node, "load")
        before_mb = rss_mb(pid_of(node))
        each_kb = 0.0

        def with_idle() -> float:
            nonlocal each_kb
            base_mb = rss_mb(pid_of(node))
            with Enemy(node.facts["client"], "127.0.9.1") as idle:
                for connection in idle.connect(IDLE_CONNECTIONS):
                    connection.sendall(greeting)
                    read_frame(connection)
                each_kb = max(each_kb, (rss_mb(pid_of(node)) - base_mb) * 1024 / IDLE_CONNECTIONS)
                return speed(node, "load")

        speeds = in_turns(with_idle, lambda: speed(node, "load"))
        held_mb = rss_mb(pid_of(node)) - before_mb
        node.stop()
    return [
        at_least(
            speeds.named(f"{IDLE_CONNECTIONS:,} idle connections", "MB/s"), speeds.ratio(), "×", 0.95
        ),
        Figure("memory of a connection", each_kb, "kB"),
        Figure(f"held after {ROUNDS} times {IDLE_CONNECTIONS:,} came and went", held_mb, "MB"),
    ]  # fmt: skip


# --- log ---------------------------------------------------------------------------------------


def fill(node: ServerProcess, topic: str, total_bytes: float) -> int:
    """Writes batches, FILL_WINDOW of them on their way; how many."""
    batch = bytes(encode_batch([Record(bytes(BATCH_BYTES - 1000), timestamp_ms=NOW_MS)]))
    frame, code_at = produce_frame(topic, 0, batch, 1), produce_code_at(topic)
    count = int(total_bytes // BATCH_BYTES)
    with connect(port_of(node)) as connection:
        for number in range(count + FILL_WINDOW):
            if number < count:
                connection.sendall(frame)
            if number >= FILL_WINDOW:
                assert CODE.unpack_from(read_frame(connection), code_at - 4)[0] == 0
    return count


def seek(connection: socket.socket, topic: str, end_offset: int, chance: random.Random) -> float:
    """Seconds for one fetch of a little, at some offset."""
    partition = FetchPartition(partition=0, fetch_offset=chance.randrange(end_offset), partition_max_bytes=1)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=1, topics=[FetchTopic(topic=topic, partitions=[partition])]
    )
    frame = frame_of(request, 12)
    started = time.perf_counter()
    connection.sendall(frame)
    assert len(read_frame(connection)) > 1000
    return time.perf_counter() - started


def seek_time(connection: socket.socket, topic: str, chance: random.Random) -> float:
    """Seconds to find an offset by its time, which reads no records of it."""
    partition = ListOffsetsPartition(partition_index=0, timestamp=NOW_MS - chance.randrange(1000))
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
    frame = frame_of(request, 4)
    started = time.perf_counter()
    connection.sendall(frame)
    assert read_frame(connection)
    return time.perf_counter() - started


def of_log(scratch: Path) -> list[Figure]:
    with ServerProcess(scratch / "log", SETTINGS) as node:
        make_topic(node, "small", 1)
        make_topic(node, "large", 1)
        ends = {"small": fill(node, "small", SMALL_LOG_BYTES), "large": fill(node, "large", LOG_GB * 1e9)}
        chance = random.Random(1)
        with connect(port_of(node)) as connection:

            def median_us(topic: str) -> float:
                return 1e6 * statistics.median(
                    seek(connection, topic, ends[topic], chance) for _ in range(SEEKS)
                )

            def time_us(topic: str) -> float:
                return 1e6 * statistics.median(seek_time(connection, topic, chance) for _ in range(SEEKS))

            seeks = in_turns(lambda: median_us("large"), lambda: median_us("small"))
            by_time = in_turns(lambda: time_us("large"), lambda: time_us("small"))
        resident = rss_mb(pid_of(node))
        node.stop(signal.SIGKILL)
    return [
        at_most(
            seeks.named(f"a fetch at any offset, {LOG_GB:g} GB against 0.2 GB", "µs"), seeks.ratio(), "×", 1.2
        ),
        at_most(by_time.named("an offset by its time, the same", "µs"), by_time.ratio(), "×", 1.2),
        Figure(f"resident memory with {LOG_GB:g} GB of log", resident, "MB"),
    ]  # fmt: skip


# --- after a kill ------------------------------------------------------------------------------


def of_kill(scratch: Path) -> list[Figure]:
    with ServerProcess(scratch / "kill", SETTINGS) as node:
        make_topic(node, "load", KILL_PARTITIONS)
        spread_once(node, "load", KILL_PARTITIONS)
        resident = rss_mb(pid_of(node))
        node.stop(signal.SIGKILL)
        started = time.perf_counter()
        node.restart()
        ready = time.perf_counter() - started
        for partition in (0, KILL_PARTITIONS // 2, KILL_PARTITIONS - 1):
            until_acknowledged(node, "load", partition)
        seconds = time.perf_counter() - started
        node.stop(signal.SIGKILL)
    return [
        at_most(f"{KILL_PARTITIONS:,} partitions after SIGKILL: back in service", seconds, "s", 60),
        Figure(f"{KILL_PARTITIONS:,} partitions after SIGKILL: ready", ready, "s"),
        Figure(f"resident memory with {KILL_PARTITIONS:,} partitions", resident, "MB"),
    ]


def spread_once(node: ServerProcess, topic: str, partitions: int) -> None:
    """A batch into each partition, acknowledged."""
    batch = bytes(encode_batch([Record(bytes(1000), timestamp_ms=NOW_MS)] * 16))
    with connect(port_of(node)) as connection:
        for number in range(partitions):
            request = produce_request(topic, batch)
            request.topic_data[0].partition_data[0].index = number
            connection.sendall(frame_of(request, 9))
            assert read_frame(connection)


def in_scratch(measure: Callable[[Path], list[Figure]]) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="dlog-bench-") as scratch:
        return measure(Path(scratch))


def run(bench: Bench) -> None:
    raise_descriptor_limit(8_000)
    bench.case("partitions", lambda: in_scratch(of_partitions))
    bench.case("connections", lambda: in_scratch(of_connections))
    bench.case("log", lambda: in_scratch(of_log))
    bench.case("after a kill", lambda: in_scratch(of_kill))
