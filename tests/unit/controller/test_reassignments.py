from distributedlog.controller.image import Partition
from distributedlog.controller.reassignments import find_original, find_target, list_moving
from distributedlog.controller.records import NO_LEADER
from distributedlog.controller.requests import (
    AlterPartitionsReply,
    AlterPartitionsRequest,
    AlterReassignmentsReply,
    AlterReassignmentsRequest,
    CreatePartitionsRequest,
    IsrChange,
    IsrMember,
    ItemOutcome,
    MorePartitions,
)
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import TopicPartition
from tests.unit.controller.stage import Stage, config

HERE = TopicPartition("t", 0)


class Scene:
    """Five brokers, one partition on the first three."""

    def __init__(self, *replicas: int, **settings: str) -> None:
        self.stage = Stage()
        self.stage.start(1, 2, 3, 4, 5)
        self.stage.create("t", replicas or (1, 2, 3), **settings)

    @property
    def partition(self) -> Partition:
        return self.stage.partition("t")

    def move(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        return self.partition.replicas, self.partition.adding, self.partition.removing

    def eligible(self) -> tuple[int, ...]:
        return self.partition.elr

    def alter(self, *target: int, name: TopicPartition = HERE, fixed: bool = False) -> ItemOutcome:
        """No target cancels."""
        request = AlterReassignmentsRequest(((name, target or None),), not fixed)
        ((named, outcome),) = self.stage.ask(request, AlterReassignmentsReply).partitions
        assert named == name
        return outcome

    def sync(self, *isr: int) -> None:
        """The leader has these in sync."""
        partition = self.partition
        topic = self.stage.image.topic_named("t")
        assert topic is not None
        members = tuple(IsrMember(each, self.stage.epochs[each]) for each in isr)
        change = IsrChange(topic.topic_id, 0, partition.leader_epoch, partition.partition_epoch, members)
        request = AlterPartitionsRequest(partition.leader, self.stage.epochs[partition.leader], (change,))
        (outcome,) = self.stage.ask(request, AlterPartitionsReply).changes
        assert outcome.error is ErrorCode.NONE


def test_a_move_adds_then_removes_when_the_isr_holds_the_whole_target() -> None:
    scene = Scene()
    assert scene.alter(4, 5, 1).error is ErrorCode.NONE
    assert scene.move() == ((4, 5, 1, 2, 3), (4, 5), (2, 3))
    assert scene.partition.isr == (1, 2, 3)
    scene.sync(1, 2, 3, 4)
    assert scene.move() == ((4, 5, 1, 2, 3), (4, 5), (2, 3)), "5 is not in sync yet"
    scene.sync(1, 2, 3, 4, 5)
    assert scene.move() == ((4, 5, 1), (), ())
    assert set(scene.partition.isr) == {4, 5, 1}
    assert scene.partition.leader == 1
    assert scene.partition.original == ()


def test_a_leader_that_is_removed_is_succeeded_by_the_first_of_the_target() -> None:
    scene = Scene()
    epoch = scene.partition.leader_epoch
    scene.alter(5, 4)
    scene.sync(1, 2, 3, 4, 5)
    assert scene.move() == ((5, 4), (), ())
    assert (scene.partition.leader, scene.partition.leader_epoch) == (5, epoch + 1)


def test_an_order_and_fewer_replicas_are_there_at_once() -> None:
    scene = Scene()
    assert scene.alter(3, 1).error is ErrorCode.NONE
    assert scene.move() == ((3, 1), (), ())
    assert scene.partition.isr == (1, 3)
    assert scene.partition.leader == 1


def test_cancel_restores_the_replicas_and_their_order() -> None:
    scene = Scene()
    scene.alter(3, 4, 5)
    scene.sync(1, 2, 3, 4)
    assert scene.alter().error is ErrorCode.NONE
    assert scene.move() == ((1, 2, 3), (), ())
    assert scene.partition.isr == (1, 2, 3)
    assert scene.partition.leader == 1


def test_a_leader_that_was_being_added_gives_way_when_the_move_is_cancelled() -> None:
    scene = Scene(1, 2)
    scene.alter(3, 4)
    scene.sync(1, 3)
    scene.stage.silence(1)
    assert scene.partition.leader == 3
    outcome = scene.alter()
    assert outcome.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT, "only 3 holds all"
    assert scene.partition.leader == 3
    scene.sync(3, 2)
    assert scene.alter().error is ErrorCode.NONE
    assert (scene.partition.leader, scene.partition.isr, scene.move()) == (2, (2,), ((1, 2), (), ()))


def test_another_target_drops_what_was_being_added() -> None:
    scene = Scene()
    scene.alter(1, 2, 4)
    scene.sync(1, 2, 3, 4)
    scene.alter(5, 2, 4)
    assert find_original(scene.partition) == (1, 2, 4), "the first move had ended"
    scene.alter(3, 2)
    assert scene.move() == ((3, 2, 1, 4), (3,), (1, 4))
    assert find_target(scene.partition) == (3, 2)
    assert find_original(scene.partition) == (1, 2, 4)
    assert set(scene.partition.isr) == {1, 2, 4}


def test_the_original_as_a_target_ends_the_move() -> None:
    scene = Scene()
    scene.alter(1, 2, 4)
    scene.alter(1, 2, 3)
    assert scene.move() == ((1, 2, 3), (), ())
    assert scene.alter().error is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_another_controller_goes_on_with_the_move() -> None:
    scene = Scene()
    scene.alter(4, 5)
    scene.stage.failover()
    for each in (1, 2, 3, 4, 5):
        scene.stage.heartbeat(each)
    scene.sync(1, 2, 3, 4, 5)
    assert scene.move() == ((4, 5), (), ())


def test_a_new_replica_that_dies_in_the_middle_is_waited_for() -> None:
    scene = Scene()
    scene.alter(1, 2, 4)
    scene.stage.silence(4)
    scene.sync(1, 2, 3)
    assert scene.move() == ((1, 2, 4, 3), (4,), (3,)), "all who had it have it still"
    scene.stage.start(4)
    scene.sync(1, 2, 3, 4)
    assert scene.move() == ((1, 2, 4), (), ())


def test_a_new_replica_that_dies_when_it_was_in_sync_does_not_end_the_move() -> None:
    scene = Scene()
    scene.alter(4, 5)
    scene.sync(1, 2, 3, 4)
    scene.stage.silence(4)
    assert scene.partition.isr == (1, 2, 3)
    scene.stage.start(4)
    scene.sync(1, 2, 3, 5)
    assert scene.move() == ((4, 5, 1, 2, 3), (4, 5), (1, 2, 3)), "never were all of the target in sync"
    scene.sync(1, 2, 3, 4, 5)
    assert scene.move() == ((4, 5), (), ())


def test_an_old_replica_that_dies_in_the_middle_does_not_hold_up_the_move() -> None:
    scene = Scene()
    scene.alter(1, 4)
    scene.stage.silence(3)
    assert scene.partition.isr == (1, 2)
    scene.sync(1, 2, 4)
    assert scene.move() == ((1, 4), (), ())


def test_a_leader_that_dies_in_the_middle_is_succeeded_and_the_move_goes_on() -> None:
    scene = Scene()
    scene.alter(4, 5)
    scene.stage.silence(1)
    assert scene.partition.leader == 2, "who is being added is not in sync yet"
    assert scene.move() == ((4, 5, 1, 2, 3), (4, 5), (1, 2, 3))
    scene.sync(2, 3, 4, 5)
    assert (scene.move(), scene.partition.leader) == (((4, 5), (), ()), 4)


def test_a_move_of_a_dead_leader_is_cancelled_and_leaves_a_leader() -> None:
    scene = Scene()
    scene.alter(4, 5)
    scene.stage.silence(1)
    scene.alter()
    assert scene.move() == ((1, 2, 3), (), ())
    assert (scene.partition.leader, scene.partition.isr) == (2, (2, 3))


def test_who_is_being_added_does_not_count_for_the_minimum() -> None:
    scene = Scene(1, min_insync_replicas="2")
    scene.alter(1, 2, 3)
    assert scene.partition.replication_factor == 1
    assert scene.eligible() == ()
    scene.sync(1, 2)
    scene.sync(1)
    assert scene.eligible() == (), "1 alone is enough while it is moved"
    scene.sync(1, 2, 3)
    assert scene.partition.replication_factor == 3
    scene.sync(1)
    assert scene.eligible() == (2, 3)


def test_a_dead_replica_is_moved_away_from() -> None:
    scene = Scene()
    scene.stage.silence(3)
    scene.alter(1, 2, 4)
    scene.sync(1, 2, 4)
    assert scene.move() == ((1, 2, 4), (), ())


def test_a_partition_without_a_leader_waits_with_its_move() -> None:
    scene = Scene(1)
    scene.stage.silence(1)
    assert scene.partition.leader == NO_LEADER
    scene.alter(2)
    assert scene.move() == ((2, 1), (2,), (1,))
    assert scene.partition.leader == NO_LEADER
    scene.stage.start(1)
    assert scene.partition.leader == 1
    scene.sync(1, 2)
    assert (scene.move(), scene.partition.leader) == (((2,), (), ()), 2)


def test_what_cannot_be_is_refused() -> None:
    scene = Scene()
    assert scene.alter(1, name=TopicPartition("nope", 0)).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert scene.alter(1, name=TopicPartition("t", 9)).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert scene.alter(1, 1).error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert scene.alter(1, 9).error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert scene.alter(1, 2, fixed=True).error is ErrorCode.INVALID_REPLICATION_FACTOR
    assert scene.alter(1, 2, 4, fixed=True).error is ErrorCode.NONE
    empty = AlterReassignmentsRequest(((HERE, ()),))
    ((_, outcome),) = scene.stage.ask(empty, AlterReassignmentsReply).partitions
    assert outcome.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    twice = AlterReassignmentsRequest(((HERE, (1,)), (HERE, (2,))))
    outcomes = scene.stage.ask(twice, AlterReassignmentsReply).partitions
    assert [outcome.error for _, outcome in outcomes] == [ErrorCode.INVALID_REQUEST] * 2


def test_too_many_at_once_are_refused() -> None:
    stage = Stage(config(topics_per_request_max=2))
    stage.start(1)
    many = AlterReassignmentsRequest(tuple((TopicPartition("t", each), (1,)) for each in range(3)))
    assert stage.refusal(many) is ErrorCode.POLICY_VIOLATION


def test_new_partitions_have_as_many_replicas_as_the_moving_one_had() -> None:
    scene = Scene(1, 2)
    scene.alter(3, 4, 5)
    scene.stage.ask(CreatePartitionsRequest((MorePartitions("t", 2),)), object)
    assert len(scene.stage.partition("t", 1).replicas) == 2


def test_moves_under_way_are_listed() -> None:
    scene = Scene()
    assert list(list_moving(scene.stage.image)) == []
    scene.alter(4)
    assert list(list_moving(scene.stage.image)) == [(HERE, scene.partition)]


def test_no_fetch_from_before_counts_for_a_replica_that_was_dropped_and_is_added_again() -> None:
    scene = Scene()
    epoch = scene.partition.leader_epoch
    scene.alter(1, 2)
    assert (scene.partition.leader, scene.partition.leader_epoch) == (1, epoch + 1), "3 deletes its log"
    scene.alter(1, 2, 3)
    assert scene.partition.leader_epoch == epoch + 1, "nobody was dropped"
    scene.alter()
    assert scene.partition.leader_epoch == epoch + 2, "3 was, again"


def test_who_led_last_is_not_left_alone_where_somebody_else_holds_all_that_is_committed() -> None:
    scene = Scene(1, 5, min_insync_replicas="2")
    stage = scene.stage
    scene.alter(1, 2, 3)
    scene.sync(1, 2)
    stage.silence(2)
    assert (scene.partition.isr, scene.eligible()) == ((1,), (2,))
    stage.register(1, predecessors=(stage.image.brokers[1].incarnation_id,))
    partition = scene.partition
    assert (partition.isr, partition.elr, partition.last_known_elr) == ((), (2,), (1,)), "1 may lack some"
    assert scene.alter().error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert scene.eligible() == (2,)
    stage.heartbeat(1)
    assert scene.partition.leader == NO_LEADER
    stage.heartbeat(2)
    assert scene.partition.leader == 2
