from distributedlog.controller.image import Partition
from distributedlog.controller.records import RECOVERED, RECOVERING
from distributedlog.controller.requests import (
    AlterPartitionsReply,
    AlterPartitionsRequest,
    IsrChange,
    IsrMember,
    IsrOutcome,
)
from distributedlog.controller.sessions.unclean import WAIT_PARTS
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import Uuid
from tests.unit.controller.stage import SESSION_MS, Stage


class Scene:
    """Three brokers, one partition led by the first."""

    def __init__(self, **settings: str) -> None:
        self.stage = Stage()
        self.stage.start(1, 2, 3)
        self.topic_id = self.stage.create("t", (1, 2, 3), **settings)

    @property
    def partition(self) -> Partition:
        return self.stage.partition("t")

    def change(self, *isr: int, epochs: dict[int, int] | None = None, **changes: object) -> IsrChange:
        known = {**self.stage.epochs, **(epochs or {})}
        fields: dict[str, object] = {
            "topic_id": self.topic_id,
            "partition_id": 0,
            "leader_epoch": self.partition.leader_epoch,
            "partition_epoch": self.partition.partition_epoch,
            "isr": tuple(IsrMember(each, known.get(each, 0)) for each in isr),
            **changes,
        }
        return IsrChange(**fields)  # type: ignore[arg-type]

    def alter(self, change: IsrChange, leader: int = 1) -> IsrOutcome:
        request = AlterPartitionsRequest(leader, self.stage.epochs[leader], (change,))
        (outcome,) = self.stage.ask(request, AlterPartitionsReply).changes
        return outcome

    def refused(self, change: IsrChange, leader: int = 1) -> ErrorCode:
        before = self.stage.image
        error = self.alter(change, leader).error
        assert self.stage.image is before
        return error


def test_a_leader_shrinks_and_expands_its_isr() -> None:
    scene = Scene()
    shrunk = scene.alter(scene.change(1, 2))
    assert (shrunk.isr, shrunk.leader_epoch, shrunk.partition_epoch) == ((1, 2), 0, 1)
    expanded = scene.alter(scene.change(1, 2, 3))
    assert (expanded.isr, expanded.leader_epoch, expanded.partition_epoch) == ((1, 2, 3), 0, 2)
    assert scene.partition.isr == (1, 2, 3)


def test_who_is_taken_out_of_an_isr_below_the_minimum_is_eligible_until_it_is_whole_again() -> None:
    scene = Scene(min_insync_replicas="2")
    scene.alter(scene.change(1))
    assert (scene.partition.isr, scene.partition.elr) == ((1,), (2, 3))
    scene.alter(scene.change(1, 3))
    assert (scene.partition.isr, scene.partition.elr) == ((1, 3), ())


def test_a_fenced_broker_cannot_enter_the_isr() -> None:
    scene = Scene()
    scene.stage.silence(3)
    assert scene.refused(scene.change(1, 2, 3)) is ErrorCode.INELIGIBLE_REPLICA


def test_a_broker_that_is_shutting_down_cannot_enter_the_isr() -> None:
    scene = Scene()
    scene.stage.create("u", (3, 1))
    scene.stage.heartbeat(3, want_shutdown=True)
    assert not scene.stage.image.brokers[3].fenced
    assert scene.refused(scene.change(1, 2, 3)) is ErrorCode.INELIGIBLE_REPLICA


def test_a_follower_that_was_restarted_since_it_fetched_cannot_enter_the_isr() -> None:
    scene = Scene()
    before = scene.stage.epochs[3]
    scene.stage.silence(3)
    scene.stage.start(3)
    assert scene.refused(scene.change(1, 2, 3, epochs={3: before})) is ErrorCode.INELIGIBLE_REPLICA
    assert scene.alter(scene.change(1, 2, 3)).error is ErrorCode.NONE


def test_a_member_without_an_epoch_may_stay_and_may_not_enter() -> None:
    scene = Scene()
    assert scene.alter(scene.change(1, 2, epochs={1: -1, 2: -1})).error is ErrorCode.NONE
    assert scene.refused(scene.change(1, 2, 3, epochs={3: -1})) is ErrorCode.INELIGIBLE_REPLICA


