"""Replicas that a broker cannot serve, or not in full, as it tells with its heartbeats.

A broker that starts recovers its logs before it asks to be unfenced, and says with that heartbeat what it
found.  The change of the partitions and the unfencing are one entry of the log, so nobody is elected on the
strength of what is not there.

| fault   | the log                                       | in sync, eligible       | may lead              |
|---------|-----------------------------------------------|-------------------------|-----------------------|
| OFFLINE | is there and cannot be opened                 | leaves as by fencing    | not while it lasts    |
| DAMAGED | was opened, and lacks records that were synced | neither                | if all others allow   |
| MISSING | was there and is gone                         | neither                 | not while it lasts    |
| ONLINE  | is open: the end of OFFLINE and MISSING       | as it was               | yes                   |
| CORRUPT | is open, and cannot be read in a place        | neither, if another can | only if no other can  |
|         |                                               | lead                    |                       |

OFFLINE and MISSING are kept in the partition's directories, as Kafka's LOST, so that the next controller
knows them, and clients are told of an offline replica.  The only replica of a partition has nobody else to
get its records from: it stays the one that led last (decision 8), leads what is sound of a damaged log, and
leads again once a lost one is back.  Who would rather begin empty asks for an unclean election.

CORRUPT is told by a broker that serves.  It asks to be released: it is going to remove committed records in
order to fetch them again.  The leader epoch rises with the release though the leader may stay, so that no
fetch from before counts for the ISR any more (decision 28).  If nobody else can lead cleanly nothing changes,
and the broker asks again when others are in sync.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

from distributedlog.controller.elections import Departed, change_record, plan, rules_of
from distributedlog.controller.features import has_eligible_leaders
from distributedlog.controller.image import (
    LOST_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    MetadataImage,
    Partition,
    Topic,
)
from distributedlog.controller.records import NO_LEADER, PartitionChanged
from distributedlog.model.errors import InvalidRequestError
from distributedlog.model.ids import Uuid

FAULTS_PER_HEARTBEAT_MAX: Final = 1_000


class Fault(IntEnum):
    ONLINE = 0
    OFFLINE = 1
    DAMAGED = 2
    MISSING = 3
    CORRUPT = 4


class ReplicaFault(NamedTuple):
    topic_id: Uuid
    partition_id: int
    fault: int


def settle_faults(
    image: MetadataImage, broker_id: int, faults: Iterable[ReplicaFault]
) -> list[PartitionChanged]:
    """Returns the changes of the partitions; what the image does not know of the broker is passed over."""
    told = {(each.topic_id, each.partition_id): each.fault for each in faults}
    if len(told) > FAULTS_PER_HEARTBEAT_MAX:
        raise InvalidRequestError(f"{len(told)} faults at once are more than {FAULTS_PER_HEARTBEAT_MAX}")
    records = []
    for (topic_id, partition_id), fault in told.items():
        topic = image.topics.get(topic_id)
        partition = None if topic is None else topic.partitions.get(partition_id)
        if topic is None or partition is None or broker_id not in partition.replicas:
            continue
        if fault == Fault.CORRUPT:
            records += _release(image, topic, partition_id, broker_id)
            continue
        directories = partition.directories
        if has_eligible_leaders(image.level):
            is_lost = fault in (Fault.OFFLINE, Fault.MISSING)
            directories = mark_directory(partition, broker_id, is_lost=is_lost)
        marked = partition._replace(directories=directories)
        departed = _departed(partition, broker_id, fault)
        target = plan(marked, rules_of(image, topic.name), image.is_active, departed=departed)
        if partition.replicas == (broker_id,) and has_eligible_leaders(image.level) and not target.isr:
            target = target._replace(last_known=(broker_id,))
        record = change_record(topic, partition_id, partition, target, directories)
        if record is not None:
            records.append(record)
    return records


def _release(image: MetadataImage, topic: Topic, partition_id: int, broker_id: int) -> list[PartitionChanged]:
    """Takes the replica out of the ISR and the ELR, in a new leader epoch, if another leads cleanly."""
    partition = topic.partitions[partition_id]
    rules = rules_of(image, topic.name)
    departed = Departed(without_disk=(broker_id,))
    target = plan(partition, rules, image.is_active, departed=departed)
    if target.leader == NO_LEADER:
        return []
    record = change_record(topic, partition_id, partition, target)
    if record is None:
        record = PartitionChanged(topic_id=topic.topic_id, partition_id=partition_id)
    record.leader = target.leader  # also where it is the same: with a leader named the leader epoch rises
    return [record]


def _departed(partition: Partition, broker_id: int, fault: int) -> Departed:
    who = (broker_id,)
    if fault == Fault.ONLINE:
        return Departed()
    if fault == Fault.OFFLINE:
        return Departed(leaving=who)
    return Departed(unclean=who) if partition.replicas == who else Departed(without_disk=who)


def mark_directory(partition: Partition, broker_id: int, *, is_lost: bool) -> tuple[Uuid, ...]:
    """Returns the directories of a partition once the broker's is lost, or is so no longer."""
    before = partition.directories or (UNASSIGNED_DIRECTORY,) * len(partition.replicas)
    own = LOST_DIRECTORY if is_lost else UNASSIGNED_DIRECTORY
    after = tuple(
        own if each == broker_id else directory
        for each, directory in zip(partition.replicas, before, strict=False)
    )
    return after if LOST_DIRECTORY in after else ()
