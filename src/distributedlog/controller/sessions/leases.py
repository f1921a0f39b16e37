"""Which coordinators may answer reads: what the controller tells brokers of it with each heartbeat.

A broker that coordinates answers reads by a lease, which each answered heartbeat extends (decision 14).  The
leadership of a coordinator's partition may move away from a broker that is alive and whose image lags, so an
answer also carries two offsets of the metadata log:

    lease offset     the last change that took such a leadership from this broker, or that unfenced it: before
                     that it lost all that it led.  The lease counts once the broker has applied that change
                     where it answers.
    settled offset   up to here every other broker that may hold a lease has applied what was taken from it.
                     Who took over by a change up to here has no predecessor that still answers.

A broker may hold a lease while the image shows it active.  One that is fenced, or shutting down, has none:
it asked for that, and dropped its lease before; or its session, which is longer than a lease, has expired; or
a new process has registered, which comes after the old one is gone.

SOFT STATE, all of it.  A new controller knows neither who lost what, nor how far brokers are: it begins with
the end of the log for everybody, and each is settled with the first heartbeat that says it has applied that.
"""

from collections.abc import Iterable
from typing import Final

from distributedlog.controller.image import MetadataImage, Topic
from distributedlog.controller.records import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    UNFENCE,
    BrokerRegistrationChange,
    PartitionChanged,
    TopicRemoved,
)
from distributedlog.model.internal_topics import INTERNAL_TOPICS
from distributedlog.protocol.schema import Message

NO_OFFSET: Final = -1


class Leases:
    """How far brokers have applied what was taken from them."""

    def __init__(self) -> None:
        self._floor = NO_OFFSET
        self._lost: dict[int, int] = {}
        """The offset of the last change that took a coordinator's partition from a broker."""
        self._unfenced: dict[int, int] = {}
        """The offset at which a broker was unfenced last.  By its lease it also leads other partitions as if
        nobody else could (decision 35), of which it may have lost some."""
        self._applied: dict[int, int] = {}

    def restart(self, last_offset: int) -> None:
        """Begins anew, as a new controller does: everybody may have lost something up to `last_offset`."""
        self._floor = last_offset
        self._lost.clear()
        self._unfenced.clear()
        self._applied.clear()

    def note_changes(self, before: MetadataImage, messages: Iterable[Message], offset: int) -> None:
        """Notes who loses a coordinator's partition, or is unfenced, by these records of one entry."""
        for message in messages:
            if isinstance(message, PartitionChanged) and message.leader != NO_LEADER_CHANGE:
                topic = before.topics.get(message.topic_id)
                partition = None if topic is None else topic.partitions.get(message.partition_id)
                if partition is not None and _is_coordinated(topic) and message.leader != partition.leader:
                    self.note_lost(partition.leader, offset)
            elif isinstance(message, TopicRemoved):
                topic = before.topics.get(message.topic_id)
                for partition in topic.partitions.values() if topic and _is_coordinated(topic) else ():
                    self.note_lost(partition.leader, offset)
            elif isinstance(message, BrokerRegistrationChange) and message.fenced == UNFENCE:
                self._unfenced[message.broker_id] = offset

    def note_lost(self, broker_id: int, offset: int) -> None:
        if broker_id != NO_LEADER:
            self._lost[broker_id] = offset

    def note_applied(self, broker_id: int, offset: int) -> None:
        self._applied[broker_id] = max(offset, self._applied.get(broker_id, NO_OFFSET))

    def lease_offset(self, broker_id: int) -> int:
        return max(self._loss_offset(broker_id), self._unfenced.get(broker_id, NO_OFFSET))

    def _loss_offset(self, broker_id: int) -> int:
        return max(self._floor, self._lost.get(broker_id, NO_OFFSET))

    def settled_offset(self, active: Iterable[int], broker_id: int, last_offset: int) -> int:
        """Returns the settled offset as this broker may know it; `active` are those that may hold a lease."""
        behind = [
            applied
            for each in active
            if each != broker_id and (applied := self._applied.get(each, NO_OFFSET)) < self._loss_offset(each)
        ]
        return min(behind, default=last_offset)


def _is_coordinated(topic: Topic | None) -> bool:
    return topic is not None and topic.name in INTERNAL_TOPICS
