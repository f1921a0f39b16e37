"""Positions, fetch requests, and the records in the responses.  Pure.

A position is the offset of the next record of a partition.  `prepare` makes a request for some partitions
of one leader and remembers where they stood; `take` takes the response and moves them on, by the headers of
the batches alone; `open` gives the records.  So the next request can leave before anything of the last
response is checked, decompressed or decoded.

    prepare --> request ~~> response --> take: Arrived --+--> prepare the next
                                                         +--> open: Fetched

A response for a partition that was moved or dropped meanwhile is ignored.  What shows when batches are opened
moves the position back: to the first unsound one, as if what came had ended before it.  By then a request may
be under way from behind it; its response is for where the partition is no more.

What comes is a run of whole batches, the last of which may be cut off.  The first may begin before the
position: its earlier records were not asked for.  Control batches, and with read committed the batches of
aborted transactions, are passed over, and the position with them: it always moves to the end of a batch, so
that compaction's gaps cost nothing.

An aborted transaction is told by its producer and first offset.  From there on all transactional batches of
the producer are dropped, up to its abort marker.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from distributedlog.client.errors import error_from
from distributedlog.client.offset_specs import Isolation
from distributedlog.client.options import MIB
from distributedlog.client.positions.epochs import NO_EPOCH, EpochBook
from distributedlog.client.view import ClusterView
from distributedlog.model.buffers import Buffer
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import ConfigError, DlogError, RecordTooLargeError
from distributedlog.model.ids import ZERO_UUID, TopicPartition, Uuid
from distributedlog.protocol.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from distributedlog.records.batch import BatchHeader, check_batch, whole_batches
from distributedlog.records.control import read_end_marker
from distributedlog.records.kernel import decode_records
from distributedlog.records.record import DEFAULT_LIMITS, Record, decompress_records

if TYPE_CHECKING:
    import pyarrow

Place = tuple[type, str, int]
"""What records are to be made as, and the topic and partition that they get."""
NAMED_VERSION_MAX: Final = 12
"""The last version of Fetch that names topics by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOptions:
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    wait_ms_max: int = 500
    """How long a broker may wait for something to come."""
    bytes_min: int = 1
    bytes_max: int = 16 * MIB
    """The bytes of one response; the first batch comes whole even if it is larger."""
    partition_bytes_max: int = MIB
    rack: str = ""
    """Where the reader is: a leader may name a replica in the same rack to read from (KIP-392)."""

    def __post_init__(self) -> None:
        if min(self.wait_ms_max, self.bytes_min) < 0 or min(self.bytes_max, self.partition_bytes_max) < 1:
            raise ConfigError("the limits of a fetch must be positive")


class PreparedFetch(NamedTuple):
    """A request, and what it takes to understand its response."""

    request: FetchRequest
    offsets: dict[TopicPartition, int]
    names: dict[Uuid, str]

    @property
    def version_max(self) -> int | None:
        return NAMED_VERSION_MAX if ZERO_UUID in self.names else None

    def partitions_of(self, response: FetchResponse) -> Iterator[tuple[TopicPartition, PartitionData]]:
        """Walks a response: every partition in it by its topic's name, of those that were asked for."""
        for topic in response.responses:
            name = topic.topic or self.names.get(topic.topic_id, "")
            for data in topic.partitions:
                partition = TopicPartition(name, data.partition_index)
                if partition in self.offsets:
                    yield partition, data


class Arrived(NamedTuple):
    """Batches of one partition that nobody has opened, and where it stands behind them."""

    partition: TopicPartition
    offset: int
    """Where the partition stood before."""
    batches: Buffer
    aborted: Sequence[AbortedTransaction]
    next_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


class Fetched(NamedTuple):
    """Records of one partition, in their order, and where it stands."""

    partition: TopicPartition
    records: list[Record]
    next_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    rows: "pyarrow.RecordBatch | None" = None
    """The records as rows, where these are wanted; then `records` is empty."""
    placed: Sequence[Any] = ()
    """The records with their topic and partition, where these are wanted; then `records` is empty."""

    @property
    def is_empty(self) -> bool:
        return not self.records and self.rows is None and not self.placed


class FetchError(NamedTuple):
    partition: TopicPartition
    error: DlogError
    is_final: bool = False
    """What came is unsound: asking again would bring the same."""


