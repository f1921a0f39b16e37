"""Cold pages: looked for before a large region is sent, and read in a thread where they are missing.

`sendfile` waits for the disk when a page is not in memory, and the loop with it. So the file is asked, at
one place in every STEP_BYTES, for a byte without waiting (RWF_NOWAIT); if one is not there, a thread reads
the region into the page cache, a piece at a time. A page may be evicted again before it is sent: then the
loop waits once, as it would have without this. Where the system cannot be asked, everything counts as warm.
"""

import errno
import os
from collections.abc import Callable
from typing import Final

from distributedlog.ports.executor import Executor, Outcome
from distributedlog.storage.files import FileRegion

STEP_BYTES: Final = 128 * 1024
"""What the kernel reads ahead by default: where one page of it is, the others usually are."""
READ_BYTES: Final = 1024 * 1024

_NOT_ASKABLE: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


class PageWarmer:
    """Warms pages.  It belongs to the data loop; `executor` calls back there."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._can_ask = hasattr(os, "RWF_NOWAIT")
        self.cold_regions = 0

    def warm(self, region: FileRegion, ready: Callable[[], None]) -> bool:
        """True if the pages are in memory; else `ready` is called once they are, or cannot be had."""
        if not self._can_ask or self._is_resident(region):
            return True
        self.cold_regions += 1

        def done(_: Outcome[None]) -> None:
            ready()  # what the disk did not give, sending will say

        self._executor.run_blocking(lambda: _read_through(region), done)
        return False

    def _is_resident(self, region: FileRegion) -> bool:
        try:
            descriptor = region.fileno()
        except OSError:  # a disk that is not the system's: it cannot be sent from either
            return True
        byte = bytearray(1)
        end = region.position + region.length
        for position in (*range(region.position, end, STEP_BYTES), end - 1):
            try:
                os.preadv(descriptor, [byte], position, os.RWF_NOWAIT)
            except BlockingIOError:
                return False
            except OSError as error:
                if error.errno in _NOT_ASKABLE:
                    self._can_ask = False
                return True
        return True


def _read_through(region: FileRegion) -> None:
    descriptor = region.fileno()
    end = region.position + region.length
    for position in range(region.position, end, READ_BYTES):
        if not os.pread(descriptor, min(READ_BYTES, end - position), position):
            return
