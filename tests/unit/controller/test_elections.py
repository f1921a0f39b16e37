import pytest

from distributedlog.controller.configs import ConfigEdit
from distributedlog.controller.image import CLUSTER_DEFAULT, ConfigResource, ResourceType
from distributedlog.controller.records import NO_LEADER, RECOVERED, RECOVERING
from distributedlog.controller.requests import (
    ConfigsReply,
    ElectionType,
    ElectLeadersReply,
    ElectLeadersRequest,
    IncrementalAlterConfigsRequest,
    UnregisterBrokerRequest,
)
from distributedlog.controller.sessions.unclean import WAIT_PARTS
from distributedlog.model.config_ops import ConfigOp
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import TopicPartition, Uuid
from tests.unit.controller.stage import SESSION_MS, Stage, config

OTHER_DISK = (Uuid(b"another disk    "),)


def set_config(stage: Stage, resource: ConfigResource, name: str, value: str) -> None:
    edits = (ConfigEdit(name, ConfigOp.SET, value),)
    reply = stage.ask(IncrementalAlterConfigsRequest(((resource, edits),)), ConfigsReply)
    assert reply.resources[0][1].error is ErrorCode.NONE


def elect(stage: Stage, election: int, name: str = "t") -> ErrorCode:
    request = ElectLeadersRequest(election, (TopicPartition(name, 0),))
    ((_, outcome),) = stage.ask(request, ElectLeadersReply).partitions
    return outcome.error


def three(**settings: str) -> Stage:
    stage = Stage()
    stage.start(1, 2, 3)
    stage.create("t", (1, 2, 3), **settings)
    return stage


def test_when_a_leader_falls_silent_the_next_in_sync_replica_leads() -> None:
    stage = three()
    stage.silence(1)
    partition = stage.partition("t")
    assert (partition.leader, partition.isr) == (2, (2, 3))
    assert (partition.leader_epoch, partition.partition_epoch) == (1, 1)


def test_a_follower_that_falls_silent_leaves_the_isr_and_the_leader_epoch_stays() -> None:
    stage = three()
    stage.silence(3)
    partition = stage.partition("t")
    assert (partition.leader, partition.isr) == (1, (1, 2))
    assert (partition.leader_epoch, partition.partition_epoch) == (0, 1)


def test_who_leaves_an_isr_below_the_minimum_stays_eligible() -> None:
    stage = three(min_insync_replicas="2")
    stage.silence(3)
    assert stage.partition("t").elr == ()
    stage.silence(3, 2)
    partition = stage.partition("t")
    assert (partition.leader, partition.isr, partition.elr) == (1, (1,), (2,))


def test_with_a_minimum_of_one_nobody_is_eligible_beside_the_last_member() -> None:
    stage = three(min_insync_replicas="1")
    stage.silence(3)
    stage.silence(3, 2)
    assert stage.partition("t").elr == ()


def test_an_eligible_replica_leads_when_the_isr_is_empty_and_nothing_was_lost() -> None:
    stage = three(min_insync_replicas="2")
    for expiry in ((3,), (3, 2), (3, 2, 1)):
        stage.silence(*expiry)
    partition = stage.partition("t")
    assert (partition.leader, partition.isr, partition.elr) == (NO_LEADER, (), (1, 2))
    stage.heartbeat(3)
    assert stage.partition("t").leader == NO_LEADER
    stage.heartbeat(2)
    partition = stage.partition("t")
    assert (partition.leader, partition.isr, partition.elr) == (2, (2,), (1,))
    assert partition.recovery_state == RECOVERED


def test_a_minimum_above_the_number_of_replicas_counts_as_that_number() -> None:
    stage = Stage()
    stage.start(1, 2)
    stage.create("t", (1, 2), min_insync_replicas="5")
    assert stage.partition("t").elr == ()
    stage.silence(2)
    assert stage.partition("t").elr == (2,)


def test_an_unclean_restart_costs_the_place_among_the_eligible() -> None:
    stage = three(min_insync_replicas="2")
    for expiry in ((3,), (3, 2)):
        stage.silence(*expiry)
    assert stage.partition("t").elr == (2,)
    stage.start(2)
    assert stage.partition("t").elr == ()


def test_a_clean_restart_does_not() -> None:
    stage = three(min_insync_replicas="2")
    for expiry in ((3,), (3, 2)):
        stage.silence(*expiry)
    stage.start(2, previous_broker_epoch=stage.epochs[2])
    assert stage.partition("t").elr == (2,)


