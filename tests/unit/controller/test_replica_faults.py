"""What becomes of a partition when a broker tells what it cannot serve of it."""

import pytest

from distributedlog.controller.image import LOST_DIRECTORY, Partition
from distributedlog.controller.records import NO_LEADER, RECOVERING
from distributedlog.controller.replica_faults import FAULTS_PER_HEARTBEAT_MAX, Fault, ReplicaFault
from distributedlog.controller.requests import ElectionType, ElectLeadersReply, ElectLeadersRequest
from distributedlog.controller.snapshots import decode_snapshot, encode_snapshot
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import TopicPartition, Uuid
from tests.unit.controller.stage import SESSION_MS, Stage, config

EVERY_FAULT = (Fault.OFFLINE, Fault.DAMAGED, Fault.MISSING)


def stage_of(*replicas: int, **settings: str) -> tuple[Stage, Uuid]:
    stage = Stage()
    stage.start(1, 2)
    return stage, stage.create("t", replicas, **settings)


def restart(stage: Stage, broker_id: int, *, is_clean: bool = True) -> None:
    """Another process, registered and not yet unfenced."""
    epoch = stage.epochs[broker_id] if is_clean else -1
    stage.silence(broker_id)
    stage.register(broker_id, previous_broker_epoch=epoch)


def tell(stage: Stage, broker_id: int, topic_id: Uuid, fault: Fault) -> Partition:
    reply = stage.heartbeat(broker_id, replica_faults=(ReplicaFault(topic_id, 0, fault),))
    assert reply.took_replica_faults
    assert stage.replayed() == stage.image
    return stage.partition("t")


@pytest.mark.parametrize("fault", EVERY_FAULT)
@pytest.mark.parametrize("is_clean", [True, False])
def test_another_replica_leads_and_the_faulty_one_is_not_elected(fault: Fault, is_clean: bool) -> None:
    stage, topic_id = stage_of(1, 2)
    restart(stage, 1, is_clean=is_clean)
    partition = tell(stage, 1, topic_id, fault)
    assert not stage.image.brokers[1].fenced
    assert (partition.leader, partition.isr) == (2, (2,))
    assert 1 not in partition.elr
    assert partition.is_lost(1) is (fault is not Fault.DAMAGED)


@pytest.mark.parametrize("fault", EVERY_FAULT)
def test_a_running_leader_that_tells_a_fault_leads_no_more(fault: Fault) -> None:
    stage, topic_id = stage_of(1, 2)
    before = stage.partition("t")
    partition = tell(stage, 1, topic_id, fault)
    assert (partition.leader, partition.isr) == (2, (2,))
    assert partition.leader_epoch == before.leader_epoch + 1


def test_a_damaged_replica_is_not_eligible_although_it_stopped_cleanly_and_led_last() -> None:
    """It was the last in sync, so nobody else has all: only an election that is asked for makes it lead."""
    stage, topic_id = stage_of(1, 2, min_insync_replicas="2")
    stage.silence(2)
    restart(stage, 1)
    assert stage.partition("t").elr == (1, 2)
    partition = tell(stage, 1, topic_id, Fault.DAMAGED)
    assert (partition.leader, partition.isr, partition.elr) == (NO_LEADER, (), (2,))
    stage.pass_time(SESSION_MS)
    stage.register(2, previous_broker_epoch=-1)
    stage.heartbeat(2)
    stage.heartbeat(1)
    assert stage.image.is_active(1)
    assert stage.partition("t").leader == NO_LEADER
    assert stage.partition("t").last_known_elr == ()


@pytest.mark.parametrize("is_clean", [True, False])
def test_the_only_replica_leads_on_with_what_is_sound_of_a_damaged_log(is_clean: bool) -> None:
    stage, topic_id = stage_of(1)
    restart(stage, 1, is_clean=is_clean)
    partition = tell(stage, 1, topic_id, Fault.DAMAGED)
    assert (partition.leader, partition.isr, partition.recovery_state) == (1, (1,), RECOVERING)


@pytest.mark.parametrize("fault", [Fault.OFFLINE, Fault.MISSING])
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_partition_whose_only_log_is_lost_has_no_leader_until_it_is_back(
    fault: Fault, is_clean: bool
) -> None:
    stage, topic_id = stage_of(1)
    restart(stage, 1, is_clean=is_clean)
    partition = tell(stage, 1, topic_id, fault)
    assert (partition.leader, partition.directories) == (NO_LEADER, (LOST_DIRECTORY,))
    stage.failover()
    assert stage.partition("t").leader == NO_LEADER, "the next controller knows it too"
    assert decode_snapshot(encode_snapshot(stage.image)) == stage.image
    stage.heartbeat(1)
    assert stage.partition("t").leader == NO_LEADER
    partition = tell(stage, 1, topic_id, Fault.ONLINE)
    assert (partition.leader, partition.directories) == (1, ())


