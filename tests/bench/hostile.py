"""How much slower a good client gets while each enemy does its worst: p99 against the quiet p99 before it.

The good client (`tests/system/good_client.py`) writes a record and reads it back every few milliseconds.
Before each attack there is a quiet time of the same length, several times in turn; what counts is the median
of the ratios, since one slow disk or one busy neighbour would else decide.  The aim is at most twice the
quiet one.  A floor of 5 ms keeps the ratio of two times that are both good from meaning anything.
DLOG_BENCH_SECONDS sets how long each lasts (2), DLOG_BENCH_ROUNDS how often (5).
"""

import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from distributedlog.protocol.messages.api_versions import ApiVersionsRequest
from distributedlog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from distributedlog.records.compression import Codec
from distributedlog.records.record import Record, encode_batch
from tests.bench.figures import Figure, Rounds, at_most
from tests.bench.harness import Bench
from tests.system.enemies import (
    NOW_MS,
    PRODUCE_VERSION,
    Enemy,
    array_of_a_million,
    begun_frame,
    bomb,
    frame_of,
    noise,
    of_magic,
    produce_request,
    produced,
    raise_descriptor_limit,
    read_frame,
    with_record_count,
    with_wrong_checksum,
)
from tests.system.hostile_stage import COMPACTED, PLAIN, HostileStage, Seen
from tests.system.spike import Spike

SECONDS: Final = float(os.environ.get("DLOG_BENCH_SECONDS", "2"))
ROUNDS: Final = int(os.environ.get("DLOG_BENCH_ROUNDS", "5"))
FLOOR_MS: Final = 5.0
SATURATED: Final = "saturated"
"""There the broker has no time left for anybody: told, but held to nothing."""
METADATA: Final = 3

Attack = Callable[[Enemy, float], None]
"""Goes on until the moment it is given, by the monotonic clock."""


def left(ends: float) -> float:
    return max(0.0, ends - time.monotonic())


def again_and_again(connections: int, data: Callable[[int], bytes], pause_seconds: float = 0.05) -> Attack:
    """New connections, some hundred a second, each of which sends something and is forgotten."""

    def attack(enemy: Enemy, ends: float) -> None:
        while time.monotonic() < ends:
            made = enemy.connect(connections)
            enemy.send_each(made, data)
            time.sleep(pause_seconds)
            for each in made:
                each.close()
            enemy.sockets.clear()

    return attack


def half_open(enemy: Enemy, ends: float) -> None:
    for _ in range(19):
        enemy.connect(100)
        time.sleep(0.05)
    time.sleep(left(ends))


def refused(topic: str, batches: list[bytes | bytearray]) -> Attack:
    frames = [frame_of(produce_request(topic, batch), PRODUCE_VERSION) for batch in batches]

    def attack(enemy: Enemy, ends: float) -> None:
        (connection,) = enemy.connect()
        while time.monotonic() < ends:
            for frame in frames:
                connection.sendall(frame)
                read_frame(connection)
                time.sleep(0.005)

    return attack


def never_reads(enemy: Enemy, ends: float) -> None:
    produced(enemy, PLAIN, encode_batch([Record(bytes(900_000), timestamp_ms=NOW_MS)]))
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic=PLAIN, partitions=[partition])],
    )
    connections = enemy.connect(40)
    frame = frame_of(request, 12)
    enemy.send_what_is_taken(connections, lambda _: frame * 5_000, left(ends))
    time.sleep(left(ends))


def floods(enemy: Enemy, ends: float) -> None:
    request = ApiVersionsRequest(client_software_name="e", client_software_version="1")
    frame = frame_of(request, 3)
    enemy.send_what_is_taken(enemy.connect(20), lambda _: frame * 50_000, left(ends))


def spike(enemy: Enemy, ends: float) -> None:
    Spike(enemy, PLAIN, 40).run(left(ends))


def attacks() -> dict[str, Attack]:
    random = Random(1)
    million = array_of_a_million(METADATA, 1, b"\0\1t")
    bombs: list[bytes | bytearray] = [bomb(codec) for codec in Codec if codec is not Codec.NONE]
    lies: list[bytes | bytearray] = [with_wrong_checksum(), with_record_count(-1), of_magic(0), of_magic(1)]
    return {
        "half frames": again_and_again(20, lambda n: begun_frame(1000 + n, bytes(n % 200))),
        "lengths of 2 GB": again_and_again(20, lambda _: begun_frame(2**31 - 1, bytes(1000))),
        "random bytes": again_and_again(20, lambda _: noise(random)),
        "1,900 half-open connections": half_open,
        "40 readers that never read": never_reads,
        "arrays of a million": again_and_again(2, lambda _: million, 0.2),
        "bombs in four codecs": refused(COMPACTED, bombs),
        "wrong CRC, counts, magic": refused(PLAIN, lies),
        f"{SATURATED}, random bytes on new connections without a pause": again_and_again(
            20, lambda _: noise(random), 0.0
        ),
        f"{SATURATED}, 20 floods of small requests": floods,
        f"{SATURATED}, a spike of 40 producers that never wait": spike,
    }


def under_attack(stage: HostileStage, host: str, name: str, attack: Attack) -> list[Figure]:
    quiet, attacked = [], []
    for _ in range(ROUNDS):
        quiet.append(stage.quiet(SECONDS))
        with Enemy(stage.address, host) as enemy, stage.meanwhile(name) as seen:
            attack(enemy, time.monotonic() + SECONDS)
        attacked.append(seen)
        wait_until_calm(stage)
    for each in quiet + attacked:
        assert not each.report["failures"], each.report
    growth_mb = max(each.rss_growth_mb for each in attacked)
    return [compared(name, quiet, attacked), Figure(f"{name}: memory above that before", growth_mb, "MB")]


def run(bench: Bench) -> None:
    raise_descriptor_limit(12_000)
    with tempfile.TemporaryDirectory(prefix="dlog-bench-") as scratch, HostileStage(Path(scratch)) as stage:
        stage.quiet(1.0)
        for number, (name, attack) in enumerate(attacks().items(), 1):
            bench.case(name, partial(under_attack, stage, f"127.0.8.{number}", name, attack))


def compared(name: str, quiet: list[Seen], attacked: list[Seen]) -> Figure:
    rounds = Rounds(p99s_ms(attacked), p99s_ms(quiet))
    meanwhile, before = rounds.medians
    longest = max(each.report["max_ms"] for each in attacked)
    label = f"{name}: p99 ({before:.1f} → {meanwhile:.1f} ms, longest {longest:.0f})"
    ratio = rounds.ratio(FLOOR_MS)
    return Figure(label, ratio, "×") if name.startswith(SATURATED) else at_most(label, ratio, "×", 2.0)


def p99s_ms(seen: list[Seen]) -> list[float]:
    return [float(each.report["p99_ms"]) for each in seen]


def wait_until_calm(stage: HostileStage) -> None:
    """Until what the enemy has left is worked off: it would count against the next quiet time."""
    for _ in range(60):
        report = stage.quiet(0.5).report
        if report["p50_ms"] < 20:
            return
