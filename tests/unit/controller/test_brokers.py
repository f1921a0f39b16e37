from dataclasses import replace

import pytest

from distributedlog.broker.cluster.lease_grant import lease_ms
from distributedlog.controller.brokers import (
    ELECTION_PARTS,
    TRANSITIONS,
    BrokerEvent,
    BrokerState,
    state_of,
)
from distributedlog.controller.features import METADATA_FEATURE
from distributedlog.controller.image import Endpoint, SupportedLevels
from distributedlog.controller.records import NO_LEADER
from distributedlog.controller.requests import (
    FenceRefusedRequest,
    HeartbeatRequest,
    RegisterBrokerReply,
    UnregisterBrokerRequest,
)
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import ZERO_UUID
from tests.unit.controller.stage import SESSION_MS, Stage, config, incarnation


def state(stage: Stage, broker_id: int) -> BrokerState:
    return state_of(stage.image.brokers.get(broker_id))


def test_a_broker_begins_fenced_with_the_offset_of_its_record_as_epoch() -> None:
    stage = Stage()
    offset = stage.log.next_offset()
    assert stage.register(1) == offset
    assert state(stage, 1) is BrokerState.FENCED


def test_a_broker_becomes_active_once_it_has_replayed_its_own_registration() -> None:
    stage = Stage()
    epoch = stage.register(1)
    behind = stage.heartbeat(1, metadata_offset=epoch - 1)
    assert (behind.is_caught_up, behind.is_fenced) == (False, True)
    caught_up = stage.heartbeat(1, metadata_offset=epoch)
    assert (caught_up.is_caught_up, caught_up.is_fenced) == (True, False)
    assert state(stage, 1) is BrokerState.ACTIVE


def test_a_heartbeat_that_changes_nothing_writes_nothing() -> None:
    stage = Stage()
    stage.start(1)
    entries = len(stage.log.entries)
    stage.heartbeat(1)
    assert len(stage.log.entries) == entries


def test_another_process_under_the_id_of_a_living_broker_is_refused() -> None:
    stage = Stage()
    stage.start(1)
    assert stage.refusal(stage.registration(1)) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    stage.pass_time(SESSION_MS)
    assert stage.refusal(stage.registration(1)) is ErrorCode.NONE


def test_a_process_that_names_the_registered_one_as_dead_is_taken_at_once() -> None:
    for level in (1, 2):
        stage = Stage(config(bootstrap_level=level))
        stage.start(1)
        dead = stage.image.brokers[1].incarnation_id
        before = stage.epochs[1]
        assert stage.register(1, predecessors=(incarnation(98), dead, incarnation(99))) > before
        assert state(stage, 1) is BrokerState.FENCED


def test_a_process_that_names_another_as_dead_waits() -> None:
    stage = Stage()
    stage.start(1)
    claim = stage.registration(1, predecessors=(incarnation(98), incarnation(99)))
    assert stage.refusal(claim) is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_a_process_with_other_disks_proves_nothing_by_an_incarnation() -> None:
    stage = Stage()
    stage.start(1, log_dirs=(incarnation(50),))
    dead = stage.image.brokers[1].incarnation_id
    claim = stage.registration(1, log_dirs=(incarnation(51),), predecessors=(dead,))
    assert stage.refusal(claim) is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_a_registration_of_the_dead_that_was_under_way_is_refused() -> None:
    stage = Stage()
    stage.start(1)
    dead = stage.image.brokers[1].incarnation_id
    late = stage.registration(1, incarnation_id=dead)
    stage.start(1, predecessors=(dead,))
    assert stage.refusal(late) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert state(stage, 1) is BrokerState.ACTIVE


def test_a_registration_of_the_dead_that_arrives_first_does_not_hold_up_its_successor() -> None:
    stage = Stage()
    stage.start(1)
    first = stage.image.brokers[1].incarnation_id
    late = stage.registration(1, predecessors=(first,))
    stage.ask(late, RegisterBrokerReply)
    stage.start(1, predecessors=(first, late.incarnation_id))
    assert state(stage, 1) is BrokerState.ACTIVE