class Fetcher:
    def __init__(self, options: FetchOptions | None = None) -> None:
        self.options = options or FetchOptions()
        self.positions: dict[TopicPartition, int] = {}
        self.makes_rows = False
        """Whether records come as rows of Arrow, with no object for each."""
        self.makes: type | None = None
        """The type of named tuples as which records come with their topic and partition: of these two,
        offset, timestamp, key, value and headers."""
        self.paused: set[TopicPartition] = set()
        """What comes for these is not taken: it is asked for again when they go on."""
        self.epochs = EpochBook()

    def assign(
        self,
        positions: Mapping[TopicPartition, int],
        epochs: Mapping[TopicPartition, int] = MappingProxyType({}),
    ) -> None:
        """Adds partitions, or moves them; `epochs` are those of the last records before, where known."""
        self.positions.update(positions)
        for partition, offset in positions.items():
            self.epochs.moved(partition, offset, epochs.get(partition, NO_EPOCH))

    def drop(self, partition: TopicPartition) -> None:
        self.positions.pop(partition, None)
        self.epochs.forget(partition)
        self.paused.discard(partition)

    def prepare(self, partitions: Iterable[TopicPartition], view: ClusterView) -> PreparedFetch:
        """A request for these; all must be in the view, and led by one broker."""
        offsets: dict[TopicPartition, int] = {}
        topics: dict[str, FetchTopic] = {}
        names: dict[Uuid, str] = {}
        for partition in partitions:
            topic = view.topics[partition.topic]
            led = topic.partition(partition.partition)
            names[topic.topic_id] = topic.name
            offsets[partition] = self.positions[partition]
            asked = topics.setdefault(
                topic.name, FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=[])
            )
            asked.partitions.append(
                FetchPartition(
                    partition=partition.partition,
                    current_leader_epoch=-1 if led is None else led.leader_epoch,
                    fetch_offset=offsets[partition],
                    partition_max_bytes=self.options.partition_bytes_max,
                )
            )
        request = FetchRequest(
            max_wait_ms=self.options.wait_ms_max,
            min_bytes=self.options.bytes_min,
            max_bytes=self.options.bytes_max,
            isolation_level=self.options.isolation,
            rack_id=self.options.rack,
            topics=list(topics.values()),
        )
        return PreparedFetch(request, offsets, names)

    def take(
        self, prepared: PreparedFetch, response: FetchResponse
    ) -> tuple[list[Arrived], list[FetchError]]:
        """Returns what came, with the positions moved on, and what was refused.

        What came has to be opened before the next response with its partition is taken.
        """
        arrived: list[Arrived] = []
        refused: list[FetchError] = []
        if response.error_code != ErrorCode.NONE:
            error = error_from(response.error_code, "the fetch")
            asked = prepared.offsets.keys() & self.positions.keys()
            return [], [FetchError(partition, error) for partition in sorted(asked)]
        for partition, data in prepared.partitions_of(response):
            offset = prepared.offsets[partition]
            if self.positions.get(partition) != offset or partition in self.paused:
                continue
            if data.error_code != ErrorCode.NONE:
                refused.append(FetchError(partition, error_from(data.error_code, f"{partition} at {offset}")))
                continue
            try:
                arrived.append(self._take_partition(partition, offset, data))
            except DlogError as error:
                _tell_place(error, partition, offset)
                refused.append(FetchError(partition, error, is_final=True))
        return arrived, refused

    def _take_partition(self, partition: TopicPartition, offset: int, data: PartitionData) -> Arrived:
        batches = cast(Buffer, data.records if data.records is not None else b"")
        next_offset = offset
        for _, header in batches_at(batches, offset):
            if header.next_offset > offset:
                self.epochs.read(partition, header.base_offset, header.leader_epoch)
            next_offset = max(next_offset, header.next_offset)
        self.positions[partition] = next_offset
        return Arrived(
            partition,
            offset,
            batches,
            (data.aborted_transactions or ()) if self.options.isolation else (),
            next_offset,
            data.high_watermark,
            data.last_stable_offset,
            data.log_start_offset,
        )

    def give_back(self, arrived: Arrived) -> None:
        """It is not opened, and asked for again."""
        if self.positions.get(arrived.partition) == arrived.next_offset:
            self.positions[arrived.partition] = arrived.offset

    def open(self, arrived: Arrived) -> Fetched:
        """The records of what has come, up to the first unsound batch; raises if that is the first of all."""
        partition, offset, batches, aborted, next_offset = arrived[:5]
        records: list[Any] = []
        rows = None
        opened_to = offset
        place = None if self.makes is None else (self.makes, *partition)
        try:
            if self.makes_rows:
                rows, opened_to = rows_of(batches, offset, aborted)
            else:
                records, opened_to = records_of(batches, offset, aborted, place)
        except DlogError as error:
            _tell_place(error, partition, offset)
            raise
        finally:
            if opened_to < next_offset and self.positions.get(partition) == next_offset:
                self.positions[partition] = opened_to
        return Fetched(
            partition,
            records if place is None else [],
            opened_to,
            arrived.high_watermark,
            arrived.last_stable_offset,
            arrived.log_start_offset,
            rows,
            records if place is not None else (),
        )


