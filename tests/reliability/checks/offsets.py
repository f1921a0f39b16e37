"""An offset has one value and a value one offset, whoever tells of it, and no offset is left out."""

from collections import defaultdict
from collections.abc import Iterator

from tests.reliability.history import History, Place


def _observed(history: History) -> Iterator[tuple[Place, int, str]]:
    """Yields what acknowledgements and reads say: an acknowledgement says too what stands where."""
    for send in history.acknowledged():
        if send.offset is not None:
            yield send.place, send.offset, send.value
    for place, seen in history.read():
        yield place, seen.offset, seen.value


def inconsistent_offsets(history: History) -> Iterator[str]:
    """One offset was seen with two values."""
    values: dict[tuple[Place, int], set[str]] = defaultdict(set)
    for place, offset, value in _observed(history):
        values[place, offset].add(value)
    for (place, offset), found in values.items():
        if len(found) > 1:
            yield f"{place} at {offset}: {', '.join(sorted(found))}"


def duplicates(history: History) -> Iterator[str]:
    """One value stands at two offsets, though its producer was idempotent."""
    offsets: dict[str, set[tuple[Place, int]]] = defaultdict(set)
    for place, offset, value in _observed(history):
        offsets[value].add((place, offset))
    for value, found in offsets.items():
        if len(found) > 1:
            yield f"{value}: {', '.join(f'{place} at {offset}' for place, offset in sorted(found))}"


def offset_gaps(history: History) -> Iterator[str]:
    """The final read passed over an offset: for logs with no transactions, compaction or retention."""
    for place, records in history.final.items():
        for expected, seen in enumerate(records):
            if seen.offset != expected:
                yield f"{place}: {seen.offset} comes where {expected} should"
                break
