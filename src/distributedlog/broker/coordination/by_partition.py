"""The coordinators of one internal topic on this broker: one for each partition of it that the broker leads.

    the partition                               the coordinator
    is led here, and was not                    is made, and begins to load
    is led here in another epoch, or committed  looks at its log
    is led elsewhere, failed, or isolated       is closed and thrown away: whoever waits gets an error
    belongs to an earlier topic of the name     stays: the later topic's counts

Isolated (`cluster.isolation`) is a partition that this broker may lead no more: what waits to be committed
there waits in vain.  When it is over and the broker leads still, the coordinator begins anew, from its log.

A key (a group id, a transactional id) belongs to the partition that it hashes to.  Whoever asks for its
coordinator gets NOT_COORDINATOR where another broker leads the partition, or may do so,
COORDINATOR_LOAD_IN_PROGRESS while this broker leads it and its log is being made, and
COORDINATOR_NOT_AVAILABLE before there is a topic.

Calls come and go on the data loop.  Nothing here survives a crash: the partitions' logs do.
"""

from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from distributedlog.broker.cluster.topics_seen import TopicsSeen
from distributedlog.controller.image import MetadataImage
from distributedlog.groups.placement import partition_of
from distributedlog.model.errors import (
    CoordinatorNotAvailableError,
    LoadInProgressError,
    NotCoordinatorError,
)
from distributedlog.replication.contract import PartitionSignals
from distributedlog.replication.partition import Partition


class PartitionCoordinator(Protocol):
    """The coordinator of one partition, for as long as this broker leads it."""

    @property
    def partition(self) -> Partition: ...

    @property
    def is_active(self) -> bool:
        """Whether it serves requests; otherwise it is loading."""
        ...

    @property
    def unreadable_count(self) -> int:
        """The records that were skipped when the log was last read back."""
        ...

    def on_progress(self) -> None:
        """Looks at the partition: it may have committed something, or lead in another epoch."""
        ...

    def close(self) -> None:
        """Ends the coordinator, for another leads or nobody: everyone who waits gets an error."""
        ...


CoordinatorT = TypeVar("CoordinatorT", bound=PartitionCoordinator)


class CoordinatorsByPartition(Generic[CoordinatorT]):
    """All coordinators of `topic` on this broker.  `image` is the newest that the loop was given."""

    def __init__(
        self,
        topic: str,
        new_coordinator: Callable[[Partition], CoordinatorT],
        signals: PartitionSignals,
        image: Callable[[], MetadataImage],
        *,
        broker_id: int,
    ) -> None:
        self._topic = topic
        self._new_coordinator = new_coordinator
        self._image = image
        self._broker_id = broker_id
        self._by_partition: dict[int, CoordinatorT] = {}
        self._isolated: set[int] = set()
        self._topics_seen = TopicsSeen()
        signals.state_changed.append(self._state_changed)
        signals.commit_advanced.append(self._commit_advanced)

    # --- partitions ----------------------------------------------------------------------------

    def _state_changed(self, partition: Partition) -> None:
        if partition.topic != self._topic:
            return
        at, is_led = partition.partition_id, partition.is_leader and not partition.is_isolated
        coordinator = self._by_partition.get(at)
        if coordinator is not None:
            is_same = coordinator.partition is partition
            if is_same and is_led:
                coordinator.on_progress()
                return
            if not is_same and not is_led:
                return  # of an earlier topic of the name
            del self._by_partition[at]
            coordinator.close()
        if partition.is_isolated:
            self._isolated.add(at)
        else:
            self._isolated.discard(at)
        if is_led:
            coordinator = self._by_partition[at] = self._new_coordinator(partition)
            coordinator.on_progress()

    def _commit_advanced(self, partition: Partition) -> None:
        if partition.topic != self._topic:
            return
        coordinator = self._by_partition.get(partition.partition_id)
        if coordinator is not None and coordinator.partition is partition:
            coordinator.on_progress()

    def close(self) -> None:
        coordinators, self._by_partition = self._by_partition, {}
        for coordinator in coordinators.values():
            coordinator.close()

    # --- finding -------------------------------------------------------------------------------

    def of_key(self, key: str) -> CoordinatorT:
        """Returns the coordinator of a key; raises what its client gets where there is none here."""
        topic = self._topics_seen.named(self._image(), self._topic)
        if topic is None:
            raise CoordinatorNotAvailableError(f"there is no topic {self._topic} yet")
        at = partition_of(key, len(topic.partitions))
        coordinator = self._by_partition.get(at)
        if coordinator is not None:
            return coordinator
        if at in self._isolated:
            raise NotCoordinatorError(f"another broker may coordinate {key!r}: this one hears no other")
        if topic.partitions[at].leader == self._broker_id:  # its log is still being made
            raise LoadInProgressError(f"the coordinator of {key!r} is being made")
        raise NotCoordinatorError(f"this broker does not coordinate {key!r}")

    def of_partition(self, partition: Partition) -> CoordinatorT:
        """Returns the coordinator whose log this partition is."""
        coordinator = self._by_partition.get(partition.partition_id)
        if coordinator is None or coordinator.partition is not partition:
            raise NotCoordinatorError(f"nobody coordinates {partition.key} here")
        return coordinator

    def all(self) -> Iterator[CoordinatorT]:
        return iter(list(self._by_partition.values()))

    def all_active(self) -> Iterator[CoordinatorT]:
        """Returns the coordinators that serve requests; the others are loading."""
        return (each for each in list(self._by_partition.values()) if each.is_active)

    # --- looking -------------------------------------------------------------------------------

    @property
    def loading_count(self) -> int:
        return sum(not each.is_active for each in self._by_partition.values())

    @property
    def is_loading(self) -> bool:
        return self.loading_count > 0

    def unreadable_counts(self) -> dict[int, int]:
        """Returns how many records of each partition were skipped when it was last read back, where any."""
        return {at: each.unreadable_count for at, each in self._by_partition.items() if each.unreadable_count}
