"""What the members of groups take of a broker's memory, and the most that they may.

    group        `group.max.bytes`              all members of one group
    client host  `group.client.max.bytes`       all members that come from one address, of all groups
    broker       `group.coordinator.max.bytes`  all members of all groups that the broker coordinates

Counted is what a client sends and the coordinator keeps: a member's ids, the metadata of its protocols or its
subscription, its assignment; and ids that were given out.  A member that would exceed one of the three is
refused (GROUP_MAX_SIZE_REACHED), and nothing of it is kept.  One that does not grow is never refused, nor is
what a coordinator reads back from its log.  The bytes are free when the member leaves, or its session ends.

SOFT STATE: each machine counts its own members; the broker's total is the sum over its machines.
"""

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final, NamedTuple

from distributedlog.groups.config import GroupConfig
from distributedlog.groups.requests import SupportedProtocol
from distributedlog.model.errors import GroupFullError

MEMBER_OVERHEAD_BYTES: Final = 1024
"""What a member takes beside what it sends: objects, deadlines, places in maps."""
TEXT_OVERHEAD_BYTES: Final = 64
"""What a text takes beside its characters: members name thousands of topics."""
PARTITION_BYTES: Final = 128
"""An assigned partition of a consumer group: in the target, with the member, and among the owners."""


class Holding(Enum):
    """What a member holds its bytes as: one whose group moves between the protocols is both for a turn."""

    PENDING = "an id was given out"
    CLASSIC = "a member of a classic group"
    CONSUMER = "a member of a consumer group"


class Holder(NamedTuple):
    holding: Holding
    group_id: str
    member_id: str


class Charge(NamedTuple):
    host: str
    size: int


NO_CHARGE: Final = Charge("", 0)


class MemberBytes:
    """The bytes that the members of one machine's groups hold."""

    def __init__(self, all_of_broker: Callable[[], Iterable["MemberBytes"]] | None = None) -> None:
        """`all_of_broker` are those of all machines of the broker, this one among them."""
        self._all_of_broker = all_of_broker or (lambda: (self,))
        self._charges: dict[Holder, Charge] = {}
        self._by_group: dict[str, int] = {}
        self._by_host: dict[str, int] = {}
        self.total = 0

    def of_group(self, group_id: str) -> int:
        return self._by_group.get(group_id, 0)

    def of_host(self, host: str) -> int:
        return self._by_host.get(host, 0)

    def check(self, group_id: str, host: str, more_bytes: int, config: GroupConfig) -> None:
        """Raises GROUP_MAX_SIZE_REACHED if a member may not hold so many bytes more.  Changes nothing."""
        if more_bytes <= 0:
            return
        own = list(self._all_of_broker())
        for name, held, limit in (
            (f"group {group_id!r}", self.of_group(group_id), config.group_bytes_max),
            (f"client host {host}", sum(each.of_host(host) for each in own), config.client_bytes_max),
            ("this broker", sum(each.total for each in own), config.coordinator_bytes_max),
        ):
            if held + more_bytes > limit:
                raise GroupFullError(
                    f"the members of {name} hold {held} bytes; {more_bytes} more would exceed {limit}"
                )

    def charge(self, holder: Holder, host: str, size: int) -> None:
        self.release(holder)
        self._charges[holder] = Charge(host, size)
        self._add(holder.group_id, host, size)

    def release(self, holder: Holder) -> None:
        host, size = self._charges.pop(holder, NO_CHARGE)
        if size:
            self._add(holder.group_id, host, -size)

    def _add(self, group_id: str, host: str, size: int) -> None:
        self.total += size
        for held, name in ((self._by_group, group_id), (self._by_host, host)):
            now = held.get(name, 0) + size
            if now:
                held[name] = now
            else:
                held.pop(name, None)


def sum_protocol_bytes(protocols: Iterable[SupportedProtocol]) -> int:
    return sum(len(supported.name) + len(supported.metadata) for supported in protocols)
