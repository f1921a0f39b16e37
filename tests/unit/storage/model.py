"""A log as a plain list of batches, and what must follow from it.  Slow, and simple enough to be believed."""

from typing import NamedTuple

from distributedlog.records.batch import BatchHeader
from distributedlog.records.control import read_end_marker
from distributedlog.records.record import Record, decode_batch


class Stored(NamedTuple):
    """A batch as it stands in the log."""

    header: BatchHeader
    data: bytes

    def records(self) -> list[Record]:
        return decode_batch(self.data)


class Sent(NamedTuple):
    """What a producer remembers of a batch that it may have to send again."""

    first_sequence: int
    records: int
    first_offset: int
    last_offset: int


class ProducerModel:
    """What the log should know of one producer."""

    def __init__(self) -> None:
        self.epoch = -1
        self.next_sequence = 0
        self.last_five: list[Sent] = []
        self.transaction_first_offset: int | None = None

    def take(self, batch: Stored) -> None:
        header = batch.header
        if header.producer_epoch != self.epoch:
            self.epoch = header.producer_epoch
            self.next_sequence = 0
            self.last_five = []
        if header.is_control:
            self.transaction_first_offset = None
            return
        count = header.last_offset_delta + 1
        sent = Sent(header.base_sequence, count, header.base_offset, header.last_offset)
        self.last_five = [*self.last_five[-4:], sent]
        self.next_sequence = header.base_sequence + count
        if header.is_transactional and self.transaction_first_offset is None:
            self.transaction_first_offset = header.base_offset


class LogModel:
    """`history` is everything appended and not truncated; `content` the same, thinned out by compaction."""

    def __init__(self) -> None:
        self.history: list[Stored] = []
        self.content: list[Stored] = []
        self.start_offset = 0
        self.end_offset = 0
        self.synced_end = 0
        self.is_compacted = False

    # --- what happens --------------------------------------------------------------------------

    def append(self, header: BatchHeader, data: bytes) -> None:
        self.history.append(Stored(header, data))
        self.content.append(Stored(header, data))
        self.end_offset = header.next_offset

    def truncate(self, offset: int) -> None:
        """The batch that holds `offset` and all after it go; what is left is synced."""
        offset = max(offset, self.start_offset)
        if offset >= self.end_offset:
            return
        kept = [batch for batch in self.history if batch.header.next_offset <= offset]
        self.end_offset = kept[-1].header.next_offset if kept else 0
        self._forget_from(self.end_offset)
        self.synced_end = self.end_offset
        self.start_offset = min(self.start_offset, self.end_offset)

    def crash(self, recovered_end: int) -> None:
        """What was not synced may be gone, but only from some batch on."""
        assert self.synced_end <= recovered_end <= self.end_offset
        boundaries = {batch.header.next_offset for batch in self.history}
        assert recovered_end in boundaries | {self.synced_end, 0}
        self._forget_from(recovered_end)
        self.end_offset = self.synced_end = recovered_end

    def _forget_from(self, offset: int) -> None:
        self.history = [batch for batch in self.history if batch.header.base_offset < offset]
        self.content = [batch for batch in self.content if batch.header.base_offset < offset]

    # --- what must be found --------------------------------------------------------------------

    def batches_from(self, offset: int, bound: int) -> list[Stored]:
        return [
            batch
            for batch in self.content
            if batch.header.next_offset > offset and batch.header.next_offset <= bound
        ]

    def visible(self) -> list[Stored]:
        return self.batches_from(self.start_offset, self.end_offset)

    def first_at_or_after(self, timestamp_ms: int, bound: int) -> tuple[int, int] | None:
        for batch in self.visible():
            for record in batch.records():
                if record.timestamp_ms >= timestamp_ms and self.start_offset <= record.offset < bound:
                    return record.timestamp_ms, record.offset
        return None

    def newest(self) -> tuple[int, int] | None:
        records = [
            record
            for batch in self.visible()
            for record in batch.records()
            if record.offset >= self.start_offset
        ]
        if not records:
            return None
        newest = max(records, key=lambda record: (record.timestamp_ms, -record.offset))
        return newest.timestamp_ms, newest.offset

    def producers(self) -> dict[int, ProducerModel]:
        known: dict[int, ProducerModel] = {}
        for batch in self.history:
            if batch.header.producer_id >= 0:
                known.setdefault(batch.header.producer_id, ProducerModel()).take(batch)
        return known

    def aborted(self, start: int, end: int) -> list[tuple[int, int, int]]:
        """(producer, first offset, offset of the marker), in the order of the markers."""
        first_offsets: dict[int, int] = {}
        found = []
        for header, data in self.history:
            if not header.is_control:
                if header.is_transactional:
                    first_offsets.setdefault(header.producer_id, header.base_offset)
                continue
            first = first_offsets.pop(header.producer_id, None)
            if first is not None and not read_end_marker(data, 0, header).is_commit:
                found.append((header.producer_id, first, header.base_offset))
        return [entry for entry in found if entry[2] >= start and entry[1] < end]

    def committed_table(self) -> dict[bytes | None, tuple[int, bytes | None]]:
        """The newest committed record of each key."""
        ranges = self.aborted(0, self.end_offset)
        open_since = {
            producer_id: known.transaction_first_offset
            for producer_id, known in self.producers().items()
            if known.transaction_first_offset is not None
        }
        table: dict[bytes | None, tuple[int, bytes | None]] = {}
        for batch in self.content:
            header = batch.header
            since = open_since.get(header.producer_id)
            if header.is_control or (
                header.is_transactional
                and (
                    (since is not None and header.base_offset >= since)
                    or any(
                        who == header.producer_id and first <= header.base_offset <= last
                        for who, first, last in ranges
                    )
                )
            ):
                continue
            for record in batch.records():
                if record.offset >= self.start_offset:
                    table[record.key] = (record.offset, record.value)
        return table
