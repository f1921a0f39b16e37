"""What a machine is: handlers emit records, and only `replay` mutates.

    request, now_ms, next_offset  ->  handle  ->  Result(records, response, effects)
    records, offset               ->  replay  ->  the state

The records of one result are one entry of the log: all of them are there or none is, and they share one
offset.  `handle` and `tick` look at the state and change nothing that a record describes.  What is not worth
a record (sessions, timers) is soft state: they may change it, each machine lists it at its file's head, and
it is lost when the machine is.

Where a log can hold transactions, `replay` gets what is committed and nothing else: the records of an open
transaction are held beside the machine until its marker (`pending`), which a handler may look at.

Invariant: two machines that were given the same entries are equal, whoever made them and when.  So nothing
in `replay` may depend on time, chance, or soft state.
"""

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from distributedlog.statemachine.pending import NO_PENDING, PendingTransactions, Producer

RecordT = TypeVar("RecordT")
ResponseT = TypeVar("ResponseT")
EffectT = TypeVar("EffectT")
RequestT_contra = TypeVar("RequestT_contra", contravariant=True)


class Context(NamedTuple):
    """What a handler may know besides its request and its state."""

    now_ms: int
    """Monotonic: for sessions and timers, never for what is written down."""
    next_offset: int
    """The offset that the records of this result will have."""
    epoch: int
    """The epoch of the leadership under which the machine is active."""
    pending: PendingTransactions[Any] = NO_PENDING
    """What open transactions hold: it may become part of the state, or not."""


class Result(NamedTuple, Generic[RecordT, ResponseT, EffectT]):
    """What a request led to.  Without records it was a read, or it changed nothing."""

    response: ResponseT
    records: Sequence[RecordT] = ()
    effects: Sequence[EffectT] = ()
    """The effects that are performed once the records, and all before them, are committed."""
    transaction: Producer | None = None
    """The open transaction that the records belong to, if they do: they count when it is committed."""


class Machine(Protocol[RequestT_contra, RecordT, ResponseT, EffectT]):
    """A state that a log drives.

    A machine begins empty.  An error that `handle` raises on purpose (a `DlogError`) is a response like any
    other; the state is as it was.
    """

    def handle(self, request: RequestT_contra, context: Context) -> Result[RecordT, ResponseT, EffectT]: ...

    def replay(self, records: Sequence[RecordT], offset: int) -> None:
        """Applies one entry.  The only way to change what the log describes."""
        ...

    def activated(self, context: Context) -> Result[RecordT, None, EffectT]:
        """The log is replayed, the machine active: soft state starts anew, and begun work goes on."""
        ...

    def next_deadline_ms(self) -> int | None:
        """Returns when `tick` wants to be called; only called on an active machine."""
        ...

    def tick(self, context: Context) -> Result[RecordT, None, EffectT]:
        """Its deadline has come.  What it does about it must move the deadline on."""
        ...

    def snapshot(self) -> bytes: ...

    def restore(self, data: bytes, offset: int) -> None:
        """The state as `snapshot` gave it after the entry at `offset`; only called on an empty machine."""
        ...