def test_no_election_by_itself_picks_a_lost_log_and_one_that_is_asked_for_does() -> None:
    stage, topic_id = stage_of(1, unclean_leader_election_enable="true")
    partition = tell(stage, 1, topic_id, Fault.MISSING)
    assert partition.leader == NO_LEADER, "although the topic allows unclean elections"
    request = ElectLeadersRequest(ElectionType.UNCLEAN, (TopicPartition("t", 0),))
    reply = stage.ask(request, ElectLeadersReply)
    assert reply.partitions[0][1].error is ErrorCode.NONE
    partition = stage.partition("t")
    assert (partition.leader, partition.isr, partition.directories) == (1, (1,), ())


def test_at_the_first_level_the_others_lead_and_nothing_is_marked() -> None:
    stage = Stage(config(bootstrap_level=1))
    stage.start(1, 2)
    topic_id = stage.create("t", (1, 2))
    partition = tell(stage, 1, topic_id, Fault.MISSING)
    assert (partition.leader, partition.isr, partition.directories) == (2, (2,), ())


def test_what_nobody_knows_is_passed_over_and_too_much_is_refused() -> None:
    stage, topic_id = stage_of(1)
    strange = (
        ReplicaFault(Uuid(b"nobody's own id."), 0, Fault.DAMAGED),
        ReplicaFault(topic_id, 7, Fault.DAMAGED),
        ReplicaFault(topic_id, 0, Fault.ONLINE),
    )
    entries = len(stage.log.entries)
    assert stage.heartbeat(1, replica_faults=strange).took_replica_faults
    assert stage.heartbeat(2, replica_faults=(ReplicaFault(topic_id, 0, Fault.MISSING),)).took_replica_faults
    assert len(stage.log.entries) == entries
    assert not stage.heartbeat(1).took_replica_faults
    many = tuple(ReplicaFault(topic_id, number, 1) for number in range(FAULTS_PER_HEARTBEAT_MAX + 1))
    request = {"replica_faults": many}
    with pytest.raises(Exception, match="more than"):
        stage.heartbeat(1, **request)


# --- a corrupt replica asks to be released -------------------------------------------------------


def test_a_corrupt_leader_hands_over_and_is_neither_in_sync_nor_eligible() -> None:
    stage, topic_id = stage_of(1, 2, min_insync_replicas="2")
    before = stage.partition("t")
    partition = tell(stage, 1, topic_id, Fault.CORRUPT)
    assert (partition.leader, partition.isr, partition.elr) == (2, (2,), ())
    assert partition.leader_epoch == before.leader_epoch + 1
    assert not partition.is_lost(1)


def test_a_corrupt_follower_leaves_the_isr_and_the_leader_leads_on_in_a_new_epoch() -> None:
    """A fetch that it sent before must not bring it back: the leader refuses it by its epoch."""
    stage, topic_id = stage_of(1, 2, min_insync_replicas="2")
    before = stage.partition("t")
    partition = tell(stage, 2, topic_id, Fault.CORRUPT)
    assert (partition.leader, partition.isr, partition.elr) == (1, (1,), ())
    assert partition.leader_epoch == before.leader_epoch + 1


def test_a_corrupt_follower_that_is_out_of_sync_already_gets_a_new_epoch_too() -> None:
    stage, topic_id = stage_of(1, 2)
    first = tell(stage, 2, topic_id, Fault.CORRUPT)
    second = tell(stage, 2, topic_id, Fault.CORRUPT)
    assert (second.leader, second.isr) == (first.leader, first.isr) == (1, (1,))
    assert second.leader_epoch == first.leader_epoch + 1


@pytest.mark.parametrize("unclean", ["true", "false"])
def test_a_corrupt_leader_that_is_alone_in_sync_leads_on(unclean: str) -> None:
    stage, topic_id = stage_of(1, 2, unclean_leader_election_enable=unclean)
    tell(stage, 2, topic_id, Fault.DAMAGED)
    before = stage.partition("t")
    assert (before.leader, before.isr) == (1, (1,))
    assert tell(stage, 1, topic_id, Fault.CORRUPT) == before
    stage, topic_id = stage_of(1)
    before = stage.partition("t")
    assert tell(stage, 1, topic_id, Fault.CORRUPT) == before


def test_a_corrupt_leader_hands_over_to_a_replica_that_is_eligible_and_active() -> None:
    stage, topic_id = stage_of(1, 2, min_insync_replicas="2")
    stage.silence(2)
    assert stage.partition("t").elr == (2,)
    before = stage.partition("t")
    assert tell(stage, 1, topic_id, Fault.CORRUPT) == before, "the other one is fenced"
