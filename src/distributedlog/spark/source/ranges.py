"""Which offsets a micro-batch takes, and into which tasks they are split.  Pure.

**How much.**  If there is more than the limits allow, each partition gives its share in proportion to what it
has, and none that has something is left out: so a busy partition does not starve a quiet one, nor the other
way round.  A limit in bytes becomes one in offsets by how many bytes an offset takes on average, which is
looked up in each partition where it stands.

**Whether.**  With a least number of offsets a micro-batch waits until there are so many, or until the last
one is long enough ago.

**Tasks.**  One for a partition; more if at least so many tasks are wanted, or if a task is to have at most so
many offsets.  Large partitions are split first.  The arithmetic is that of Spark's Kafka source: the same
options give the same tasks.
"""

from collections.abc import Iterable, Mapping
from math import ceil, floor
from typing import NamedTuple

from distributedlog.model.ids import TopicPartition


class Span(NamedTuple):
    """An offset range of a partition, in which the end is not included."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


# --- how much ----------------------------------------------------------------------------------


def limited(spans: Iterable[Span], offsets_max: int) -> dict[TopicPartition, int]:
    """Returns where each span ends if all together may have so many offsets.  Each that has something gets
    some."""
    spans = list(spans)
    total = sum(max(0, each.size) for each in spans)
    if total <= offsets_max:
        return {each.partition: each.end for each in spans}
    shares = {
        each.partition: max(1, offsets_max * each.size // total) if each.size > 0 else 0 for each in spans
    }
    # Those whose share was less than one offset got a whole one: the largest shares pay for it.
    excess = sum(shares.values()) - offsets_max
    for partition in sorted(shares, key=lambda each: -shares[each]):
        given_up = min(max(0, excess), shares[partition] - 1)
        if given_up <= 0:
            break
        shares[partition] -= given_up
        excess -= given_up
    return {
        each.partition: each.start + shares[each.partition] if each.size > 0 else each.end for each in spans
    }


def limited_by_bytes(
    spans: Iterable[Span], bytes_max: int, bytes_per_offset: Mapping[TopicPartition, float]
) -> dict[TopicPartition, int]:
    """The same for bytes.  A partition of which nothing is known counts as one byte an offset."""
    spans = list(spans)
    weights = {each.partition: max(1.0, bytes_per_offset.get(each.partition, 1.0)) for each in spans}
    total = sum(max(0, each.size) * weights[each.partition] for each in spans)
    if total <= bytes_max:
        return {each.partition: each.end for each in spans}
    portion = bytes_max / total
    return {
        each.partition: each.end
        if each.size <= 0
        else min(each.end, each.start + max(1, floor(each.size * portion)))
        for each in spans
    }


def is_worth_a_batch(
    spans: Iterable[Span], offsets_min: int | None, waited_ms: int, delay_ms_max: int
) -> bool:
    """Returns whether there is enough, or it has been waited for long enough."""
    if offsets_min is None or waited_ms >= delay_ms_max:
        return True
    return sum(each.size for each in spans) >= offsets_min


# --- tasks -------------------------------------------------------------------------------------


def split(
    spans: Iterable[Span], tasks_min: int | None = None, task_offsets_max: int | None = None
) -> list[Span]:
    """The spans as tasks, in their order; those without offsets have none."""
    pieces = [each for each in spans if each.size > 0]
    if task_offsets_max is not None:
        pieces = [piece for each in pieces for piece in _divided(each, ceil(each.size / task_offsets_max))]
    if tasks_min is None or tasks_min <= len(pieces):
        return pieces
    total = sum(each.size for each in pieces)
    small = [each for each in pieces if _parts(each.size, total, tasks_min) == 1]
    large_total = total - sum(each.size for each in small)
    large_tasks = max(tasks_min - len(small), 1)
    whole = {each.partition for each in small}
    return [
        piece
        for each in pieces
        for piece in _divided(
            each, 1 if each.partition in whole else _parts(each.size, large_total, large_tasks)
        )
    ]


def _parts(size: int, total: int, tasks: int) -> int:
    """Returns how many of the tasks a span of this size gets, rounded half up."""
    return max(floor(size / total * tasks + 0.5), 1)


def _divided(span: Span, parts: int) -> list[Span]:
    """Pieces whose sizes differ by one at most."""
    pieces = []
    start = span.start
    for left in range(parts, 0, -1):
        end = start + (span.end - start) // left
        if end > start:
            pieces.append(Span(span.partition, start, end))
        start = end
    return pieces