def test_a_fenced_broker_that_still_speaks_is_alive_too() -> None:
    stage = Stage()
    stage.register(1)
    assert stage.refusal(stage.registration(1)) is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_a_new_process_has_a_higher_epoch_and_the_old_one_is_refused() -> None:
    stage = Stage()
    stage.start(1)
    before = stage.epochs[1]
    stage.pass_time(SESSION_MS)
    assert stage.register(1) > before
    stale = HeartbeatRequest(broker_id=1, broker_epoch=before, metadata_offset=99)
    assert stage.refusal(stale) is ErrorCode.STALE_BROKER_EPOCH
    unknown = HeartbeatRequest(broker_id=9, broker_epoch=before, metadata_offset=99)
    assert stage.refusal(unknown) is ErrorCode.STALE_BROKER_EPOCH


def test_the_same_process_may_amend_its_registration_and_keeps_epoch_and_state() -> None:
    stage = Stage()
    request = stage.registration(1)
    stage.epochs[1] = stage.ask(request, RegisterBrokerReply).broker_epoch
    stage.heartbeat(1)
    amended = stage.registration(1, incarnation_id=request.incarnation_id, rack="b")
    assert stage.ask(amended, RegisterBrokerReply).broker_epoch == stage.epochs[1]
    assert state(stage, 1) is BrokerState.ACTIVE
    assert stage.image.brokers[1].rack == "b"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"endpoints": ()}, ErrorCode.INVALID_REGISTRATION),
        ({"endpoints": (Endpoint("A", "h", 1), Endpoint("A", "h", 2))}, ErrorCode.INVALID_REGISTRATION),
        ({"endpoints": (Endpoint("A", "h", 70_000),)}, ErrorCode.INVALID_REGISTRATION),
        ({"rack": "r" * 10_000}, ErrorCode.INVALID_REGISTRATION),
        ({"incarnation_id": ZERO_UUID}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": (incarnation(5), incarnation(5))}, ErrorCode.INVALID_REGISTRATION),
        ({"features": ()}, ErrorCode.UNSUPPORTED_VERSION),
        ({"features": (SupportedLevels(METADATA_FEATURE, 1, 1),)}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_a_registration_that_cannot_be_is_refused_by_its_code(
    changes: dict[str, object], code: ErrorCode
) -> None:
    stage = Stage()
    assert stage.refusal(stage.registration(1, **changes)) is code
    assert stage.refusal(stage.registration(-1)) is ErrorCode.INVALID_REGISTRATION
    assert len(stage.image.brokers) == 0


def test_silence_for_a_session_timeout_fences_and_a_heartbeat_heals() -> None:
    stage = Stage()
    stage.start(1)
    stage.pass_time(SESSION_MS - 1)
    assert state(stage, 1) is BrokerState.ACTIVE
    stage.pass_time(1)
    assert state(stage, 1) is BrokerState.FENCED
    stage.heartbeat(1)
    assert state(stage, 1) is BrokerState.ACTIVE


def test_a_broker_whose_data_loop_is_stuck_is_fenced_and_comes_back() -> None:
    stage = Stage()
    stage.start(1)
    assert stage.heartbeat(1, data_loop_lag_ms=60_000).is_fenced
    assert stage.heartbeat(1, data_loop_lag_ms=60_000).is_fenced
    assert not stage.heartbeat(1).is_fenced


def test_a_new_controller_counts_its_election_as_silence_and_fences_nobody_who_may_hold_a_lease() -> None:
    stage = Stage()
    stage.start(1)
    stage.pass_time(SESSION_MS - 1)
    stage.failover()
    silence_ms = SESSION_MS // ELECTION_PARTS
    assert SESSION_MS - silence_ms > lease_ms(SESSION_MS)
    stage.pass_time(SESSION_MS - silence_ms - 1)
    assert state(stage, 1) is BrokerState.ACTIVE
    stage.pass_time(1)
    assert state(stage, 1) is BrokerState.FENCED


def test_no_more_than_an_election_timeout_counts_as_silence_for_a_new_controller() -> None:
    stage = Stage()
    stage.start(1)
    stage.failover(replace(stage.config, election_timeout_ms=20))
    stage.pass_time(SESSION_MS - 21)
    assert state(stage, 1) is BrokerState.ACTIVE
    stage.pass_time(1)
    assert state(stage, 1) is BrokerState.FENCED


def test_a_broker_that_crashed_with_the_controller_need_not_wait_for_its_own_ghost() -> None:
    stage = Stage()
    stage.start(1)
    stage.failover()
    assert stage.refusal(stage.registration(1)) is ErrorCode.NONE


def test_a_controller_that_was_stopped_itself_blames_nobody() -> None:
    stage = Stage()
    stage.start(1)
    stage.now_ms += 10 * SESSION_MS
    stage.runtime.tick(stage.now_ms)
    assert state(stage, 1) is BrokerState.ACTIVE
    stage.pass_time(SESSION_MS)
    assert state(stage, 1) is BrokerState.FENCED


def test_a_broker_shuts_down_by_handing_over_first() -> None:
    stage = Stage()
    stage.start(1, 2)
    stage.create("t", (1, 2))
    seen = stage.log.next_offset() - 1
    begun = stage.heartbeat(1, want_shutdown=True)
    assert (begun.in_controlled_shutdown, begun.should_shut_down) == (True, False)
    assert (stage.partition("t").leader, stage.partition("t").isr) == (2, (2,))
    stage.heartbeat(2, metadata_offset=seen)
    assert not stage.heartbeat(1, want_shutdown=True).should_shut_down
    stage.heartbeat(2)
    done = stage.heartbeat(1, want_shutdown=True)
    assert (done.is_fenced, done.should_shut_down) == (True, True)


def test_a_shutdown_that_was_begun_is_finished_under_the_next_controller() -> None:
    stage = Stage()
    stage.start(1, 2)
    stage.create("t", (1, 2))
    stage.heartbeat(1, want_shutdown=True)
    stage.failover()
    assert state(stage, 1) is BrokerState.SHUTTING_DOWN
    assert not stage.heartbeat(1, want_shutdown=True).should_shut_down
    stage.heartbeat(2)
    assert stage.heartbeat(1, want_shutdown=True).should_shut_down


def test_a_broker_that_leads_nothing_may_go_at_once_and_return_at_once() -> None:
    stage = Stage()
    stage.start(1)
    assert stage.heartbeat(1, want_shutdown=True).should_shut_down
    assert stage.refusal(stage.registration(1)) is ErrorCode.NONE


def test_a_broker_on_its_way_out_does_not_come_back_without_registering_again() -> None:
    stage = Stage()
    stage.start(1, 2)
    stage.create("t", (1, 2))
    stage.heartbeat(1, want_shutdown=True)
    stage.silence(1)
    assert stage.heartbeat(1).should_shut_down
    stage.start(1, previous_broker_epoch=stage.epochs[1])
    assert state(stage, 1) is BrokerState.ACTIVE


def test_a_process_that_replaces_an_unfenced_one_takes_its_leaderships_away() -> None:
    stage = Stage()
    stage.start(1, 2)
    stage.create("t", (1, 2))
    stage.failover()
    stage.register(1, previous_broker_epoch=stage.epochs[1])
    assert (stage.partition("t").leader, stage.partition("t").isr) == (2, (2,))


def test_an_unclean_restart_leaves_the_isr() -> None:
    for level in (1, 2):
        stage = Stage(config(bootstrap_level=level))
        stage.start(1, 2)
        stage.create("t", (2, 1))
        stage.failover()
        stage.register(1)
        assert stage.partition("t").isr == (2,)


REFUSED_MS = 1_000


def silent(stage: Stage) -> list[int]:
    return [each.broker_id for each in stage.machine.find_silent(stage.now_ms)]


def test_a_broker_that_is_silent_and_whose_ports_refuse_is_fenced_before_its_session_ends() -> None:
    stage = Stage()
    stage.start(1, 2)
    stage.create("t", (1, 2))
    gone = FenceRefusedRequest(1, stage.epochs[1])
    stage.pass_time(REFUSED_MS - 1)
    stage.heartbeat(2)
    stage.ask(gone, object)
    assert (silent(stage), stage.partition("t").leader) == ([], 1)
    stage.pass_time(1)
    assert silent(stage) == [1]
    stage.ask(gone, object)
    assert (state(stage, 1), stage.partition("t").leader, silent(stage)) == (BrokerState.FENCED, 2, [])


def test_a_heartbeat_that_comes_before_the_refusal_counts() -> None:
    stage = Stage()
    stage.start(1)
    stage.pass_time(REFUSED_MS)
    stage.heartbeat(1)
    stage.ask(FenceRefusedRequest(1, stage.epochs[1]), object)
    assert state(stage, 1) is BrokerState.ACTIVE
    stage.pass_time(REFUSED_MS)
    stage.ask(FenceRefusedRequest(1, stage.epochs[1]), object)
    assert state(stage, 1) is BrokerState.FENCED
    stage.heartbeat(1)  # it was a proxy that refused
    assert state(stage, 1) is BrokerState.ACTIVE


def test_the_refusal_of_an_earlier_process_says_nothing_of_the_next() -> None:
    stage = Stage()
    stage.start(1)
    dead, before = stage.image.brokers[1].incarnation_id, stage.epochs[1]
    stage.start(1, predecessors=(dead,))
    stage.pass_time(REFUSED_MS)
    assert stage.refusal(FenceRefusedRequest(1, before)) is ErrorCode.STALE_BROKER_EPOCH
    assert state(stage, 1) is BrokerState.ACTIVE


def test_a_new_controller_tries_the_one_before_it_at_once_and_the_others_soon() -> None:
    stage = Stage()  # the controller is node 1
    stage.start(1, 2)
    stage.failover()
    assert silent(stage) == [1]
    stage.pass_time(REFUSED_MS // 2)
    assert silent(stage) == [1, 2]
    stage.heartbeat(2)
    assert silent(stage) == [1]


def test_who_is_fenced_early_holds_takeovers_up_until_its_lease_has_ended() -> None:
    stage = Stage()
    stage.start(1, 2)
    stage.create("__consumer_offsets", (1, 2))
    offset = stage.log.next_offset() - 1
    for broker_id in (1, 2):
        assert stage.heartbeat(broker_id, applied_offset=offset).settled_offset == offset
    stage.pass_time(REFUSED_MS)
    stage.ask(FenceRefusedRequest(1, stage.epochs[1]), object)
    change = stage.log.next_offset() - 1
    assert stage.heartbeat(2, applied_offset=change).settled_offset == offset
    stage.pass_time(SESSION_MS - REFUSED_MS - 1)
    assert stage.heartbeat(2, applied_offset=change).settled_offset == offset
    stage.pass_time(1)
    assert stage.heartbeat(2, applied_offset=change).settled_offset == change


def test_a_new_controller_does_not_know_whose_lease_has_ended() -> None:
    stage = Stage()
    stage.start(1, 2)
    stage.create("__consumer_offsets", (1, 2))
    stage.pass_time(REFUSED_MS)
    stage.ask(FenceRefusedRequest(1, stage.epochs[1]), object)
    stage.failover()
    end = stage.log.next_offset() - 1
    assert stage.heartbeat(2, applied_offset=end).settled_offset == -1
    stage.silence(1)
    assert stage.heartbeat(2, applied_offset=end).settled_offset == end


def test_who_may_hold_a_lease_is_not_replaced_by_a_process_on_other_disks() -> None:
    """It has no lock which proves the other dead, and a new controller does not know when that spoke."""
    stage = Stage()
    stage.start(1, 2)
    stage.create("__consumer_offsets", (1, 2))
    stage.pass_time(REFUSED_MS)
    stage.ask(FenceRefusedRequest(1, stage.epochs[1]), object)
    stage.failover()
    another = stage.registration(1, log_dirs=(incarnation(51),))
    assert stage.refusal(another) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    stage.silence(1)
    assert stage.refusal(another) is ErrorCode.NONE


def test_the_next_process_of_one_that_was_fenced_early_ends_the_wait() -> None:
    stage = Stage()
    stage.start(1, 2)
    stage.create("__consumer_offsets", (1, 2))
    dead = stage.image.brokers[1].incarnation_id
    stage.pass_time(REFUSED_MS)
    stage.ask(FenceRefusedRequest(1, stage.epochs[1]), object)
    assert (stage.heartbeat(2, applied_offset=99).settled_offset or 0) < stage.log.next_offset() - 1
    stage.register(1, predecessors=(dead,))
    assert stage.heartbeat(2, applied_offset=99).settled_offset == stage.log.next_offset() - 1


def test_a_broker_can_be_unregistered_and_its_id_used_again_at_once() -> None:
    stage = Stage()
    stage.start(1)
    epoch = stage.epochs[1]
    stage.create("t", (1,))
    stage.ask(UnregisterBrokerRequest(1), object)
    assert stage.partition("t").leader == NO_LEADER
    assert state(stage, 1) is BrokerState.UNREGISTERED
    assert stage.register(1) > epoch


def test_every_state_can_be_left_and_only_the_unregistered_cannot_be_unregistered() -> None:
    assert {before for before, _ in TRANSITIONS} == set(BrokerState)
    assert set(TRANSITIONS.values()) == set(BrokerState)
    leaving = {before for before, event in TRANSITIONS if event is BrokerEvent.UNREGISTERED}
    assert leaving == set(BrokerState) - {BrokerState.UNREGISTERED}
