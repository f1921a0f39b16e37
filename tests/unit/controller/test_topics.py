import pytest

from distributedlog.controller.image import ResourceType
from distributedlog.controller.requests import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    MorePartitions,
    NewTopic,
    TopicOutcome,
    TopicsReply,
)
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import Uuid
from tests.unit.controller.stage import Stage, config


def cluster(**changes: object) -> Stage:
    stage = Stage(config(**changes))
    stage.start(1, 2, 3)
    return stage


def create(stage: Stage, *topics: NewTopic, validate_only: bool = False) -> tuple[TopicOutcome, ...]:
    return stage.ask(CreateTopicsRequest(topics, validate_only), TopicsReply).topics


def code(stage: Stage, **topic: object) -> ErrorCode:
    (outcome,) = create(stage, NewTopic(**{"name": "t", **topic}))  # type: ignore[arg-type]
    return outcome.outcome.error


def grow(stage: Stage, *more: MorePartitions, validate_only: bool = False) -> list[ErrorCode]:
    reply = stage.ask(CreatePartitionsRequest(more, validate_only), TopicsReply)
    return [topic.outcome.error for topic in reply.topics]


def test_a_topic_is_made_as_asked_and_answered_with_what_was_made() -> None:
    stage = cluster()
    topic = NewTopic(
        name="t", num_partitions=6, replication_factor=2, configs=(("cleanup.policy", "compact"),)
    )
    (outcome,) = create(stage, topic)
    assert (outcome.num_partitions, outcome.replication_factor) == (6, 2)
    made = stage.image.topics[outcome.topic_id]
    assert stage.image.topic_ids["t"] == outcome.topic_id
    assert sorted(made.partitions) == [0, 1, 2, 3, 4, 5]
    for partition in made.partitions.values():
        assert partition.isr == partition.replicas
        assert partition.leader == partition.replicas[0]
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
    assert dict(stage.image.settings_of(2, "t").items()) == {"cleanup.policy": "compact"}


