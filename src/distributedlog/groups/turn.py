"""One turn of the machine: what a request or a deadline leads to, gathered while it is being handled.

Everything a handler may use comes in here, and everything it does goes out: records, replies to those who
wait, and deadlines.  A turn that ends with an error must not have changed anything: so handlers check first.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from distributedlog.groups.config import GroupConfig
from distributedlog.groups.member_bytes import MemberBytes
from distributedlog.groups.records import GroupRecord, OffsetRecord, size_bounds
from distributedlog.groups.requests import DeferredReply, JoinReply, SyncReply
from distributedlog.model.errors import DlogError, RecordTooLargeError
from distributedlog.model.ids import TopicPartition
from distributedlog.statemachine.deadlines import Deadlines
from distributedlog.statemachine.pending import NO_PENDING, PendingTransactions, Producer


class Timer(Enum):
    SESSION = "a member is silent"
    PENDING = "a member got its id and did not come with it"
    JOIN = "the barrier closes"
    SYNC = "members did not send SyncGroup"
    EXPIRY = "positions are to be looked through"
    CONSUMER_SESSION = "a member of a consumer group is silent"
    REVOCATION = "a member of a consumer group does not give up what it must"
    REJOIN = "a classic member of a consumer group does not join again"
    PATTERNS = "patterns are to be matched with more names"
    RESYNC = "a classic member of a consumer group does not send SyncGroup"


class TimerKey(NamedTuple):
    timer: Timer
    group_id: str = ""
    member_id: str = ""


class Turn:
    __slots__ = (
        "config", "effects", "member_bytes", "now_ms", "pending", "records", "timers", "transaction",
        "wall_ms",
    )  # fmt: skip

    def __init__(
        self,
        config: GroupConfig,
        timers: Deadlines[TimerKey],
        member_bytes: MemberBytes,
        now_ms: int,
        wall_ms: int,
        pending: PendingTransactions[GroupRecord] = NO_PENDING,
    ) -> None:
        self.config = config
        self.member_bytes = member_bytes
        self.timers = timers
        self.now_ms = now_ms
        """Monotonic: for deadlines."""
        self.wall_ms = wall_ms
        """The time for what is written down."""
        self.pending = pending
        """What open transactions hold."""
        self.transaction: Producer | None = None
        """The transaction that the records belong to, if they do."""
        self.records: list[GroupRecord] = []
        self.effects: list[DeferredReply] = []

    def is_unstable(self, group_id: str, partition: TopicPartition) -> bool:
        """Returns whether an open transaction holds an offset of this partition."""
        return self.pending.holds((group_id, partition))

    def groups_in_transactions(self) -> frozenset[str]:
        """Returns the groups of which open transactions hold offsets."""
        return frozenset(each.group_id for each in self.pending.records() if isinstance(each, OffsetRecord))

    def write(self, record: GroupRecord) -> None:
        self.records.append(record)

    def check_fits(
        self,
        records: Sequence[GroupRecord],
        spare_bytes: int = 0,
        error: type[DlogError] = RecordTooLargeError,
    ) -> None:
        """Checks that they can be one entry, before anything is changed because of them."""
        size = spare_bytes + size_bounds(records)
        if size > self.config.entry_bytes_max:
            raise error(f"it takes {size} bytes to keep; {self.config.entry_bytes_max} fit into one entry")

    def complete(self, waiter: int, reply: JoinReply | SyncReply) -> None:
        self.effects.append(DeferredReply(waiter, reply))
