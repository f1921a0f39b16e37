"""Moves of partitions from some brokers to others (KIP-455).

A move is part of the partition's own record, so any next controller goes on with it:

    replicas = the target, in its order, then who is to be removed
    adding   = in the target and not in the original       removing = in the original and not in the target
    original = the replicas before the first move that has not ended, in their order

| from    | event                                | to                                                    |
|---------|--------------------------------------|-------------------------------------------------------|
| resting | a target                             | moving, or resting there if all of it is in sync      |
| moving  | the ISR holds the whole target       | resting there; others leave, and one of it leads      |
| moving  | another target                       | moving there, without who was added for the former    |
| moving  | cancelled, or the original as target | resting at the original                               |

Invariants: the original replicas stay until the target is in sync, so there are never fewer copies than there
were; who is being added does not count for the minimum of in-sync replicas (`Partition.replication_factor`),
so a move cannot make a partition refuse writes.  Whoever is dropped must leave somebody who holds all that is
committed: else the request is refused, and nothing is lost.  The leader epoch rises when somebody is dropped
(`elections.change_record`).
"""

from collections import Counter
from collections.abc import Collection, Iterator

from distributedlog.controller.configs import ControllerConfig
from distributedlog.controller.elections import Ids, Target, change_record, plan, rules_of
from distributedlog.controller.image import (
    LOST_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    MetadataImage,
    Partition,
    Topic,
)
from distributedlog.controller.placement import check_assignment
from distributedlog.controller.records import PartitionChanged
from distributedlog.controller.requests import (
    AlterReassignmentsReply,
    AlterReassignmentsRequest,
    ItemOutcome,
    failure,
)
from distributedlog.controller.topics import check_item_count
from distributedlog.model.errors import (
    DlogError,
    InvalidAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    NoReassignmentError,
    UnknownTopicError,
)
from distributedlog.model.ids import TopicPartition, Uuid
from distributedlog.protocol.schema import Message


def find_target(partition: Partition) -> Ids:
    """Returns the replicas of the partition once its move is done: those it has, if none is under way."""
    return _without(partition.replicas, partition.removing)


def find_original(partition: Partition) -> Ids:
    """Returns the replicas before the move."""
    staying = _without(partition.replicas, partition.adding)
    return partition.original if sorted(partition.original) == sorted(staying) else staying


# --- steps of one partition --------------------------------------------------------------------


def begin(partition: Partition, target: Ids) -> Partition:
    """Returns the partition on its way to the target, with the replicas that it has on the way."""
    original = find_original(partition)
    adding, removing = _without(target, original), _without(original, target)
    return _with_replicas(
        partition,
        (*target, *removing),
        adding=adding,
        removing=removing,
        original=original if adding or removing else (),
    )


def finish(partition: Partition, isr: Ids) -> Partition | None:
    """Returns the partition at rest if `isr` holds the whole target of a move; else None."""
    target = find_target(partition)
    if not partition.is_moving or not set(target) <= set(isr):
        return None
    return _with_replicas(partition, target)


def settle(
    image: MetadataImage,
    topic: Topic,
    partition_id: int,
    target: Target,
    moving: Partition | None = None,
) -> PartitionChanged | None:
    """Returns the record by which a partition becomes what is planned for it, with the end of its move if the
    planned ISR allows it.  `moving` is the partition if a move is begun or cancelled with the same record."""
    partition = topic.partitions[partition_id]
    ended = finish(moving or partition, target.isr)
    if ended is not None:
        rules = rules_of(image, topic.name)
        isr = tuple(each for each in target.isr if each in ended.replicas)
        target = plan(ended, rules, image.is_active, isr=isr, recovery_state=target.recovery_state)
    return change_record(topic, partition_id, partition, target, moved=ended or moving)


def _with_replicas(
    partition: Partition, replicas: Ids, *, adding: Ids = (), removing: Ids = (), original: Ids = ()
) -> Partition:
    """Leaves the ISR and the leader to the plan."""
    return partition._replace(
        replicas=replicas,
        adding=adding,
        removing=removing,
        original=original,
        elr=_within(partition.elr, replicas),
        last_known_elr=_within(partition.last_known_elr, replicas),
        directories=_directories_of(partition, replicas),
    )


