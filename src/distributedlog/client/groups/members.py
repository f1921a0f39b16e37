"""A member of a group as a consumer uses it, whichever protocol the group has.

| `group_protocol` | member                                                    | who assigns            |
|------------------|-----------------------------------------------------------|------------------------|
| `classic`        | `coordinator.GroupMember`: join, sync, heartbeats         | the leader of members  |
| `consumer`       | `consumer_coordinator.ConsumerGroupMember`: heartbeats    | the coordinator        |

Whoever polls takes a turn when the member `needs_attention`: `prepare`, then the program's callbacks, then
`join`, whose change, if there is one, is told as well.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from distributedlog.client.admin.group_offsets import OffsetAndMetadata
from distributedlog.client.groups.consumer_coordinator import ConsumerGroupMember
from distributedlog.client.groups.coordinator import GroupMember
from distributedlog.client.groups.membership import CONSUMER, Change, GroupOptions
from distributedlog.client.metadata import Cluster
from distributedlog.model.ids import TopicPartition


class Member(Protocol):
    rebalances: int
    """How often its partitions were assigned."""
    on_attention: Callable[[], object]
    """Called when it is the turn of whoever polls."""

    @property
    def identity(self) -> tuple[int, str, str | None]:
        """Generation or epoch, member id and instance id: what commits carry."""
        ...

    @property
    def needs_attention(self) -> bool: ...

    def polled(self) -> None:
        """The program is alive."""
        ...

    def subscribe(self, topics: Collection[str], pattern: str | None) -> None: ...

    async def look_around(self) -> None:
        """Looks now and then for topics and partitions that came, where that is the member's task."""
        ...

    def prepare(self) -> Change:
        """What the program is to be told before the member goes on.  Raises what the member met that is no
        matter of time."""
        ...

    async def join(self) -> Change | None:
        """Goes on, once the program was told: what there is to tell it then, if that is known already."""
        ...

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Raises `GroupRebalancedError` if the member has lost what it commits for."""
        ...

    async def close(self) -> None: ...


def make_member(
    cluster: Cluster, options: GroupOptions, topics: Collection[str], pattern: str | None
) -> Member:
    kind = ConsumerGroupMember if options.protocol == CONSUMER else GroupMember
    return kind(cluster, options, topics, pattern)