@pytest.mark.parametrize(("epochs_ago", "expected"), [(0, (2,)), (1, ())])
def test_nor_does_a_kill_in_an_epoch_in_which_all_that_was_committed_was_synced(
    epochs_ago: int, expected: tuple[int, ...]
) -> None:
    stage = three(min_insync_replicas="2")
    for expiry in ((3,), (3, 2)):
        stage.silence(*expiry)
    stage.start(2, synced_broker_epoch=stage.epochs[2] - epochs_ago)
    assert stage.partition("t").elr == expected


def test_all_were_killed_at_once_and_whoever_comes_first_of_the_eligible_leads_cleanly() -> None:
    stage = three(min_insync_replicas="2")
    stage.silence(1, 2, 3)
    for broker_id in (3, 2):
        stage.start(broker_id, synced_broker_epoch=stage.epochs[broker_id])
    partition = stage.partition("t")
    assert (partition.leader, partition.recovery_state) == (3, RECOVERED)
    assert {*partition.isr, *partition.elr} == {2, 3}


def test_who_synced_all_on_another_disk_holds_nothing() -> None:
    stage = three(min_insync_replicas="2")
    for expiry in ((3,), (3, 2)):
        stage.silence(*expiry)
    stage.start(2, log_dirs=OTHER_DISK, synced_broker_epoch=stage.epochs[2])
    assert stage.partition("t").elr == ()


def test_when_all_restarted_uncleanly_the_last_leader_leads_and_recovers() -> None:
    stage = Stage()
    stage.start(1)
    stage.create("t", (1,))
    stage.silence(1)
    stage.register(1)
    partition = stage.partition("t")
    assert (partition.leader, partition.isr, partition.elr) == (NO_LEADER, (), ())
    assert partition.last_known_elr == (1,)
    stage.heartbeat(1)
    partition = stage.partition("t")
    assert (partition.leader, partition.isr, partition.last_known_elr) == (1, (1,), ())
    assert partition.recovery_state == RECOVERING


def test_who_returns_with_another_disk_holds_nothing_and_leads_nothing() -> None:
    stage = Stage()
    stage.start(1)
    stage.create("t", (1,))
    stage.silence(1)
    stage.start(1, log_dirs=OTHER_DISK, previous_broker_epoch=stage.epochs[1])
    partition = stage.partition("t")
    assert (partition.leader, partition.isr, partition.elr, partition.last_known_elr) == (-1, (), (), ())
    assert elect(stage, ElectionType.UNCLEAN) is ErrorCode.NONE
    assert stage.partition("t").leader == 1


def test_a_disk_that_is_replaced_under_a_leader_is_not_trusted_as_the_last() -> None:
    stage = Stage()
    stage.start(1)
    stage.create("t", (1,))
    stage.failover()
    comes = stage.registration(1, log_dirs=OTHER_DISK)
    assert stage.refusal(comes) is ErrorCode.DUPLICATE_BROKER_REGISTRATION, "the old process may be alive"
    stage.pass_time(SESSION_MS)
    stage.start(1, log_dirs=OTHER_DISK)
    partition = stage.partition("t")
    assert (partition.leader, partition.isr, partition.last_known_elr) == (NO_LEADER, (), ())


def test_a_leader_that_will_never_come_back_is_not_remembered_as_the_last() -> None:
    stage = Stage()
    stage.start(1, 2)
    stage.create("t", (1,))
    stage.ask(UnregisterBrokerRequest(1), object)
    partition = stage.partition("t")
    assert (partition.leader, partition.isr, partition.last_known_elr) == (NO_LEADER, (), ())


