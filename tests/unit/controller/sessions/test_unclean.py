"""Unclean elections: the replica leads whose log goes furthest, as its broker tells."""

from distributedlog.controller.image import Partition
from distributedlog.controller.records import NO_LEADER, RECOVERING
from distributedlog.controller.requests import ElectionType, ElectLeadersReply, ElectLeadersRequest
from distributedlog.controller.sessions.log_ends import LOG_ENDS_PER_HEARTBEAT_MAX, ReplicaLogEnd
from distributedlog.controller.sessions.unclean import WAIT_PARTS
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import TopicPartition
from tests.unit.controller.stage import SESSION_MS, Stage

WAIT_MS = SESSION_MS // WAIT_PARTS


class Scene:
    """Broker 1 led the partition of `t`, and is gone; 2, 3 and 4, which were not in sync any more, are there
    again."""

    def __init__(self, *, unclean: bool = True, present: tuple[int, ...] = (2, 3, 4)) -> None:
        self.stage = Stage()
        self.stage.start(1, 2, 3, 4)
        allowed = "true" if unclean else "false"
        self.topic_id = self.stage.create("t", (1, 2, 3, 4), unclean_leader_election_enable=allowed)
        for silent in ((2, 3, 4), (1, 2, 3, 4)):
            self.stage.silence(*silent)
        assert (self.partition.leader, self.partition.elr) == (NO_LEADER, (1,))
        for broker_id in present:
            self.stage.heartbeat(broker_id)
        self.stage.pass_time(0)

    @property
    def partition(self) -> Partition:
        return self.stage.partition("t")

    def tell(self, broker_id: int, last_epoch: int, end_offset: int, *, of_epoch: int | None = None) -> None:
        leader_epoch = self.partition.leader_epoch if of_epoch is None else of_epoch
        end = ReplicaLogEnd(self.topic_id, 0, leader_epoch, last_epoch, end_offset)
        self.stage.heartbeat(broker_id, log_ends=(end,))
        self.stage.pass_time(0)

    def keep_alive(self, ms: int) -> None:
        """Time passes, and those who are there are heard."""
        self.stage.pass_time(ms)
        for broker_id, broker in self.stage.image.brokers.items():
            if not broker.fenced:
                self.stage.heartbeat(broker_id)

    def elect(self) -> ErrorCode:
        request = ElectLeadersRequest(ElectionType.UNCLEAN, (TopicPartition("t", 0),))
        ((_, outcome),) = self.stage.ask(request, ElectLeadersReply).partitions
        return outcome.error


def test_the_longest_log_of_the_last_epoch_leads_as_soon_as_all_have_told() -> None:
    scene = Scene()
    scene.tell(2, 3, 900)
    scene.tell(3, 4, 50)
    assert scene.partition.leader == NO_LEADER
    scene.tell(4, 4, 70)
    assert (scene.partition.leader, scene.partition.isr) == (4, (4,))
    assert scene.partition.recovery_state == RECOVERING


def test_of_equals_the_first_replica_leads() -> None:
    scene = Scene()
    for broker_id in (4, 3, 2):
        scene.tell(broker_id, 4, 70)
    assert scene.partition.leader == 2


def test_who_does_not_tell_is_waited_for_a_while_and_counts_least() -> None:
    scene = Scene()
    scene.tell(4, -1, 0)
    scene.keep_alive(WAIT_MS - 1)
    assert scene.partition.leader == NO_LEADER
    scene.keep_alive(1)
    assert scene.partition.leader == 4


def test_if_nobody_tells_the_first_that_is_there_leads() -> None:
    scene = Scene(present=(3, 4))
    scene.keep_alive(WAIT_MS)
    assert scene.partition.leader == 3


def test_who_is_not_there_is_not_waited_for() -> None:
    scene = Scene(present=(3,))
    scene.tell(3, 1, 1)
    assert scene.partition.leader == 3


def test_what_was_told_of_another_leader_epoch_does_not_count() -> None:
    scene = Scene(present=(3, 4))
    scene.tell(3, 9, 900, of_epoch=scene.partition.leader_epoch - 1)
    scene.tell(4, 1, 1)
    assert scene.partition.leader == NO_LEADER
    scene.keep_alive(WAIT_MS)
    assert scene.partition.leader == 4


def test_what_was_told_before_a_restart_does_not_count() -> None:
    """A crash may have taken what the log had."""
    scene = Scene(present=(3, 4), unclean=False)
    scene.tell(3, 9, 900)
    scene.stage.silence(3)
    scene.stage.register(3)
    scene.stage.heartbeat(3)
    scene.tell(4, 1, 1)
    assert scene.elect() is ErrorCode.NONE
    assert scene.partition.leader == 4


def test_a_leader_of_the_elr_is_preferred_to_the_longest_log() -> None:
    scene = Scene(present=(3,))
    scene.stage.heartbeat(1)
    scene.tell(3, 9, 900)
    assert (scene.partition.leader, scene.partition.recovery_state) == (1, 0)


def test_a_partition_that_does_not_allow_it_waits() -> None:
    scene = Scene(unclean=False)
    for broker_id in (2, 3, 4):
        scene.tell(broker_id, 1, broker_id)
    scene.keep_alive(10 * WAIT_MS)
    assert scene.partition.leader == NO_LEADER


def test_an_operator_who_asks_gets_the_longest_log_too() -> None:
    scene = Scene(unclean=False)
    for broker_id in (2, 3, 4):
        scene.tell(broker_id, 1, 10 - broker_id if broker_id != 3 else 77)
    assert scene.elect() is ErrorCode.NONE
    assert (scene.partition.leader, scene.partition.recovery_state) == (3, RECOVERING)
    assert scene.elect() is ErrorCode.ELECTION_NOT_NEEDED


def test_a_new_controller_hears_it_again() -> None:
    scene = Scene(present=(3, 4))
    scene.tell(3, 9, 900)
    scene.stage.failover()
    scene.tell(4, 9, 901)
    assert scene.partition.leader == NO_LEADER
    scene.tell(3, 9, 900)
    assert scene.partition.leader == 4
    assert scene.stage.replayed() == scene.stage.image


def test_no_more_is_read_of_a_heartbeat_than_a_broker_sends() -> None:
    scene = Scene(present=(3, 4))
    epoch = scene.partition.leader_epoch
    others = [ReplicaLogEnd(scene.topic_id, 7, epoch, 1, 1)] * LOG_ENDS_PER_HEARTBEAT_MAX
    own = ReplicaLogEnd(scene.topic_id, 0, epoch, 1, 1)
    scene.stage.heartbeat(3, log_ends=(*others, own))
    scene.tell(4, 1, 0)
    assert scene.partition.leader == NO_LEADER
