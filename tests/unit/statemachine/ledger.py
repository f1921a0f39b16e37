"""A machine small enough to see through, and a log whose commits, losses and failures a test decides."""

from collections.abc import Sequence
from typing import NamedTuple

from distributedlog.model.errors import (
    InvalidProducerEpochError,
    InvalidRequestError,
    OverloadedError,
    StorageError,
)
from distributedlog.statemachine import Context, Producer, Result, Runtime, TransactionEnd


class Add(NamedTuple):
    value: int
    announce: bool = False
    transaction: Producer | None = None


class Read(NamedTuple):
    pass


class Refuse(NamedTuple):
    pass


Request = Add | Read | Refuse
Seen = tuple[int, ...]


class Ledger:
    """Keeps every value it was given.  Its answers are all it holds, so a test sees what made them."""

    def __init__(self) -> None:
        self.values: list[int] = []
        self.deadline_ms: int | None = None

    def handle(self, request: Request, context: Context) -> Result[int, Seen, int]:
        match request:
            case Add(value, announce, transaction):
                effects = [value] if announce else []
                return Result((*self.values, value), [value], effects, transaction)
            case Read():
                return Result(tuple(self.values))
            case Refuse():
                raise InvalidRequestError(f"{self.values}")

    def replay(self, records: Sequence[int], offset: int) -> None:
        self.values.extend(records)

    def activated(self, context: Context) -> Result[int, None, int]:
        return Result(None)

    def next_deadline_ms(self) -> int | None:
        return self.deadline_ms

    def tick(self, context: Context) -> Result[int, None, int]:
        self.deadline_ms = None
        return Result(None, [-context.now_ms], [-context.now_ms])

    def snapshot(self) -> bytes:
        return repr(self.values).encode()

    def restore(self, data: bytes, offset: int) -> None:
        self.values = [int(part) for part in data.decode()[1:-1].split(",") if part]


class StageLog:
    """Entries at offsets; an append can be made to fail, with or without the entry."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, ...]] = []
        self.failing: str | None = None

    def next_offset(self) -> int:
        return len(self.entries)

    def append(self, records: Sequence[int]) -> int:
        if self.failing == "full":
            raise OverloadedError("no room")
        if self.failing == "nothing written":
            raise StorageError("no")
        if self.failing == "behind another entry":
            self.entries.append(())
        self.entries.append(tuple(records))
        if self.failing == "written all the same":
            raise StorageError("not sure")
        return len(self.entries) - 1

    def values(self, until_offset: int) -> Seen:
        return tuple(value for entry in self.entries[: until_offset + 1] for value in entry)


class TransactionalStageLog(StageLog):
    """One whose entries may belong to transactions.  A value is its own key."""

    def __init__(self) -> None:
        super().__init__()
        self.producers: dict[int, Producer] = {}
        self.ends: dict[int, TransactionEnd] = {}

    def append_transactional(self, records: Sequence[int], producer: Producer) -> int:
        self.producers[len(self.entries)] = producer
        return self.append(records)

    def append_marker(self, end: TransactionEnd) -> int:
        if self.failing == "fenced":
            raise InvalidProducerEpochError("another has its epoch")
        self.ends[len(self.entries)] = end
        return self.append([])

    def key_of(self, record: int) -> int:
        return record

    def replay_into(self, runtime: Runtime[Request, int, Seen, int]) -> None:
        for offset, entry in enumerate(self.entries):
            if offset in self.ends:
                runtime.replay_marker(self.ends[offset], offset)
            else:
                runtime.replay(entry, offset, self.producers.get(offset))
