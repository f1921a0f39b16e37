"""A broker of this project, in a process of its own, for the tests of a module."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.system.server_process import ServerProcess


@contextmanager
def running_broker(directory: Path) -> Iterator[str]:
    """The bootstrap address."""
    settings = {"offsets.topic.num.partitions": 4, "group.initial.rebalance.delay.ms": 0}
    with ServerProcess(directory, settings) as server:
        yield server.facts["client"]