def test_a_stale_leader_is_refused() -> None:
    scene = Scene()
    stale = scene.change(1, 2)
    scene.stage.silence(1)
    scene.stage.heartbeat(1)
    assert scene.partition.leader == 2
    assert scene.refused(stale) is ErrorCode.FENCED_LEADER_EPOCH
    assert scene.refused(scene.change(1, 2)) is ErrorCode.INVALID_REQUEST


def test_a_leader_of_an_earlier_life_is_refused_whole() -> None:
    scene = Scene()
    request = AlterPartitionsRequest(1, scene.stage.epochs[1] - 1, (scene.change(1),))
    assert scene.stage.refusal(request) is ErrorCode.STALE_BROKER_EPOCH


def test_a_change_made_from_an_old_partition_epoch_is_refused() -> None:
    scene = Scene()
    late = scene.change(1)
    scene.alter(scene.change(1, 2))
    assert scene.refused(late) is ErrorCode.INVALID_UPDATE_VERSION


def test_epochs_from_the_future_mean_that_another_controls() -> None:
    scene = Scene()
    assert scene.refused(scene.change(1, leader_epoch=1)) is ErrorCode.NOT_CONTROLLER
    assert scene.refused(scene.change(1, partition_epoch=1)) is ErrorCode.NOT_CONTROLLER


def test_an_isr_that_is_none_is_refused() -> None:
    scene = Scene()
    for isr in ((), (2, 3), (1, 1), (1, 9)):
        assert scene.refused(scene.change(*isr)) is ErrorCode.INVALID_REQUEST
    assert scene.refused(scene.change(1, recovery_state=RECOVERING)) is ErrorCode.INVALID_REQUEST
    assert scene.refused(scene.change(1, recovery_state=7)) is ErrorCode.INVALID_REQUEST


def test_what_is_not_there_cannot_be_changed() -> None:
    scene = Scene()
    nobody = Uuid(b"nobody's own id.")
    assert scene.refused(scene.change(1, topic_id=nobody)) is ErrorCode.UNKNOWN_TOPIC_ID
    assert scene.refused(scene.change(1, partition_id=5)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_changed_twice_in_one_request_is_changed_once() -> None:
    scene = Scene()
    request = AlterPartitionsRequest(1, scene.stage.epochs[1], (scene.change(1, 2), scene.change(1)))
    (first, second) = scene.stage.ask(request, AlterPartitionsReply).changes
    assert (first.error, second.error) == (ErrorCode.NONE, ErrorCode.INVALID_REQUEST)
    assert scene.partition.isr == (1, 2)


def test_a_leader_that_was_elected_uncleanly_is_alone_until_it_has_recovered() -> None:
    scene = Scene(unclean_leader_election_enable="true")
    for expiry in ((3,), (3, 2), (3, 2, 1)):
        scene.stage.silence(*expiry)
    scene.stage.heartbeat(3)
    scene.stage.pass_time(SESSION_MS // WAIT_PARTS)
    scene.stage.heartbeat(2)
    assert (scene.partition.leader, scene.partition.recovery_state) == (3, RECOVERING)
    both_recovering = scene.change(3, 2, recovery_state=RECOVERING)
    assert scene.refused(both_recovering, leader=3) is ErrorCode.INVALID_REQUEST
    recovered = scene.alter(scene.change(3, 2, recovery_state=RECOVERED), leader=3)
    assert (recovered.error, recovered.recovery_state) == (ErrorCode.NONE, RECOVERED)


def test_a_change_that_changes_nothing_writes_nothing_and_is_answered() -> None:
    scene = Scene()
    entries = len(scene.stage.log.entries)
    assert scene.alter(scene.change(1, 2, 3)).isr == (1, 2, 3)
    assert len(scene.stage.log.entries) == entries


def test_leaders_go_back_to_their_preferred_replicas_by_themselves() -> None:
    scene = Scene()
    scene.stage.silence(1)
    scene.stage.heartbeat(1)
    scene.alter(scene.change(2, 3, 1), leader=2)
    assert scene.partition.leader == 2
    for _ in range(300_000 // (SESSION_MS - 1) + 1):
        scene.stage.pass_time(SESSION_MS - 1)
        for broker_id in (1, 2, 3):
            scene.stage.heartbeat(broker_id)
    assert scene.partition.leader == 1