def test_counts_that_are_not_given_are_as_configured() -> None:
    stage = cluster(num_partitions=4, default_replication_factor=3)
    (outcome,) = create(stage, NewTopic(name="t"))
    assert (outcome.num_partitions, outcome.replication_factor) == (4, 3)


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ({"name": ""}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": ".."}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "x" * 250}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "white space"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"num_partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"num_partitions": -2}, ErrorCode.INVALID_PARTITIONS),
        ({"num_partitions": 2**31 - 1}, ErrorCode.POLICY_VIOLATION),
        ({"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"replication_factor": 4}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"assignments": ((0, (1,)),), "num_partitions": 1}, ErrorCode.INVALID_REQUEST),
        ({"assignments": ((0, (1,)),), "replication_factor": 1}, ErrorCode.INVALID_REQUEST),
        ({"assignments": ((0, (1,)), (0, (2,)))}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": ((1, (1,)),)}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": ((0, (1, 1)),)}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": ((0, ()),)}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": ((0, (9,)),)}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": ((0, (1,)), (1, (1, 2)))}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"configs": (("no.such.setting", "1"),)}, ErrorCode.INVALID_CONFIG),
        ({"configs": (("segment.bytes", "many"),)}, ErrorCode.INVALID_CONFIG),
        ({"configs": (("segment.bytes", None),)}, ErrorCode.INVALID_CONFIG),
        ({"configs": (("min.insync.replicas", "0"),)}, ErrorCode.INVALID_CONFIG),
        ({"configs": (("unclean.leader.election.enable", "maybe"),)}, ErrorCode.INVALID_CONFIG),
        (
            {"configs": (("segment.bytes", "2000"), ("segment.bytes", "3000"))},
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
def test_what_cannot_be_made_is_refused_by_its_code(topic: dict[str, object], expected: ErrorCode) -> None:
    stage = cluster()
    entries = len(stage.log.entries)
    assert code(stage, **topic) is expected
    assert len(stage.log.entries) == entries


def test_a_name_exists_once_and_not_in_two_spellings() -> None:
    stage = cluster()
    assert code(stage, name="a.b") is ErrorCode.NONE
    assert code(stage, name="a.b") is ErrorCode.TOPIC_ALREADY_EXISTS
    assert code(stage, name="a_b") is ErrorCode.INVALID_TOPIC_EXCEPTION
    (first, second) = create(stage, NewTopic(name="c.d"), NewTopic(name="c_d"))
    assert (first.outcome.error, second.outcome.error) == (ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION)


def test_one_refused_topic_does_not_hold_up_the_others() -> None:
    stage = cluster()
    outcomes = create(stage, NewTopic(name="a"), NewTopic(name="?"), NewTopic(name="b"))
    assert [outcome.outcome.error for outcome in outcomes] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.NONE,
    ]
    assert set(stage.image.topic_ids) == {"a", "b"}


def test_a_topic_that_is_asked_for_twice_at_once_is_not_made() -> None:
    stage = cluster()
    outcomes = create(stage, NewTopic(name="a"), NewTopic(name="a"))
    assert {outcome.outcome.error for outcome in outcomes} == {ErrorCode.INVALID_REQUEST}
    assert len(stage.image.topics) == 0


def test_to_validate_only_answers_alike_and_writes_nothing() -> None:
    stage = cluster()
    topic = NewTopic(name="a", num_partitions=3, replication_factor=2)
    entries = len(stage.log.entries)
    (validated,) = create(stage, topic, validate_only=True)
    assert len(stage.log.entries) == entries
    (made,) = create(stage, topic)
    assert validated.outcome == made.outcome
    assert validated.num_partitions == made.num_partitions
    before = stage.image
    assert grow(stage, MorePartitions("a", 5), validate_only=True) == [ErrorCode.NONE]
    assert stage.image is before


def test_fenced_replicas_are_not_in_sync_and_a_partition_needs_one_that_is() -> None:
    stage = cluster()
    stage.silence(1)
    stage.create("t", (1, 2))
    assert (stage.partition("t").isr, stage.partition("t").leader) == ((2,), 2)
    assert code(stage, name="u", assignments=((0, (1,)),)) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_topic_grows_by_its_own_replication_factor() -> None:
    stage = cluster()
    create(stage, NewTopic(name="t", num_partitions=2, replication_factor=2))
    assert grow(stage, MorePartitions("t", 5)) == [ErrorCode.NONE]
    assert [len(stage.partition("t", number).replicas) for number in range(5)] == [2] * 5
    assert grow(stage, MorePartitions("t", 6, ((3, 1),))) == [ErrorCode.NONE]
    assert stage.partition("t", 5).replicas == (3, 1)


def test_growth_that_cannot_be_is_refused_by_its_code() -> None:
    stage = cluster()
    create(stage, NewTopic(name="t", num_partitions=2, replication_factor=2))
    invalid_assignment = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow(stage, MorePartitions("u", 5)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert grow(stage, MorePartitions("t", 2)) == [ErrorCode.INVALID_PARTITIONS]
    assert grow(stage, MorePartitions("t", 1)) == [ErrorCode.INVALID_PARTITIONS]
    assert grow(stage, MorePartitions("t", 10**9)) == [ErrorCode.POLICY_VIOLATION]
    assert grow(stage, MorePartitions("t", 4, ((1, 2),))) == [invalid_assignment]
    assert grow(stage, MorePartitions("t", 3, ((1,),))) == [invalid_assignment]
    assert grow(stage, MorePartitions("t", 3), MorePartitions("t", 4)) == [ErrorCode.INVALID_REQUEST] * 2


def test_a_deleted_topic_is_gone_with_its_settings_and_its_id_is_never_used_again() -> None:
    stage = cluster()
    first = stage.create("t", (1, 2), retention_ms="1000")
    reply = stage.ask(DeleteTopicsRequest(("t",)), TopicsReply)
    assert reply.topics[0].topic_id == first
    assert stage.image.topic_named("t") is None
    assert not stage.image.settings_of(ResourceType.TOPIC, "t")
    assert stage.create("t", (1, 2)) != first
    assert not stage.image.settings_of(ResourceType.TOPIC, "t")


def test_a_topic_is_deleted_by_name_or_by_id_and_what_is_not_there_is_said() -> None:
    stage = cluster()
    first, second = stage.create("a", (1,)), stage.create("b", (1,))
    nobody = Uuid(b"nobody's own id.")
    reply = stage.ask(DeleteTopicsRequest((first, "c", nobody, "b", second)), TopicsReply)
    assert [topic.outcome.error for topic in reply.topics] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert set(stage.image.topic_ids) == {"b"}


def test_a_cluster_holds_so_many_partitions_and_no_more() -> None:
    stage = cluster(partitions_max=5)
    assert code(stage, name="a", num_partitions=3) is ErrorCode.NONE
    (b, c) = create(stage, NewTopic(name="b", num_partitions=2), NewTopic(name="c", num_partitions=1))
    assert (b.outcome.error, c.outcome.error) == (ErrorCode.NONE, ErrorCode.POLICY_VIOLATION)
    stage.ask(DeleteTopicsRequest(("a",)), TopicsReply)
    assert code(stage, name="c", num_partitions=1) is ErrorCode.NONE


def test_a_full_cluster_has_a_reserve_for_internal_topics() -> None:
    stage = cluster(partitions_max=100, internal_partitions_reserve=5)
    assert code(stage, name="a", num_partitions=96) is ErrorCode.POLICY_VIOLATION
    assert code(stage, name="a", num_partitions=95) is ErrorCode.NONE
    assert code(stage, name="b", num_partitions=1) is ErrorCode.POLICY_VIOLATION
    assert code(stage, name="__consumer_offsets", num_partitions=6) is ErrorCode.POLICY_VIOLATION
    assert code(stage, name="__consumer_offsets", num_partitions=5) is ErrorCode.NONE


def test_a_request_of_too_many_items_is_refused_whole() -> None:
    stage = cluster(topics_per_request_max=2)
    request = CreateTopicsRequest(tuple(NewTopic(name=name) for name in "abc"))
    assert stage.refusal(request) is ErrorCode.POLICY_VIOLATION


def test_a_request_that_no_entry_could_hold_is_refused_and_the_controller_lives_on() -> None:
    stage = cluster()
    huge = (("cleanup.policy", ",".join(["compact"] * 3_900)),)
    request = CreateTopicsRequest(tuple(NewTopic(name=f"t{number}", configs=huge) for number in range(300)))
    assert stage.refusal(request) is ErrorCode.POLICY_VIOLATION
    assert code(stage, name="small") is ErrorCode.NONE
