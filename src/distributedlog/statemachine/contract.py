"""What a machine is: handlers emit records, and only `replay` mutates.

    request, now_ms, next_offset  ->  handle  ->  Result(records, response, effects)
    records, offset               ->  replay  ->  the state

The records of one result are one entry of the log: all of them are there or none is, and they share one
offset.  `handle` and `tick` look at the state and change nothing that a record describes.  What is not worth
a record (sessions, timers) is soft state: they may change it, each machine lists it at its file's head, and
it is lost when the machine is.

Invariant: two machines that were given the same entries are equal, whoever made them and when.  So nothing
in `replay` may depend on time, chance, or soft state.
"""

from collections.abc import Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

RecordT = TypeVar("RecordT")
ResponseT = TypeVar("ResponseT")
EffectT = TypeVar("EffectT")
RequestT_contra = TypeVar("RequestT_contra", contravariant=True)


class Context(NamedTuple):
    """What a handler may know besides its request and its state."""

    now_ms: int
    """Monotonic: for sessions and timers, never for what is written down."""
    next_offset: int
    """Where the records of this result will stand."""
    epoch: int
    """Of the leadership under which the machine is in charge."""


class Result(NamedTuple, Generic[RecordT, ResponseT, EffectT]):
    """What a request led to.  Without records it was a read, or it changed nothing."""

    response: ResponseT
    records: Sequence[RecordT] = ()
    effects: Sequence[EffectT] = ()
    """To be performed once the records, and all before them, are committed."""


class Machine(Protocol[RequestT_contra, RecordT, ResponseT, EffectT]):
    """A state that a log drives.

    A machine begins empty.  An error that `handle` raises on purpose (a `DlogError`) is an answer like any
    other; the state is as it was.
    """

    def handle(self, request: RequestT_contra, context: Context) -> Result[RecordT, ResponseT, EffectT]: ...

    def replay(self, records: Sequence[RecordT], offset: int) -> None:
        """Applies one entry.  The only way to change what the log describes."""
        ...

    def activated(self, context: Context) -> Result[RecordT, None, EffectT]:
        """The log is replayed, the machine in charge: soft state starts anew, and begun work goes on."""
        ...

    def next_deadline_ms(self) -> int | None:
        """When `tick` wants to be called; only asked of a machine in charge."""
        ...

    def tick(self, context: Context) -> Result[RecordT, None, EffectT]:
        """Its deadline has come.  What it does about it must move the deadline on."""
        ...

    def snapshot(self) -> bytes: ...

    def restore(self, data: bytes, offset: int) -> None:
        """The state as `snapshot` gave it after the entry at `offset`; only asked of an empty machine."""
        ...
