"""Key → offset of its latest record, in memory that has a bound.

A short key stands for itself.  A long one is kept as its BLAKE2b digest, which is one byte longer than any
short key, so the two cannot be mistaken for each other; that two long keys share 264 bits is not a case to
plan for.  So an entry costs about 140 bytes whatever its key, and the number of entries is the bound.

The loops over records are here, because they run for every record of the log: one pass of the kernel over
a batch makes the spans, and for each span there is one look into a dictionary.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from distributedlog.records.record import RecordSpan

SHORT_KEY_BYTES_MAX = 32
_NEVER = -1


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=SHORT_KEY_BYTES_MAX + 1).digest()


class Kept(NamedTuple):
    """Which records of a batch stay: their number, and where they lie in its records section."""

    record_count: int
    runs: list[tuple[int, int]]
    has_tombstone: bool
    tombstones_dropped: int


class OffsetMap:
    def __init__(self, keys_max: int) -> None:
        self._offsets: dict[bytes, int] = {}
        self._keys_max = keys_max

    def __len__(self) -> int:
        return len(self._offsets)

    def has_room_for(self, record_count: int) -> bool:
        """Returns whether so many new keys fit.  The first batch always does, or a run would come to
        nothing."""
        return not self._offsets or len(self._offsets) + record_count <= self._keys_max

    def note(self, spans: Sequence[RecordSpan], base_offset: int) -> None:
        """Offsets rise from call to call, so the last one stays."""
        offsets = self._offsets
        for offset_delta, _, key, _, _, _ in spans:
            if key is not None:
                if len(key) > SHORT_KEY_BYTES_MAX:
                    key = _digest(key)
                offsets[key] = base_offset + offset_delta

    def keep(self, spans: Sequence[RecordSpan], base_offset: int, drop_tombstones: bool) -> Kept:
        """Records that no later one replaces; a record without a key has no place in a compacted log."""
        newest = self._offsets.get
        runs: list[tuple[int, int]] = []
        count = tombstones_dropped = 0
        has_tombstone = False
        run_start = run_end = 0
        for offset_delta, _, key, has_value, start, end in spans:
            if key is None:
                continue
            if len(key) > SHORT_KEY_BYTES_MAX:
                key = _digest(key)
            if newest(key, _NEVER) > base_offset + offset_delta:
                continue
            if not has_value:
                if drop_tombstones:
                    tombstones_dropped += 1
                    continue
                has_tombstone = True
            count += 1
            if start != run_end:
                if run_end > run_start:
                    runs.append((run_start, run_end))
                run_start = start
            run_end = end
        if run_end > run_start:
            runs.append((run_start, run_end))
        return Kept(count, runs, has_tombstone, tombstones_dropped)