def _tell_place(error: DlogError, partition: TopicPartition, offset: int) -> None:
    """Makes it say of which partition it is, where, and what to do."""
    error.args = (
        f"{partition} cannot be read at offset {offset}: {error}; seek behind that batch to go on without it",
    )


def batches_at(data: Buffer, offset: int) -> list[tuple[int, BatchHeader]]:
    """Position and header of each batch in a run that is whole and may be one.  Raises if not even the first
    is."""
    found: list[tuple[int, BatchHeader]] = []
    try:
        for each in whole_batches(data):
            found.append(each)  # noqa: PERF402 - what was found stays when the next one raises
    except DlogError:
        if not found:
            raise
    if not found and len(data) > 0:
        raise RecordTooLargeError(
            f"the batch at offset {offset} did not come whole within {len(data)} bytes: raise the limits"
        )
    return found


def records_of(
    data: Buffer, offset: int, aborted: Iterable[AbortedTransaction] = (), place: Place | None = None
) -> tuple[list[Any], int]:
    """The records from `offset` on in a run of batches, and the offset behind the last whole batch.
    `decode_records` says what they are, given a place.

    An unsound batch ends the run; it is an error only if it stands at `offset`, so that what is before it is
    read.
    """
    filtering = AbortedFilter(aborted)
    records: list[Any] = []
    next_offset = offset
    try:
        for at, header in batches_at(data, offset):
            check_batch(data, at, limits=DEFAULT_LIMITS)
            if header.next_offset > offset and filtering.passes(data, at, header):
                records += _records_from(data, at, header, offset, place)
            next_offset = max(next_offset, header.next_offset)
    except DlogError:
        if next_offset == offset:
            raise
    return records, next_offset


def rows_of(
    data: Buffer, offset: int, aborted: Iterable[AbortedTransaction] = ()
) -> "tuple[pyarrow.RecordBatch | None, int]":
    """The same as rows of Arrow; None if there are none."""
    from distributedlog.records.arrow import decode_checked

    filtering = AbortedFilter(aborted)
    wanted: list[tuple[Buffer, int, BatchHeader]] = []
    starts: list[int] = []
    """Where the run stands before each of them."""
    next_offset = offset
    try:
        for at, header in batches_at(data, offset):
            check_batch(data, at, limits=DEFAULT_LIMITS)
            if header.next_offset > offset and filtering.passes(data, at, header):
                wanted.append((data, at, header))
                starts.append(next_offset)
            next_offset = max(next_offset, header.next_offset)
    except DlogError:
        if next_offset == offset:
            raise
    try:
        return (decode_checked(wanted, from_offset=offset) if wanted else None), next_offset
    except DlogError:  # a sum was right, and the records are not
        sound = sum(1 for _ in takewhile(lambda each: _can_decode(each, offset), wanted))
        if sound == len(wanted) or starts[sound] == offset:
            raise
    return (decode_checked(wanted[:sound], from_offset=offset) if sound else None), starts[sound]


def _can_decode(batch: tuple[Buffer, int, BatchHeader], offset: int) -> bool:
    from distributedlog.records.arrow import decode_checked

    try:
        decode_checked([batch], from_offset=offset)
    except DlogError:
        return False
    return True


def _records_from(data: Buffer, at: int, header: BatchHeader, offset: int, place: Place | None) -> list[Any]:
    section = decompress_records(data, at, header)
    found = decode_records(section, header, DEFAULT_LIMITS.headers_per_record_max, place)
    return found if header.base_offset >= offset else [each for each in found if each.offset >= offset]


class AbortedFilter:
    """Knows which producers are in an aborted transaction where the reader is."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        self._producers: set[int] = set()

    def passes(self, data: Buffer, at: int, header: BatchHeader) -> bool:
        while self._coming and self._coming[-1].first_offset <= header.last_offset:
            self._producers.add(self._coming.pop().producer_id)
        if header.is_control:
            self._end_transaction(data, at, header)
            return False
        return not (header.is_transactional and header.producer_id in self._producers)

    def _end_transaction(self, data: Buffer, at: int, header: BatchHeader) -> None:
        if header.producer_id in self._producers and not read_end_marker(data, at, header).is_commit:
            self._producers.discard(header.producer_id)
