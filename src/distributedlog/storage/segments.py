"""The segments of a log, in order of their base offsets.

Every change makes new lists, so a reader that took `all()` keeps walking what was there when it began.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from distributedlog.storage.segment import Segment


class SegmentList:
    def __init__(self, segments: Iterable[Segment] = ()) -> None:
        self._segments: tuple[Segment, ...] = ()
        self._bases: list[int] = []
        self._set(segments)

    def _set(self, segments: Iterable[Segment]) -> None:
        ordered = tuple(sorted(segments, key=lambda segment: segment.base_offset))
        self._segments, self._bases = ordered, [segment.base_offset for segment in ordered]

    def all(self) -> tuple[Segment, ...]:
        return self._segments

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def sealed(self) -> tuple[Segment, ...]:
        return self._segments[:-1]

    def from_offset(self, offset: int) -> tuple[Segment, ...]:
        """The segment that holds `offset`, or would, and those after it."""
        return self._segments[max(0, bisect_right(self._bases, offset) - 1) :]

    def next_base(self, segment: Segment) -> int | None:
        """Where the segment after this one begins; None after the last."""
        slot = bisect_right(self._bases, segment.base_offset)
        return self._bases[slot] if slot < len(self._bases) else None

    def add(self, segment: Segment) -> None:
        self._set((*self._segments, segment))

    def replace(self, old: Sequence[Segment], new: Sequence[Segment]) -> None:
        gone = set(map(id, old))
        self._set([*(segment for segment in self._segments if id(segment) not in gone), *new])
