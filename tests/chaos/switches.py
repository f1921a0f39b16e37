"""The switches of a faulty disk and clock: a page of a file, which the run writes and the node reads.

    offset  type    what
    0       u8      1: no room: whatever would make a file longer, or make one, gets ENOSPC
    1       u8      1: every sync gets EIO
    8       i64     milliseconds that the wall clock is ahead

A page in memory costs a node nothing to look at, and is there for its child processes too.
"""

import mmap
import os
import struct
from pathlib import Path

SWITCHES = "switches"
PAGE_BYTES = 4096
FULL_AT, SYNC_FAILS_AT, CLOCK_AT = 0, 1, 8


class Switches:
    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            path.write_bytes(bytes(PAGE_BYTES))
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._page = mmap.mmap(descriptor, PAGE_BYTES)
        finally:
            os.close(descriptor)

    @property
    def is_full(self) -> bool:
        return bool(self._page[FULL_AT])

    @is_full.setter
    def is_full(self, value: bool) -> None:
        self._page[FULL_AT] = value

    @property
    def sync_fails(self) -> bool:
        return bool(self._page[SYNC_FAILS_AT])

    @sync_fails.setter
    def sync_fails(self, value: bool) -> None:
        self._page[SYNC_FAILS_AT] = value

    @property
    def ahead_ms(self) -> int:
        (value,) = struct.unpack_from("<q", self._page, CLOCK_AT)
        assert isinstance(value, int)
        return value

    @ahead_ms.setter
    def ahead_ms(self, value: int) -> None:
        struct.pack_into("<q", self._page, CLOCK_AT, value)

    def clear(self) -> None:
        """No fault any more."""
        self._page[:] = bytes(PAGE_BYTES)

    def close(self) -> None:
        self._page.close()
