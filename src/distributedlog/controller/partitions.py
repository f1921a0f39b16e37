"""Changes of in-sync replicas, and elections that someone asks for.

Only the leader of a partition may change its ISR, and only as of the epochs it names:

| what is wrong                                            | error                      |
|----------------------------------------------------------|----------------------------|
| the broker epoch of the leader                           | STALE_BROKER_EPOCH (whole) |
| an unknown topic, an unknown partition                   | UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION |
| an epoch above ours: we are not the controller any more  | NOT_CONTROLLER             |
| a leader epoch below ours                                | FENCED_LEADER_EPOCH        |
| not the leader                                           | INVALID_REQUEST            |
| a partition epoch below ours                             | INVALID_UPDATE_VERSION     |
| an ISR that is none: no replica, twice, without leader   | INVALID_REQUEST            |
| more than the leader in it while it is still recovering  | INVALID_REQUEST            |
| a member that is fenced, leaving, or of another epoch    | INELIGIBLE_REPLICA         |

The broker epochs of the members matter: a follower that fetched, crashed, and came back with less must not
enter on the strength of what it fetched before.  For the same reason a member without an epoch is let in only
if it is in the ISR already.

An ISR that holds the whole target of a move ends it, in the same record (`reassignments`).
"""

from collections.abc import Iterable
from typing import Final

from distributedlog.controller.brokers import check_epoch
from distributedlog.controller.configs import ControllerConfig
from distributedlog.controller.elections import (
    Election,
    Placed,
    all_partitions,
    change_record,
    plan,
    rules_of,
)
from distributedlog.controller.image import MetadataImage, Partition, changed
from distributedlog.controller.reassignments import settle
from distributedlog.controller.records import NO_LEADER, RECOVERED, RECOVERING, PartitionChanged
from distributedlog.controller.replica_faults import mark_directory
from distributedlog.controller.requests import (
    UNKNOWN_EPOCH,
    AlterPartitionsReply,
    AlterPartitionsRequest,
    ElectionType,
    ElectLeadersReply,
    ElectLeadersRequest,
    IsrChange,
    IsrOutcome,
    ItemOutcome,
)
from distributedlog.controller.sessions.unclean import UncleanElections
from distributedlog.controller.topics import check_item_count
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import InvalidRequestError
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.schema import Message


def alter_partitions(
    image: MetadataImage, config: ControllerConfig, request: AlterPartitionsRequest
) -> tuple[list[Message], AlterPartitionsReply]:
    check_epoch(image, request.broker_id, request.broker_epoch)
    check_item_count(config, request.changes)
    records: list[Message] = []
    outcomes = []
    seen: set[tuple[object, int]] = set()
    for change in request.changes:
        error = _refusal(image, request.broker_id, change)
        if error is ErrorCode.NONE and (change.topic_id, change.partition_id) in seen:
            error = ErrorCode.INVALID_REQUEST
        seen.add((change.topic_id, change.partition_id))
        if error is not ErrorCode.NONE:
            outcomes.append(
                IsrOutcome(topic_id=change.topic_id, partition_id=change.partition_id, error=error)
            )
            continue
        record, partition = _changed_isr(image, change)
        if record is not None:
            records.append(record)
        outcomes.append(_outcome(change, partition))
    return records, AlterPartitionsReply(tuple(outcomes))


def _changed_isr(image: MetadataImage, change: IsrChange) -> tuple[PartitionChanged | None, Partition]:
    topic = image.topics[change.topic_id]
    partition = topic.partitions[change.partition_id]
    target = plan(
        partition,
        rules_of(image, topic.name),
        image.is_active,
        isr=tuple(member.broker_id for member in change.isr),
        recovery_state=change.recovery_state,
    )
    record = settle(image, topic, change.partition_id, target)
    return record, partition if record is None else changed(partition, record)


def _outcome(change: IsrChange, partition: Partition) -> IsrOutcome:
    return IsrOutcome(
        topic_id=change.topic_id,
        partition_id=change.partition_id,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        isr=partition.isr,
        recovery_state=partition.recovery_state,
    )


