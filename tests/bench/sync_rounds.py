"""What a sync costs where many logs are synced: context switches and CPU of all threads (decision 26).

LOGS logs are appended to in turns of a loop, TURN of them in each, and each turn waits until what it appended
is synced, as acks=all does.  In memory only our own cost shows; on a disk each `fdatasync` switches, too.
"""

import asyncio
import resource
import shutil
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from distributedlog.model.config import LogConfig
from distributedlog.ports.disk import SystemDisk
from distributedlog.ports.round_executor import RoundPool
from distributedlog.records.record import Record, encode_batch
from distributedlog.storage.files import Files
from distributedlog.storage.log import PartitionLog
from distributedlog.storage.recovery import open_log
from distributedlog.storage.syncs.rounds import LogSync, SyncRounds
from tests.bench.figures import Figure, cpu_watch

LOGS: Final = 200
TURN: Final = 20
TURNS: Final = 100
ROUNDS: Final = 5
MEMORY: Final = Path("/dev/shm")
NOW_MS: Final = 1_700_000_000_000


def measure_sync_rounds() -> list[Figure]:
    """Measures on a disk, and in memory where the system has a file system there."""
    figures = _measure_in(None, "disk")
    if MEMORY.is_dir():
        figures += _measure_in(MEMORY, "memory")
    return figures


def _measure_in(parent: Path | None, where: str) -> list[Figure]:
    directory = tempfile.mkdtemp(prefix="dlog-bench-", dir=parent)
    try:
        logs = [
            open_log(Files(SystemDisk()), f"{directory}/log-{number}", LogConfig(), now_ms=NOW_MS)[0]
            for number in range(LOGS)
        ]
        runs = [asyncio.run(_run_turns(logs)) for _ in range(ROUNDS)]
        switches, seconds = (statistics.median(values) for values in zip(*runs, strict=True))
        for log in logs:
            log.abandon()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    name = f"sync of {LOGS} logs, {TURN} a turn, {where}"
    return [
        Figure(f"{name}: context switches a sync", switches, ""),
        Figure(f"{name}: CPU a sync", seconds * 1e6, "µs"),
    ]


async def _run_turns(logs: list[PartitionLog]) -> tuple[float, float]:
    """Returns context switches and CPU seconds a sync, appends included."""
    loop = asyncio.get_running_loop()

    def post(callback: Callable[[], None]) -> None:
        loop.call_soon_threadsafe(callback)

    pool = RoundPool(post)
    rounds = SyncRounds(pool, post=post)
    syncs = [LogSync(log, rounds) for log in logs]
    batch = encode_batch([Record(b"x" * 1_000, timestamp_ms=NOW_MS)])
    before = _count_switches()
    with cpu_watch() as seconds:
        for turn in range(TURNS):
            first = turn * TURN % len(logs)
            await _sync_turn(loop, logs[first : first + TURN], syncs[first : first + TURN], batch)
    pool.close()
    return (_count_switches() - before) / (TURNS * TURN), seconds() / (TURNS * TURN)


async def _sync_turn(
    loop: asyncio.AbstractEventLoop, logs: list[PartitionLog], syncs: list[LogSync], batch: bytearray
) -> None:
    done = loop.create_future()
    missing = len(logs)

    def synced(error: BaseException | None) -> None:
        nonlocal missing
        missing -= 1
        if error is not None and not done.done():
            done.set_exception(error)
        elif missing == 0 and not done.done():
            done.set_result(None)

    for log, sync in zip(logs, syncs, strict=True):
        log.append_as_leader(bytearray(batch), leader_epoch=0, now_ms=NOW_MS)
        sync.wait_for(log.end_offset, synced)
    await done


def _count_switches() -> int:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_nvcsw + used.ru_nivcsw
