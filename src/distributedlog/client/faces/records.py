"""Records as consumers give them out, and those that have come and were not given out yet.  Pure.

`Prefetched` keeps what fetches brought, partition by partition in their order.  With deserializers it
makes `ConsumerRecord`s of it when they are asked for; else fetches bring such.  Chunks of paused partitions
stay; those of partitions that were moved or taken away are dropped.

`Pending` keeps what iteration has taken of that and gives out one by one.
"""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from distributedlog.client.faces.settings import Deserializer
from distributedlog.client.fetcher import Fetched
from distributedlog.model.errors import InvalidRecordError
from distributedlog.model.ids import TopicPartition
from distributedlog.records.record import Header, Record


class ConsumerRecord(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    """Bytes, or what `key_deserializer` made of them; None where there is none.  So is `value`."""
    value: Any
    headers: tuple[Header, ...] = ()


class _Chunk:
    __slots__ = ("at", "is_made", "next_offset", "partition", "records")

    def __init__(self, fetched: Fetched) -> None:
        self.partition = fetched.partition
        self.records: Sequence[Any] = fetched.placed or fetched.records
        self.is_made = bool(fetched.placed)
        self.at = 0
        self.next_offset = fetched.next_offset


class Taken(NamedTuple):
    records: list[ConsumerRecord]
    positions: dict[TopicPartition, int]
    """The offset behind what was taken, of each partition that is in it."""


class Prefetched:
    def __init__(
        self, key_deserializer: Deserializer | None = None, value_deserializer: Deserializer | None = None
    ) -> None:
        self._chunks: deque[_Chunk] = deque()
        self._key = key_deserializer
        self._value = value_deserializer

    def add(self, fetched: Iterable[Fetched]) -> None:
        self._chunks.extend(map(_Chunk, fetched))

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        self._chunks = deque(each for each in self._chunks if each.partition not in partitions)

    def clear(self) -> None:
        self._chunks.clear()

    def put_back(self, taken: Taken) -> None:
        """Takes back what is left of one partition."""
        ((partition, next_offset),) = taken.positions.items()
        left = Fetched(partition, [], next_offset, -1, -1, -1, placed=taken.records)
        self._chunks.appendleft(_Chunk(left))

    def take(self, most: int, paused: Collection[TopicPartition] = ()) -> Taken:
        """Takes at most so many records, in their order.

        Raises `InvalidRecordError` if the first one cannot be deserialized; a later one ends what is taken.
        Whatever is raised, nothing is taken then.
        """
        records: list[ConsumerRecord] = []
        positions: dict[TopicPartition, int] = {}
        kept: list[_Chunk] = []
        looked_at: list[tuple[_Chunk, int]] = []
        while self._chunks and len(records) < most:
            chunk = self._chunks.popleft()
            looked_at.append((chunk, chunk.at))
            if chunk.partition in paused:
                kept.append(chunk)
                continue
            end = min(len(chunk.records), chunk.at + most - len(records))
            try:
                found = chunk.records[chunk.at : end]
                if not chunk.is_made:
                    found = self._made(chunk.partition, found)
            except BaseException as error:
                if records and isinstance(error, InvalidRecordError):
                    kept.append(chunk)
                    break
                self._put_back(looked_at)
                raise
            records += found
            chunk.at += len(found)
            if chunk.at < len(chunk.records):
                positions[chunk.partition] = found[-1].offset + 1
                kept.append(chunk)
                if chunk.at < end:
                    break
            else:
                positions[chunk.partition] = chunk.next_offset
        self._chunks.extendleft(reversed(kept))
        return Taken(records, positions)

    def _put_back(self, looked_at: list[tuple[_Chunk, int]]) -> None:
        for chunk, at in reversed(looked_at):
            chunk.at = at
            self._chunks.appendleft(chunk)

    @property
    def deserializes(self) -> bool:
        return self._key is not None or self._value is not None

    def _made(self, partition: TopicPartition, records: Sequence[Record]) -> list[ConsumerRecord]:
        topic, index = partition
        key, value = self._key, self._value
        found = []
        for r in records:
            try:
                found.append(
                    ConsumerRecord(topic, index, r[4], r[3], _read(key, r[1]), _read(value, r[0]), r[2])
                )
            except Exception as error:  # whatever a program's own code raises
                if found:
                    break
                raise InvalidRecordError(
                    f"the record at offset {r[4]} of {partition} cannot be deserialized ({error!r}): "
                    "seek behind it to go on"
                ) from error
        return found


class Pending:
    """What iteration has taken and not given out."""

    def __init__(self) -> None:
        self.records: list[ConsumerRecord] = []
        """The next one last."""
        self._behind: dict[TopicPartition, int] = {}
        """Where partitions stand after their last records: there may be markers and gaps behind these."""

    def put(self, taken: Taken) -> None:
        """Takes more, once all is given out."""
        self.records = taken.records[::-1]
        self._behind.update(taken.positions)

    def take(self, most: int) -> list[ConsumerRecord]:
        found, self.records = self.records[: -most - 1 : -1], self.records[:-most]
        return found

    def passed(self) -> dict[TopicPartition, int]:
        """Where partitions stand now that all has been given out; that is told once."""
        passed, self._behind = self._behind, {}
        return passed

    def part_with(self, partitions: Collection[TopicPartition]) -> list[Taken]:
        """What was left of each of these; no more of it is here then."""
        found: dict[TopicPartition, list[ConsumerRecord]] = {}
        others: list[ConsumerRecord] = []
        for each in self.records:
            partition = TopicPartition(each[0], each[1])
            (found.setdefault(partition, []) if partition in partitions else others).append(each)
        self.records = others
        behind = {each: self._behind.pop(each) for each in partitions if each in self._behind}
        return [Taken(found.get(each, [])[::-1], {each: at}) for each, at in behind.items()]


def _read(deserializer: Deserializer | None, data: bytes | None) -> Any:
    return data if data is None or deserializer is None else deserializer(data)
