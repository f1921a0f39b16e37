"""Figures about more records than can be kept, in bounded memory.  Pure.

| sketch        | keeps                                | says                                             |
|---------------|--------------------------------------|--------------------------------------------------|
| `KeySketch`   | some of the keys, chosen by hash     | how many there are; what compaction would save    |
| `HeavyKeys`   | counters of the frequent keys        | the most frequent, with at most how many missed   |
| `Quantiles`   | counts by size, 2 % apart            | median, 95 %, 99 %                               |
| `Timeline`    | counts by time, ever coarser         | the busiest interval                             |

Keys are chosen by the low bits of their hash: at level n one in 2^n is followed, all its records are, and so
what is found is multiplied by 2^n.  The level rises when there are too many.  Below that it is exact.
"""

import hashlib
import math
from collections import Counter
from typing import Final, NamedTuple

KEYS_MAX: Final = 1 << 16
HEAVY_MAX: Final = 1 << 12
STEP: Final = math.log(1.02)
TIMELINE_MAX: Final = 4096
TIMELINE_MS: Final = 1000


def hash_of(key: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big")


class KeySketch:
    def __init__(self, keys_max: int = KEYS_MAX) -> None:
        self._max = keys_max
        self._level = 0
        self._last_bytes: dict[int, int] = {}
        """The size of the newest record, by hash."""
        self._superseded_records = 0
        self._superseded_bytes = 0

    @property
    def is_exact(self) -> bool:
        return self._level == 0

    def add(self, hashed: int, size_bytes: int) -> None:
        if hashed & ((1 << self._level) - 1):
            return
        before = self._last_bytes.get(hashed)
        self._last_bytes[hashed] = size_bytes
        if before is not None:
            self._superseded_records += 1
            self._superseded_bytes += before
        elif len(self._last_bytes) > self._max:
            self._rise()

    def _rise(self) -> None:
        """One key in two is followed no longer.  What was counted of all of them is halved: so much of it, on
        the average, was of those that stay."""
        self._level += 1
        mask = (1 << self._level) - 1
        self._last_bytes = {each: size for each, size in self._last_bytes.items() if not each & mask}
        self._superseded_records //= 2
        self._superseded_bytes //= 2

    @property
    def distinct(self) -> int:
        return len(self._last_bytes) << self._level

    @property
    def superseded_records(self) -> int:
        """Those with a newer one of the same key."""
        return self._superseded_records << self._level

    @property
    def superseded_bytes(self) -> int:
        return self._superseded_bytes << self._level


class HeavyKey(NamedTuple):
    key: bytes
    records: int
    """The lower bound of the count."""


class HeavyKeys:
    """Misra and Gries: every key with more than one in `counters_max` of the records is among them."""

    def __init__(self, counters_max: int = HEAVY_MAX) -> None:
        self._max = counters_max
        self._counts: Counter[bytes] = Counter()
        self.missed_max = 0
        """The most by which a count is too low."""

    def add(self, key: bytes) -> None:
        self._counts[key] += 1
        if len(self._counts) > self._max:
            self.missed_max += 1
            self._counts = Counter({each: count - 1 for each, count in self._counts.items() if count > 1})

    def top(self, count: int) -> list[HeavyKey]:
        ranked = sorted(self._counts.items(), key=lambda each: (-each[1], each[0]))
        return [HeavyKey(*each) for each in ranked[:count]]


class Quantiles:
    """The quantiles of sizes, from 0 up; right to 2 %."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, size: int) -> None:
        self._counts[math.ceil(math.log(size + 1) / STEP)] += 1

    def at(self, share: float) -> int:
        wanted = share * sum(self._counts.values())
        passed = 0
        for bucket in sorted(self._counts):
            passed += self._counts[bucket]
            if passed >= wanted:
                return round(math.exp(bucket * STEP)) - 1
        return 0


class Busiest(NamedTuple):
    start_ms: int
    width_ms: int
    records: int


class Timeline:
    def __init__(self, buckets_max: int = TIMELINE_MAX) -> None:
        self._max = buckets_max
        self._width_ms = TIMELINE_MS
        self._counts: Counter[int] = Counter()

    def add(self, timestamp_ms: int) -> None:
        if timestamp_ms < 0:
            return
        self._counts[timestamp_ms // self._width_ms] += 1
        while len(self._counts) > self._max:
            self._width_ms *= 2
            coarser: Counter[int] = Counter()
            for bucket, count in self._counts.items():
                coarser[bucket // 2] += count
            self._counts = coarser

    @property
    def busiest(self) -> Busiest | None:
        if not self._counts:
            return None
        bucket, count = max(self._counts.items(), key=lambda each: (each[1], -each[0]))
        return Busiest(bucket * self._width_ms, self._width_ms, count)
