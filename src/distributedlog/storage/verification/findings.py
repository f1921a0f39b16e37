"""What a verification says: findings, each with a place and a severity, and totals of what was read.

| severity     | what it means                                                                        |
|--------------|--------------------------------------------------------------------------------------|
| `DAMAGE`     | bytes that were sound once and are so no longer, or files that contradict each other; |
|              | opening the log does not bring them back                                             |
| `REPAIRABLE` | what a crash leaves, or a derived file that is wrong: opening the log, or rebuilding  |
|              | its indexes, puts it right, and no synced record is lost                             |
| `NOTE`       | worth knowing, and right as it is                                                    |

Pure data.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import Enum

NO_TIMESTAMP = -1


class Severity(Enum):
    DAMAGE = "damage"
    REPAIRABLE = "repairable"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    severity: Severity
    path: str
    message: str
    position: int | None = None
    """The byte in the file, where there is one to name."""
    offset: int | None = None
    """The first offset of the log that it concerns."""

    def __str__(self) -> str:
        place = f" at position {self.position}" if self.position is not None else ""
        offset = f" (offset {self.offset})" if self.offset is not None else ""
        return f"{self.severity.value}: {self.path}{place}{offset}: {self.message}"


@dataclass(slots=True)
class Totals:
    """What was read of one log, or of many added up."""

    segments: int = 0
    bytes: int = 0
    batches: int = 0
    records: int = 0
    index_entries: int = 0
    snapshots: int = 0
    first_offset: int = -1
    """The base offset of the first batch; -1 if there is none."""
    end_offset: int = -1
    """One past the last batch's last; -1 if there is none."""
    oldest_timestamp: int = NO_TIMESTAMP
    newest_timestamp: int = NO_TIMESTAMP

    def add(self, other: "Totals") -> None:
        """Counts are summed and the time span widened; offsets of different logs cannot be."""
        for field in fields(self)[:6]:
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))
        self.widen(other.oldest_timestamp)
        self.widen(other.newest_timestamp)

    def widen(self, timestamp: int) -> None:
        if timestamp < 0:
            return
        if self.oldest_timestamp < 0 or timestamp < self.oldest_timestamp:
            self.oldest_timestamp = timestamp
        self.newest_timestamp = max(self.newest_timestamp, timestamp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What is known of a log from outside of its directory.  The defaults are for one that stands alone."""

    recovery_point: int = 0
    """Everything below was synced."""
    start_offset: int | None = None
    """Where readers may begin; None if nobody knows."""
    high_watermark: int | None = None
    was_clean: bool = False
    """The last owner closed the log."""
    is_live: bool = False
    """Another process has the log open: what it has not written out yet is not missing."""
    was_compacted: bool | None = None
    """Whether compaction may have left gaps between offsets; None if nobody knows."""


Progress = Callable[[int], None]
"""Called with the number of bytes read since the last call."""


def no_progress(_: int) -> None:
    return None
