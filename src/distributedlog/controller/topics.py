"""Topics: created, grown, configured, deleted.

Each topic of a request stands for itself: one that is refused does not hold up the others.  With
`validate_only` everything is checked, the response is as ever, and nothing is written.

A topic's id is drawn when it is created and is never used again, so what belonged to a deleted topic is never
taken for that of a later one with the same name.

A new partition's ISR is its active replicas; one without any could not be led, and is refused.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from distributedlog.controller.cluster_settings import read_cluster_setting
from distributedlog.controller.configs import (
    ControllerConfig,
    ResourceRoom,
    check_settings,
    edit_settings,
    replace_settings,
)
from distributedlog.controller.elections import change_record, partitions_of, plan, rules_of
from distributedlog.controller.image import ConfigResource, MetadataImage, ResourceType, Topic
from distributedlog.controller.placement import (
    Chance,
    Replicas,
    active_of,
    candidates,
    check_assignment,
    place,
)
from distributedlog.controller.records import ConfigChanged, PartitionCreated, TopicCreated, TopicRemoved
from distributedlog.controller.requests import (
    AS_CONFIGURED,
    AlterConfigsRequest,
    ConfigsReply,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    IncrementalAlterConfigsRequest,
    ItemOutcome,
    MorePartitions,
    NewTopic,
    TopicOutcome,
    TopicsReply,
    failure,
)
from distributedlog.model.cluster_settings import (
    DEFAULT_REPLICATION_FACTOR,
    MIN_INSYNC_REPLICAS,
    NUM_PARTITIONS,
    UNCLEAN_ELECTION,
)
from distributedlog.model.errors import (
    ConfigError,
    DlogError,
    InvalidAssignmentError,
    InvalidNameError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    PolicyViolationError,
    TopicExistsError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from distributedlog.model.ids import ZERO_UUID, Uuid, check_topic_name
from distributedlog.model.internal_topics import INTERNAL_TOPICS
from distributedlog.protocol.schema import Message


def check_item_count(config: ControllerConfig, items: Sequence[object]) -> None:
    if len(items) > config.topics_per_request_max:
        raise PolicyViolationError(
            f"{len(items)} items at once are more than {config.topics_per_request_max}: ask in parts"
        )


class _Room:
    """How many partitions may still be made."""

    def __init__(self, image: MetadataImage, config: ControllerConfig) -> None:
        internal = others = 0
        for topic in image.topics.values():
            if topic.name in INTERNAL_TOPICS:
                internal += len(topic.partitions)
            else:
                others += len(topic.partitions)
        reserve = min(config.internal_partitions_reserve, config.partitions_max // 10)
        self._left = config.partitions_max - internal - others
        self._left_for_others = config.partitions_max - reserve - others

    def check(self, name: str, partitions: int) -> None:
        """Raises where the topic may not have so many more, before anything is made of the number."""
        left = self._left if name in INTERNAL_TOPICS else min(self._left, self._left_for_others)
        if partitions > left:
            raise PolicyViolationError(
                f"this cluster may hold {max(0, left)} partitions more, and not {partitions}"
            )

    def take(self, name: str, partitions: int) -> None:
        self._left -= partitions
        if name not in INTERNAL_TOPICS:
            self._left_for_others -= partitions


# --- create ------------------------------------------------------------------------------------


def create_topics(
    image: MetadataImage, config: ControllerConfig, chance: Chance, request: CreateTopicsRequest
) -> tuple[list[Message], TopicsReply]:
    check_item_count(config, request.topics)
    counts = Counter(topic.name for topic in request.topics)
    unified = {_unified(name): name for name in image.topic_ids if _may_collide(name)}
    room = _Room(image, config)
    records: list[Message] = []
    outcomes = []
    for topic in request.topics:
        try:
            if counts[topic.name] > 1:
                raise InvalidRequestError(f"the topic {topic.name!r} is in the request more than once")
            _check_new_name(image, topic.name, unified)
            made, outcome = _create_topic(image, chance, topic, room)
        except DlogError as error:
            outcomes.append(TopicOutcome(name=topic.name, outcome=failure(error)))
            continue
        if _may_collide(topic.name):
            unified[_unified(topic.name)] = topic.name
        records += made
        outcomes.append(outcome)
    return ([] if request.validate_only else records), TopicsReply(tuple(outcomes))


def _may_collide(name: str) -> bool:
    return "." in name or "_" in name


def _unified(name: str) -> str:
    """Metrics are named after topics, and write '.' as '_'."""
    return name.replace(".", "_")


def _check_new_name(image: MetadataImage, name: str, unified: Mapping[str, str]) -> None:
    check_topic_name(name)
    if name in image.topic_ids:
        raise TopicExistsError(f"the topic {name!r} exists already")
    other = unified.get(_unified(name)) if _may_collide(name) else None
    if other is not None:
        raise InvalidNameError(f"the topic name {name!r} differs from {other!r} only in '.' and '_'")


def _create_topic(
    image: MetadataImage, chance: Chance, topic: NewTopic, room: _Room
) -> tuple[list[Message], TopicOutcome]:
    settings = _new_settings(topic)
    if topic.assignments:
        assignments = _assigned_by_hand(image, topic, room)
    else:
        assignments = _assigned_by_count(image, chance, topic, room)
    topic_id = chance.new_uuid()
    while topic_id in image.topics:
        topic_id = chance.new_uuid()
    records: list[Message] = [TopicCreated(name=topic.name, topic_id=topic_id), *settings]
    records += _new_partitions(image, topic_id, 0, assignments)
    room.take(topic.name, len(assignments))
    outcome = TopicOutcome(
        name=topic.name,
        topic_id=topic_id,
        num_partitions=len(assignments),
        replication_factor=len(assignments[0]),
    )
    return records, outcome


def _new_settings(topic: NewTopic) -> list[ConfigChanged]:
    names = [name for name, _ in topic.configs]
    if len(set(names)) != len(names):
        raise InvalidRequestError(f"the topic {topic.name!r} is given a setting twice")
    nulls = [name for name, value in topic.configs if value is None]
    if nulls:
        raise ConfigError(f"the setting {nulls[0]!r} has no value")
    settings = {name: value for name, value in topic.configs if value is not None}
    check_settings(ConfigResource(ResourceType.TOPIC, topic.name), settings)
    return [
        ConfigChanged(resource_type=ResourceType.TOPIC, resource_name=topic.name, name=name, value=value)
        for name, value in sorted(settings.items())
    ]


def _assigned_by_hand(image: MetadataImage, topic: NewTopic, room: _Room) -> list[Replicas]:
    if topic.replication_factor != AS_CONFIGURED or topic.num_partitions != AS_CONFIGURED:
        raise InvalidRequestError(
            "assignments say how many partitions and replicas there are: leave both at -1"
        )
    room.check(topic.name, len(topic.assignments))
    by_partition = dict(topic.assignments)
    if len(by_partition) != len(topic.assignments):
        raise InvalidAssignmentError("a partition is assigned more than once")
    if by_partition.keys() != set(range(len(by_partition))):
        raise InvalidAssignmentError("the assigned partitions are not numbered from 0 without gaps")
    replication_factor = None
    for _, replicas in sorted(by_partition.items()):
        check_assignment(image, replicas, replication_factor)
        replication_factor = len(replicas)
    return [by_partition[number] for number in range(len(by_partition))]


def _assigned_by_count(image: MetadataImage, chance: Chance, topic: NewTopic, room: _Room) -> list[Replicas]:
    factor, count = topic.replication_factor, topic.num_partitions
    if factor == 0 or factor < AS_CONFIGURED:
        raise InvalidReplicationFactorError(f"a replication factor of {factor} is impossible")
    if count == 0 or count < AS_CONFIGURED:
        raise InvalidPartitionsError(f"{count} partitions are impossible")
    count = read_cluster_setting(image, NUM_PARTITIONS) if count == AS_CONFIGURED else count
    room.check(topic.name, count)
    brokers = candidates(image)
    if factor == AS_CONFIGURED:
        factor = read_cluster_setting(image, DEFAULT_REPLICATION_FACTOR)
        if factor > len(brokers):
            raise InvalidReplicationFactorError(
                f"{DEFAULT_REPLICATION_FACTOR} is {factor}, and {len(brokers)} brokers can take a replica: "
                "start more, or ask for fewer replicas"
            )
    return place(brokers, count, factor, chance)


def _new_partitions(
    image: MetadataImage, topic_id: Uuid, first: int, assignments: Sequence[Replicas]
) -> list[PartitionCreated]:
    records = []
    for partition_id, replicas in enumerate(assignments, first):
        isr = active_of(image, replicas)
        if not isr:
            raise InvalidAssignmentError(
                f"all replicas of partition {partition_id} are fenced or shutting down: nobody could lead it"
            )
        records.append(
            PartitionCreated(
                partition_id=partition_id,
                topic_id=topic_id,
                replicas=list(replicas),
                isr=list(isr),
                leader=isr[0],
                leader_epoch=0,
                partition_epoch=0,
            )
        )
    return records


# --- grow --------------------------------------------------------------------------------------


def create_partitions(
    image: MetadataImage, config: ControllerConfig, chance: Chance, request: CreatePartitionsRequest
) -> tuple[list[Message], TopicsReply]:
    check_item_count(config, request.topics)
    counts = Counter(topic.name for topic in request.topics)
    room = _Room(image, config)
    records: list[Message] = []
    outcomes = []
    for more in request.topics:
        try:
            if counts[more.name] > 1:
                raise InvalidRequestError(f"the topic {more.name!r} is in the request more than once")
            records += _grow(image, chance, more, room)
        except DlogError as error:
            outcomes.append(TopicOutcome(name=more.name, outcome=failure(error)))
        else:
            outcomes.append(TopicOutcome(name=more.name, num_partitions=more.count))
    return ([] if request.validate_only else records), TopicsReply(tuple(outcomes))


def _grow(image: MetadataImage, chance: Chance, more: MorePartitions, room: _Room) -> list[PartitionCreated]:
    topic = image.topic_named(more.name)
    if topic is None:
        raise UnknownTopicError(f"there is no topic {more.name!r}")
    present = len(topic.partitions)
    if more.count <= present:
        raise InvalidPartitionsError(f"the topic has {present} partitions: {more.count} would be no increase")
    additional = more.count - present
    room.check(more.name, additional)
    replication_factor = topic.partitions[0].replication_factor
    if more.assignments is None:
        assignments = place(candidates(image), additional, replication_factor, chance)
    else:
        if len(more.assignments) != additional:
            raise InvalidAssignmentError(
                f"{additional} partitions are to be added, and {len(more.assignments)} are assigned"
            )
        for replicas in more.assignments:
            check_assignment(image, replicas, replication_factor)
        assignments = list(more.assignments)
    records = _new_partitions(image, topic.topic_id, present, assignments)
    room.take(more.name, additional)
    return records


# --- delete ------------------------------------------------------------------------------------


def delete_topics(
    image: MetadataImage, config: ControllerConfig, request: DeleteTopicsRequest
) -> tuple[list[Message], TopicsReply]:
    check_item_count(config, request.topics)
    found = [_find(image, wanted) for wanted in request.topics]
    counts = Counter(topic.topic_id for topic in found if isinstance(topic, Topic))
    records: list[Message] = []
    outcomes = []
    for wanted, topic in zip(request.topics, found, strict=True):
        if isinstance(topic, DlogError):
            name, topic_id = (wanted, ZERO_UUID) if isinstance(wanted, str) else (None, wanted)
            outcomes.append(TopicOutcome(name=name, topic_id=topic_id, outcome=failure(topic)))
        elif counts[topic.topic_id] > 1:
            error = InvalidRequestError(f"the topic {topic.name!r} is in the request more than once")
            outcomes.append(TopicOutcome(name=topic.name, topic_id=topic.topic_id, outcome=failure(error)))
        else:
            records.append(TopicRemoved(topic_id=topic.topic_id))
            outcomes.append(TopicOutcome(name=topic.name, topic_id=topic.topic_id))
    return records, TopicsReply(tuple(outcomes))


def _find(image: MetadataImage, wanted: str | Uuid) -> Topic | DlogError:
    if isinstance(wanted, str):
        return image.topic_named(wanted) or UnknownTopicError(f"there is no topic {wanted!r}")
    return image.topics.get(wanted) or UnknownTopicIdError(f"there is no topic of the id {wanted}")


# --- configs -----------------------------------------------------------------------------------


def alter_configs(
    image: MetadataImage,
    config: ControllerConfig,
    request: AlterConfigsRequest | IncrementalAlterConfigsRequest,
    next_offset: int,
) -> tuple[list[Message], ConfigsReply]:
    check_item_count(config, request.resources)
    counts = Counter(resource for resource, _ in request.resources)
    room = ResourceRoom(image)
    changes: list[ConfigChanged] = []
    outcomes = []
    for resource, wanted in request.resources:
        try:
            if counts[resource] > 1:
                raise InvalidRequestError(f"{resource.name!r} is in the request more than once")
            if isinstance(wanted, tuple):
                made = edit_settings(image, resource, wanted)
            else:
                made = replace_settings(image, resource, wanted)
            if made:
                room.take(resource)
        except DlogError as error:
            outcomes.append((resource, failure(error)))
            continue
        changes += made
        outcomes.append((resource, ItemOutcome()))
    reply = ConfigsReply(tuple(outcomes))
    if request.validate_only or not changes:
        return [], reply
    return [*changes, *_consequences(image, config, changes, next_offset)], reply


def _consequences(
    image: MetadataImage, config: ControllerConfig, changes: Sequence[ConfigChanged], next_offset: int
) -> list[Message]:
    """Returns what new settings mean for partitions, in the same entry.

    With a lower min.insync.replicas the ISR as it is may commit again, from this entry on: who is only
    eligible would miss that, and is so no longer.  With unclean elections allowed, the leaderless are led.
    """
    decisive = [change for change in changes if change.name in (MIN_INSYNC_REPLICAS, UNCLEAN_ELECTION)]
    if not decisive:
        return []
    concerned = {change.resource_name for change in decisive}
    every_topic = any(change.resource_type == ResourceType.BROKER for change in decisive)
    after = image.apply(changes, next_offset, level_max=config.level_max)
    records: list[Message] = []
    for name, topic_id in sorted(after.topic_ids.items()):
        if not every_topic and name not in concerned:
            continue
        rules = rules_of(after, name)
        for topic, partition_id, partition in partitions_of(after.topics[topic_id]):
            record = change_record(topic, partition_id, partition, plan(partition, rules, after.is_active))
            if record is not None:
                records.append(record)
    return records