def _check_held(partition: Partition, replicas: Ids) -> None:
    """Raises if none of these replicas holds all that is committed, while another one does.  Who led last
    counts only if nobody is in sync or eligible: it may lack what was committed."""
    holders = (*partition.isr, *partition.elr) or partition.last_known_elr
    if holders and set(holders).isdisjoint(replicas):
        raise InvalidAssignmentError(
            f"only {list(holders)} hold all that is committed, and none of them would stay: "
            "wait until another replica is in sync"
        )


def _directories_of(partition: Partition, replicas: Ids) -> tuple[Uuid, ...]:
    lost = {each for each in partition.replicas if partition.is_lost(each)}
    if lost.isdisjoint(replicas):
        return ()
    return tuple(LOST_DIRECTORY if each in lost else UNASSIGNED_DIRECTORY for each in replicas)


def _without(ids: Ids, others: Collection[int]) -> Ids:
    return tuple(each for each in ids if each not in others)


def _within(ids: Ids, others: Collection[int]) -> Ids:
    return tuple(each for each in ids if each in others)


# --- requests ----------------------------------------------------------------------------------


def alter_reassignments(
    image: MetadataImage, config: ControllerConfig, request: AlterReassignmentsRequest
) -> tuple[list[Message], AlterReassignmentsReply]:
    check_item_count(config, request.partitions)
    counts = Counter(name for name, _ in request.partitions)
    records: list[Message] = []
    outcomes = []
    for name, target in request.partitions:
        try:
            if counts[name] > 1:
                raise InvalidRequestError(f"{name} is in the request more than once")
            record = _alter(image, name, target, request.allow_replication_factor_change)
        except DlogError as error:
            outcomes.append((name, failure(error)))
            continue
        if record is not None:
            records.append(record)
        outcomes.append((name, ItemOutcome()))
    return records, AlterReassignmentsReply(tuple(outcomes))


def _alter(
    image: MetadataImage, name: TopicPartition, target: Ids | None, may_change_factor: bool
) -> PartitionChanged | None:
    topic = image.topic_named(name.topic)
    partition = None if topic is None else topic.partitions.get(name.partition)
    if topic is None or partition is None:
        raise UnknownTopicError(f"there is no partition {name}")
    if target is None:
        if not partition.is_moving:
            raise NoReassignmentError(f"{name} is not being moved")
        moving = _with_replicas(partition, find_original(partition))
    else:
        check_assignment(image, target, None)
        if not may_change_factor and len(target) != partition.replication_factor:
            raise InvalidReplicationFactorError(
                f"{name} has {partition.replication_factor} replicas, and {len(target)} are named"
            )
        moving = begin(partition, target)
    return _begin_moving(image, topic, name.partition, moving)


def begin_move(image: MetadataImage, topic: Topic, partition_id: int, target: Ids) -> PartitionChanged | None:
    """Returns the record by which a partition is on its way to a target that is known to be possible."""
    return _begin_moving(image, topic, partition_id, begin(topic.partitions[partition_id], target))


def _begin_moving(
    image: MetadataImage, topic: Topic, partition_id: int, moving: Partition
) -> PartitionChanged | None:
    partition = topic.partitions[partition_id]
    _check_held(partition, moving.replicas)
    isr = _within(partition.isr, moving.replicas)
    planned = plan(moving, rules_of(image, topic.name), image.is_active, isr=isr)
    return settle(image, topic, partition_id, planned, moving)


def list_moving(image: MetadataImage) -> Iterator[tuple[TopicPartition, Partition]]:
    """Lists the partitions that are being moved, by name."""
    for name, topic_id in sorted(image.topic_ids.items()):
        for partition_id, partition in sorted(image.topics[topic_id].partitions.items()):
            if partition.is_moving:
                yield TopicPartition(name, partition_id), partition
