"""Log lines about what peers do wrong, so written that no peer can fill the disk with them.

A peer address is warned about once in a while for each kind of thing; what comes in between is counted,
and the next line says how often.  How many are remembered is bounded: the least recently seen is forgotten.
Who has many addresses gets no more lines for them than LINES_MAX in INTERVAL_MS; what is left out then is
counted as well, and the first line after it says how many.
"""

import logging
from collections import OrderedDict
from typing import Final

from distributedlog.ports.clock import Clock

INTERVAL_MS: Final = 60_000
REMEMBERED_MAX: Final = 1_000
LINES_MAX: Final = 200
REASON_LENGTH_MAX: Final = 300


class RateLimitedLog:
    def __init__(self, logger: logging.Logger, clock: Clock) -> None:
        self._logger = logger
        self._clock = clock
        self._seen: OrderedDict[tuple[str, str], tuple[int, int]] = OrderedDict()
        """When a (host, kind) may be logged again, and how often it was not logged."""
        self._span_ends_ms = 0
        self._lines = 0
        """How many lines were logged in the span that ends then."""
        self._left_out = 0
        """How many lines were not logged since the last one."""

    def warn(self, host: str, kind: str, reason: str) -> bool:
        """Logs it, unless there are too many; returns whether it did.  `kind` is one of a few fixed words;
        `reason` says what it was this time."""
        now_ms = self._clock.monotonic_ms()
        key = host, kind
        again_ms, untold = self._seen.pop(key, (now_ms, 0))
        if now_ms < again_ms:
            self._seen[key] = again_ms, untold + 1
            return False
        if not self._take_line(now_ms):
            self._left_out += 1
            return False
        self._seen[key] = now_ms + INTERVAL_MS, 0
        if len(self._seen) > REMEMBERED_MAX:
            self._seen.popitem(last=False)
        before = f" ({untold} more of the kind since the last time)" if untold else ""
        if self._left_out:
            before += f" ({self._left_out} lines about other addresses were left out)"
            self._left_out = 0
        self._logger.warning("%s: %s: %s%s", host, kind, reason[:REASON_LENGTH_MAX], before)
        return True

    def _take_line(self, now_ms: int) -> bool:
        """Counts a line; False if there were too many in this span of time."""
        if now_ms >= self._span_ends_ms:
            self._span_ends_ms = now_ms + INTERVAL_MS
            self._lines = 0
        self._lines += 1
        return self._lines <= LINES_MAX
