"""The first act.  The embedded log survives kill -9: writers are killed in full flight, and nothing promised
is lost.
"""

import collections
import contextlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from rich.console import Console
from rich.table import Table

from distributedlog import Log, LogConfig

KILLS = 2
APPENDS_BEFORE_KILL = 300
Ledger = dict[int, int]
"""What the writers promised: offset to order number."""

console = Console(highlight=False)


def write_until_killed(directory: str, ledger: Ledger, first_order: int) -> tuple[int, float]:
    """Runs a writer, notes its promises and kills it in the middle of its work; the next order's number."""
    writer = subprocess.Popen(
        [sys.executable, "-m", "demo.writer", directory, str(first_order)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    started = time.monotonic()
    next_order = first_order
    for count, line in enumerate(writer.stdout, start=1):
        number, start, stop = map(int, line.split())
        ledger.update((offset, number + offset - start) for offset in range(start, stop))
        next_order = number + stop - start
        if count == APPENDS_BEFORE_KILL:
            writer.send_signal(signal.SIGKILL)
            break
    seconds = time.monotonic() - started
    # A promise may have been in the pipe when the writer died: it counts too.
    for line in writer.stdout:
        with contextlib.suppress(ValueError):  # the last line may be cut off
            number, start, stop = map(int, line.split())
            ledger.update((offset, number + offset - start) for offset in range(start, stop))
            next_order = number + stop - start
    writer.stdout.close()
    writer.wait()
    return next_order + 1_000_000, seconds


def check(directory: str, ledger: Ledger) -> tuple[int, int]:
    """Reopens the log and reads it whole: (records, promised but missing or wrong)."""
    with Log.open(directory, topic="orders") as log:
        found = {record.offset: json.loads(record.value or b"{}")["order"] for record in log}
        wrong = sum(found.get(offset) != number for offset, number in ledger.items())
        gaps = log.end_offset - log.start_offset - len(found)
        return len(found), wrong + gaps


def kill_and_recover(directory: str) -> int:
    ledger: Ledger = {}
    table = Table("kill -9", "promised", "read back", "lost or wrong", "orders/s")
    failures, next_order = 0, 0
    for kill in range(1, KILLS + 1):
        before = len(ledger)
        next_order, seconds = write_until_killed(directory, ledger, next_order)
        records, wrong = check(directory, ledger)
        failures += wrong
        rate = (len(ledger) - before) / seconds
        table.add_row(f"#{kill}", f"{len(ledger):,}", f"{records:,}", str(wrong), f"{rate:,.0f}")
    console.print(table)
    return failures


def look_around(directory: str) -> None:
    """The same log by time, as Arrow, and compacted to the last order of each customer."""
    config = LogConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    with Log.open(directory, topic="orders", config=config) as log:
        last = log.read(log.end_offset - 1)[-1]
        found = log.offset_at(last.timestamp_ms)
        console.print(f"by time    the first record at {last.timestamp_ms} ms is offset {found:,}")
        rows = log.read_arrow(log.start_offset, max_bytes=64 * 1024 * 1024)
        console.print(f"as Arrow   {rows.num_rows:,} rows, columns {', '.join(rows.schema.names)}")
        before = log.size_bytes
        log.roll()
        log.compact()
        keys = collections.Counter(record.key for record in log)
        console.print(
            f"compacted  {before:,} to {log.size_bytes:,} bytes: the last order of {len(keys)} customers, "
            f"each once: {'yes' if max(keys.values()) == 1 else 'NO'}"
        )
    verify = subprocess.run(
        [sys.executable, "-m", "distributedlog.cli.main", "log", "verify", directory],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    console.print(f"verified   `dlog log verify` says: {'sound' if verify.returncode == 0 else 'NOT SOUND'}")
    if verify.returncode != 0:
        console.print(verify.stdout + verify.stderr)
        raise SystemExit(1)


def show() -> int:
    """The first act; how many promised records were lost or wrong."""
    console.print(f"A writer appends orders, each append synced to the disk, and is killed {KILLS} times.\n")
    directory = tempfile.mkdtemp(prefix="dlog-demo-")
    try:
        failures = kill_and_recover(directory)
        look_around(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return failures
