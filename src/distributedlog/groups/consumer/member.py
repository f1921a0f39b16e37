"""A member of a consumer group.  Immutable: every record about it makes another.

    said by itself          ids, rack, subscription, preferred assignor, how long it takes to give up
    made by reconciliation  epoch, state, what is assigned, what it has to give up

| state                 | the member                                                                   |
|-----------------------|------------------------------------------------------------------------------|
| STABLE                | has all that the target of its epoch gives it                                |
| UNREVOKED_PARTITIONS  | stays in its epoch until it has said that it gave up what is another's to be |
| UNRELEASED_PARTITIONS | is in the newest epoch, and gets more as soon as others have given it up     |

Epochs: 0 has just come; positive ones are those of targets; -2 is a static member that is away for a while.
The epoch before is accepted too, from a member that holds no more than is assigned: the response with the
newer one may have been lost.

A member with `classic` speaks the classic protocol: its epoch is what it takes for a generation.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from distributedlog.groups.consumer.topics import NO_PARTITIONS, TopicIdPartitions
from distributedlog.groups.member_bytes import (
    MEMBER_OVERHEAD_BYTES,
    TEXT_OVERHEAD_BYTES,
    sum_protocol_bytes,
)
from distributedlog.groups.requests import SupportedProtocol

JOINS: Final = 0
LEAVES: Final = -1
IS_AWAY: Final = -2
"""The epoch of a static member that leaves, and means to come back."""


class MemberState(IntEnum):
    """The states of a member, as they stand in the records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127
    """A state of a newer coordinator: such a member has to come anew."""


@dataclass(frozen=True, slots=True)
class ClassicSide:
    """What a client of the classic protocol said when it joined."""

    session_timeout_ms: int
    protocols: tuple[SupportedProtocol, ...]


@dataclass(frozen=True, slots=True)
class Member:
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] = ()
    """Sorted, each once."""
    pattern: str | None = None
    assignor: str | None = None
    classic: ClassicSide | None = None

    epoch: int = JOINS
    previous_epoch: int = JOINS
    state: MemberState = MemberState.STABLE
    assigned: TopicIdPartitions = NO_PARTITIONS
    revoking: TopicIdPartitions = NO_PARTITIONS
    """Assigned no longer, and not known to be given up: nobody else may have them yet."""

    @property
    def size(self) -> int:
        """What it says of itself takes of the coordinator's memory, in bytes."""
        texts = (self.member_id, self.instance_id, self.rack_id, self.client_id, self.pattern, self.assignor)
        text_bytes = sum(len(text or "") for text in texts)
        topics_bytes = sum(map(len, self.topics)) + TEXT_OVERHEAD_BYTES * len(self.topics)
        classic_bytes = 0 if self.classic is None else sum_protocol_bytes(self.classic.protocols)
        return MEMBER_OVERHEAD_BYTES + text_bytes + topics_bytes + classic_bytes

    @property
    def holds(self) -> TopicIdPartitions:
        """What no other member may have."""
        return self.assigned | self.revoking if self.revoking else self.assigned

    @property
    def is_away(self) -> bool:
        return self.epoch == IS_AWAY

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch
