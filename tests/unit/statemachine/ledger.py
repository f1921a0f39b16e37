"""A machine small enough to see through, and a log whose commits, losses and failures a test decides."""

from collections.abc import Sequence
from typing import NamedTuple

from distributedlog.model.errors import InvalidRequestError, OverloadedError, StorageError
from distributedlog.statemachine import Context, Result


class Add(NamedTuple):
    value: int
    announce: bool = False


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
            case Add(value, announce):
                return Result((*self.values, value), [value], [value] if announce else [])
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