def test_an_unclean_election_is_held_only_where_the_topic_allows_it() -> None:
    for allowed, leader in (("false", NO_LEADER), ("true", 3)):
        stage = Stage()
        stage.start(1, 2, 3)
        stage.create("t", (1, 2, 3), unclean_leader_election_enable=allowed)
        for expiry in ((3,), (3, 2), (3, 2, 1)):
            stage.silence(*expiry)
        stage.heartbeat(3)
        stage.pass_time(SESSION_MS // WAIT_PARTS)
        assert stage.partition("t").leader == leader


def test_an_unclean_leader_is_alone_and_recovers() -> None:
    stage = three(unclean_leader_election_enable="true")
    for expiry in ((3,), (3, 2), (3, 2, 1)):
        stage.silence(*expiry)
    stage.heartbeat(3)
    stage.pass_time(SESSION_MS // WAIT_PARTS)
    partition = stage.partition("t")
    assert (partition.isr, partition.elr, partition.recovery_state) == ((3,), (), RECOVERING)


def test_allowing_unclean_elections_helps_the_leaderless() -> None:
    for resource in (
        ConfigResource(ResourceType.TOPIC, "t"),
        ConfigResource(ResourceType.BROKER, CLUSTER_DEFAULT),
    ):
        stage = three()
        for expiry in ((3,), (3, 2), (3, 2, 1)):
            stage.silence(*expiry)
        stage.heartbeat(3)
        assert stage.partition("t").leader == NO_LEADER
        set_config(stage, resource, "unclean.leader.election.enable", "true")
        stage.pass_time(SESSION_MS // WAIT_PARTS)
        assert stage.partition("t").leader == 3


def test_lowering_the_minimum_ends_eligibility_in_the_same_entry() -> None:
    stage = three(min_insync_replicas="2")
    for expiry in ((3,), (3, 2)):
        stage.silence(*expiry)
    assert stage.partition("t").elr == (2,)
    entries = len(stage.log.entries)
    set_config(stage, ConfigResource(ResourceType.TOPIC, "t"), "min.insync.replicas", "1")
    assert stage.partition("t").elr == ()
    assert len(stage.log.entries) == entries + 1


def test_a_minimum_lowered_while_nobody_leads_ends_eligibility_once_somebody_does() -> None:
    stage = three(min_insync_replicas="2")
    for expiry in ((3,), (3, 2), (3, 2, 1)):
        stage.silence(*expiry)
    set_config(stage, ConfigResource(ResourceType.TOPIC, "t"), "min.insync.replicas", "1")
    assert stage.partition("t").elr == (1, 2)
    stage.heartbeat(2)
    partition = stage.partition("t")
    assert (partition.leader, partition.isr, partition.elr) == (2, (2,), ())


def test_the_preferred_leader_is_restored_once_it_is_in_sync_and_not_before() -> None:
    stage = three()
    assert elect(stage, ElectionType.PREFERRED) is ErrorCode.ELECTION_NOT_NEEDED
    stage.silence(1)
    assert elect(stage, ElectionType.PREFERRED) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    stage.heartbeat(1)
    assert elect(stage, ElectionType.PREFERRED) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert stage.partition("t").leader == 2


def test_an_election_by_hand_says_why_it_cannot_be() -> None:
    stage = three()
    assert elect(stage, ElectionType.UNCLEAN) is ErrorCode.ELECTION_NOT_NEEDED
    assert elect(stage, ElectionType.PREFERRED, "other") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert stage.refusal(ElectLeadersRequest(7, None)) is ErrorCode.INVALID_REQUEST
    stage.silence(1, 2, 3)
    assert elect(stage, ElectionType.UNCLEAN) is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_an_election_of_all_names_only_those_that_needed_one() -> None:
    stage = three()
    stage.create("u", (2, 3))
    assert stage.ask(ElectLeadersRequest(ElectionType.PREFERRED), ElectLeadersReply).partitions == ()
    stage.silence(1)
    ((name, outcome),) = stage.ask(ElectLeadersRequest(ElectionType.PREFERRED), ElectLeadersReply).partitions
    assert name == TopicPartition("t", 0)
    assert outcome.error is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def test_at_level_one_an_isr_keeps_its_last_member_which_alone_may_lead() -> None:
    stage = Stage(config(bootstrap_level=1))
    stage.start(1, 2)
    stage.create("t", (1, 2))
    stage.silence(2)
    stage.silence(2, 1)
    partition = stage.partition("t")
    assert (partition.leader, partition.isr, partition.elr) == (NO_LEADER, (1,), ())
    stage.heartbeat(2)
    assert stage.partition("t").leader == NO_LEADER
    stage.heartbeat(1)
    assert stage.partition("t").leader == 1


@pytest.mark.parametrize("level", [1, 2])
def test_an_unregistered_broker_leads_nothing(level: int) -> None:
    stage = Stage(config(bootstrap_level=level))
    stage.start(1, 2)
    stage.create("t", (1, 2))
    stage.ask(UnregisterBrokerRequest(1), object)
    partition = stage.partition("t")
    assert (partition.leader, partition.isr, partition.elr) == (2, (2,), ())
    assert stage.refusal(UnregisterBrokerRequest(1)) is ErrorCode.BROKER_ID_NOT_REGISTERED
