"""A process that appends is killed; everything it was told is safe is there."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from distributedlog import Log, LogConfig

KILLS = 40 if os.environ.get("DLOG_SOAK") == "1" else 5
CONFIG = LogConfig(segment_bytes=16 * 1024, index_interval_bytes=512)

APPENDING = """
import sys
from distributedlog import Log, LogConfig
config = LogConfig(segment_bytes=16 * 1024, index_interval_bytes=512)
log = Log.open(sys.argv[1], config=config)
number = log.end_offset
while True:
    count = 1 + number % 3
    offsets = log.append_many([b"value-%012d" % (number + at) for at in range(count)])
    number += count
    print(offsets[-1], flush=True)
"""


def append_until_killed(directory: str, chance: random.Random) -> int:
    """Kills the child after a number of acknowledgements; the last offset it was heard to acknowledge."""
    child = subprocess.Popen(
        [sys.executable, "-c", APPENDING, directory],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert child.stdout is not None
    last = -1
    try:
        for _ in range(chance.randrange(1, 120)):
            last = int(child.stdout.readline())
    finally:
        child.kill()
        rest, _ = child.communicate()
    heard = [int(line) for line in rest.splitlines() if line.isdecimal()]
    return max([last, *heard[:-1]])  # the last line may be cut off in the middle of a number


@pytest.mark.timeout(300)
def test_a_killed_process_loses_nothing_it_was_told_is_safe(tmp_path: Path) -> None:
    directory = str(tmp_path / "data")
    chance = random.Random(20)
    for _ in range(KILLS):
        acknowledged = append_until_killed(directory, chance)
        with Log.open(directory, config=CONFIG, background=False) as log:
            report = log.recovery
            assert not report.was_clean
            assert report.is_sound, report
            assert log.end_offset > acknowledged
            found = [(record.offset, record.value) for record in log]
            assert found == [(offset, b"value-%012d" % offset) for offset in range(log.end_offset)]
            assert log.append(b"value-%012d" % log.end_offset) == len(found)
    with Log.open(directory, config=CONFIG, background=False) as log:
        assert log.recovery.was_clean
