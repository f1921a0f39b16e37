"""What this broker tells the controller of its replicas: which it cannot serve, or not in full.

A fault is noted when a partition's log is looked for, and told until a controller has taken it
(`controller.replica_faults`).  A log that is gone is not made anew before that, and not before somebody leads
the partition: else the records would be gone for all who could still bring them back.  On the data loop.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from distributedlog.broker.observability.metrics import Family, FamilyKind, Sample
from distributedlog.controller.replica_faults import Fault, ReplicaFault
from distributedlog.model.ids import TopicPartition, Uuid

_WORDS: Final = {
    Fault.OFFLINE: "the log of %s cannot be opened; the controller is told that this replica is offline: %s",
    Fault.MISSING: "the log of %s is missing; the controller is told that this replica is offline: %s",
    Fault.DAMAGED: "the log of %s is damaged; the controller is told, and this replica is not eligible: %s",
    Fault.CORRUPT: "the log of %s is corrupt; another replica is to lead, and this one to fetch it again: %s",
}

_logger = logging.getLogger("distributedlog.broker")


class ReplicaFaults:
    def __init__(self) -> None:
        self.untaken: dict[tuple[Uuid, int], ReplicaFault] = {}
        """Those that no controller has taken yet."""
        self.present: dict[tuple[Uuid, int], Fault] = {}
        """The faults of replicas, as long as they last; damage until the replica is in sync again."""
        self._taken: set[ReplicaFault] = set()
        self._listeners: list[Callable[[ReplicaFault], None]] = []

    def on_fault(self, listener: Callable[[ReplicaFault], None]) -> None:
        """Gives `listener` those that nobody has taken now, and every later one as it is noted."""
        self._listeners.append(listener)
        for fault in self.untaken.values():
            listener(fault)

    def note(self, topic_id: Uuid, key: TopicPartition, fault: Fault, reason: object) -> None:
        """Notes what is new: a fault that is there already is told once."""
        where = (topic_id, key.partition)
        if self.present.get(where) is fault:
            return
        if fault is Fault.ONLINE:
            self.present.pop(where, None)
            _logger.info("the log of %s is open again", key)
        else:
            self.present[where] = fault
            _logger.error(_WORDS[fault], key, reason)
        self._taken = {each for each in self._taken if each[:2] != where}
        self._tell(ReplicaFault(topic_id, key.partition, fault))

    def _tell(self, told: ReplicaFault) -> None:
        self.untaken[told[:2]] = told
        for listener in self._listeners:
            listener(told)

    def tell_again(self, topic_id: Uuid, partition_id: int) -> None:
        """Tells what lasts once more: the controller could not act on it before."""
        fault = self.present.get((topic_id, partition_id))
        if fault is not None:
            self._tell(ReplicaFault(topic_id, partition_id, fault))

    def forget(self, topic_id: Uuid, partition_id: int) -> None:
        """Forgets a replica that this broker is not to have any more, or that has healed."""
        self.present.pop((topic_id, partition_id), None)
        self.untaken.pop((topic_id, partition_id), None)

    def take(self, faults: Iterable[ReplicaFault]) -> None:
        """Notes that a controller has acted on these."""
        for fault in faults:
            self._taken.add(fault)
            if self.untaken.get(fault[:2]) == fault:
                del self.untaken[fault[:2]]

    def is_taken(self, topic_id: Uuid, partition_id: int, fault: Fault) -> bool:
        return ReplicaFault(topic_id, partition_id, fault) in self._taken

    def families(self) -> Iterator[Family]:
        counts = dict.fromkeys((Fault.OFFLINE, Fault.DAMAGED, Fault.MISSING, Fault.CORRUPT), 0)
        for fault in self.present.values():
            counts[fault] += 1
        samples = [Sample({"fault": fault.name.lower()}, count) for fault, count in counts.items()]
        meaning = "Replicas whose log cannot be opened, was found damaged, is missing, or is corrupt."
        yield Family(FamilyKind.GAUGE, "dlog_replica_faults", meaning, samples)