def _refusal(image: MetadataImage, broker_id: int, change: IsrChange) -> ErrorCode:
    topic = image.topics.get(change.topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    partition = topic.partitions.get(change.partition_id)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if change.leader_epoch > partition.leader_epoch or change.partition_epoch > partition.partition_epoch:
        return ErrorCode.NOT_CONTROLLER
    if change.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if change.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    if not _is_possible(partition, change):
        return ErrorCode.INVALID_REQUEST
    if any(
        not _may_be_in_sync(image, partition, member.broker_id, member.broker_epoch) for member in change.isr
    ):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _is_possible(partition: Partition, change: IsrChange) -> bool:
    isr = [member.broker_id for member in change.isr]
    if len(set(isr)) != len(isr) or not set(isr) <= set(partition.replicas) or partition.leader not in isr:
        return False
    if change.recovery_state == RECOVERING:
        return partition.recovery_state == RECOVERING and len(isr) == 1
    return change.recovery_state == RECOVERED


def _may_be_in_sync(image: MetadataImage, partition: Partition, broker_id: int, broker_epoch: int) -> bool:
    broker = image.brokers.get(broker_id)
    if broker is None or not broker.is_active:
        return False
    if broker_epoch == UNKNOWN_EPOCH:
        return broker_id in partition.isr
    return broker_epoch == broker.epoch


# --- elections ---------------------------------------------------------------------------------


_WHY_NOT_ELECTED: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such partition",
    ErrorCode.ELECTION_NOT_NEEDED: "it has the leader that it should have",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "its preferred replica is not alive, or not in the ISR",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "none of its replicas is alive",
}


def elect_leaders(
    image: MetadataImage, config: ControllerConfig, unclean: UncleanElections, request: ElectLeadersRequest
) -> tuple[list[Message], ElectLeadersReply]:
    if request.election not in list(ElectionType):
        raise InvalidRequestError(f"there is no election of type {request.election}")
    election = ElectionType(request.election)
    if request.partitions is not None:
        check_item_count(config, request.partitions)
    records: list[Message] = []
    outcomes = []
    for name, placed in _wanted(image, request.partitions):
        error, record = _elect(image, placed, election, unclean)
        if record is not None:
            records.append(record)
        # Of all partitions, those that need nothing are not worth a word.
        if request.partitions is not None or error is not ErrorCode.ELECTION_NOT_NEEDED:
            outcomes.append((name, ItemOutcome(error, _WHY_NOT_ELECTED.get(error))))
    return records, ElectLeadersReply(tuple(outcomes))


def _wanted(
    image: MetadataImage, names: tuple[TopicPartition, ...] | None
) -> Iterable[tuple[TopicPartition, Placed | None]]:
    if names is None:
        for placed in all_partitions(image):
            yield TopicPartition(placed.topic.name, placed.partition_id), placed
        return
    for name in dict.fromkeys(names):
        yield name, _placed(image, name)


def _placed(image: MetadataImage, name: TopicPartition) -> Placed | None:
    topic = image.topic_named(name.topic)
    partition = None if topic is None else topic.partitions.get(name.partition)
    if topic is None or partition is None:
        return None
    return Placed(topic, name.partition, partition)


def _elect(
    image: MetadataImage, placed: Placed | None, election: ElectionType, unclean: UncleanElections | None
) -> tuple[ErrorCode, PartitionChanged | None]:
    if placed is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
    topic, partition_id, partition = placed
    if election is ElectionType.PREFERRED:
        kind, unavailable = Election.PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        is_settled = partition.leader == partition.replicas[0]
    else:
        kind, unavailable = Election.UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        is_settled = partition.leader != NO_LEADER
    if is_settled:
        return ErrorCode.ELECTION_NOT_NEEDED, None
    rules = rules_of(image, topic.name)
    order = None if unclean is None else unclean.order(image, (topic.topic_id, partition_id), partition)
    target = plan(partition, rules, image.is_active, election=kind, order=order)
    directories = partition.directories
    if target.leader == NO_LEADER and kind is Election.UNCLEAN and directories:
        # There is nobody but who lost its log: whoever asks for this would rather begin empty than wait.
        found = partition._replace(directories=())
        target = plan(found, rules, image.is_active, election=kind, order=order)
        directories = mark_directory(partition, target.leader, is_lost=False)
    if target.leader == partition.leader:
        return unavailable, None
    return ErrorCode.NONE, change_record(topic, partition_id, partition, target, directories)


def balance_leaders(image: MetadataImage, elections_max: int) -> list[PartitionChanged]:
    """Elects preferred leaders where another leads, at most so many."""
    records: list[PartitionChanged] = []
    for placed in all_partitions(image):
        if len(records) >= elections_max:
            break
        partition = placed.partition
        if partition.leader == partition.replicas[0] or partition.replicas[0] not in partition.isr:
            continue
        _, record = _elect(image, placed, ElectionType.PREFERRED, None)
        if record is not None:
            records.append(record)
    return records
