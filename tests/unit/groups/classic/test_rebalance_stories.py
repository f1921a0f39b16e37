import pytest

from distributedlog.groups.classic.group import GroupState
from distributedlog.groups.config import GroupConfig
from distributedlog.groups.requests import DescribeReply, DescribeRequest, Leaver, SupportedProtocol
from distributedlog.model.error_codes import ErrorCode
from tests.unit.groups.stage import GROUP, NO_DELAY, RANGE, REBALANCE_MS, SESSION_MS, Stage, subscription

DELAY_MS = 3_000


def state(stage: Stage) -> GroupState:
    return stage.machine.groups[GROUP].state


def generation(stage: Stage) -> int:
    return stage.machine.groups[GROUP].generation


# --- joining -----------------------------------------------------------------------------------


def test_a_member_alone_leads_and_gets_what_it_assigns_itself() -> None:
    stage = Stage()
    joined = stage.join().joined
    assert (joined.generation, joined.leader_id, joined.protocol) == (1, joined.member_id, "range")
    assert [each.metadata for each in joined.members] == [subscription("t")]
    assert stage.sync(joined.member_id, 1, {joined.member_id: b"mine"}).assignment == b"mine"
    assert state(stage) is GroupState.STABLE
    assert stage.heartbeat(joined.member_id, 1) is ErrorCode.NONE


def test_a_member_without_an_id_is_given_one_to_come_back_with() -> None:
    stage = Stage()
    first = stage.join(must_know_id=True)
    assert first.code is ErrorCode.MEMBER_ID_REQUIRED
    member_id = first.joined.member_id
    assert stage.machine.groups[GROUP].members == {}
    assert stage.join(member_id, must_know_id=True).joined.generation == 1


def test_an_id_that_nobody_came_with_is_forgotten_and_so_is_its_group() -> None:
    stage = Stage()
    member_id = stage.join(must_know_id=True).joined.member_id
    stage.advance(SESSION_MS - 1)
    assert GROUP in stage.machine.groups
    stage.advance(1)
    assert stage.machine.groups == {}
    assert stage.join(member_id).code is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_barrier_waits_for_ids_that_were_given_out() -> None:
    stage = Stage()
    (leader,) = stage.stable(None)
    pending = stage.join(must_know_id=True).joined.member_id
    again = stage.join(leader)
    assert not again.is_answered
    entered = stage.join(pending)
    assert again.joined.generation == entered.joined.generation == 2


def test_an_empty_group_waits_for_more_members_as_long_as_they_come() -> None:
    stage = Stage(GroupConfig(initial_rebalance_delay_ms=DELAY_MS))
    first = stage.join()
    stage.advance(DELAY_MS - 1)
    second = stage.join()
    stage.advance(1)
    assert not first.is_answered, "somebody came within the delay, so it begins anew"
    stage.advance(DELAY_MS)
    assert first.joined.generation == second.joined.generation == 1
    assert [len(each.joined.members) for each in (first, second)] == [2, 0]


def test_the_initial_delay_ends_with_the_rebalance_timeout() -> None:
    stage = Stage(GroupConfig(initial_rebalance_delay_ms=DELAY_MS))
    first = stage.join(rebalance_ms=2 * DELAY_MS)
    for _ in range(2):
        assert not first.is_answered
        stage.advance(DELAY_MS - 1)
        stage.join(rebalance_ms=2 * DELAY_MS)
        stage.advance(1)
    assert first.joined.generation == 1


def test_all_hear_of_a_newcomer_and_meet_in_the_next_generation() -> None:
    stage = Stage()
    (leader,) = stage.stable(None)
    newcomer = stage.join()
    assert not newcomer.is_answered
    assert stage.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert stage.sync(leader, 1).code is ErrorCode.REBALANCE_IN_PROGRESS
    again = stage.join(leader)
    assert again.joined.generation == newcomer.joined.generation == 2
    assert again.joined.leader_id == leader
    assert newcomer.joined.members == ()


def test_a_member_that_does_not_come_in_time_is_left_behind() -> None:
    stage = Stage()
    slow, quick = stage.stable(None, None)
    newcomer = stage.join()
    quick_again = stage.join(quick)
    for _ in range(REBALANCE_MS // 5_000):
        assert not newcomer.is_answered
        stage.heartbeat(slow, 2)
        stage.advance(5_000)
    assert newcomer.joined.generation == quick_again.joined.generation == 3
    assert quick_again.joined.leader_id == quick
    assert stage.heartbeat(slow, 3) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_protocol_is_chosen_by_votes_among_those_that_all_know() -> None:
    a, b, c = (SupportedProtocol(name, b"") for name in "abc")
    stage = Stage(GroupConfig(initial_rebalance_delay_ms=DELAY_MS))
    joins = [stage.join(protocols=protocols) for protocols in ((a, b, c), (c, b), (b, c))]
    stage.advance(2 * DELAY_MS)
    # `a` is not known to all; the first and the third like `b` best of the rest.
    assert {each.joined.protocol for each in joins} == {"b"}


def test_a_member_with_nothing_in_common_is_refused_and_disturbs_nobody() -> None:
    stage = Stage()
    (member,) = stage.stable(None)
    assert (
        stage.join(protocols=(SupportedProtocol("other", b""),)).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )
    assert stage.join(protocol_type="connect").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert stage.join(protocols=()).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert stage.heartbeat(member, 1) is ErrorCode.NONE


def test_a_repeated_join_is_answered_with_the_generation_there_is() -> None:
    stage = Stage()
    leader, follower = stage.stable(None, None)
    assert stage.join(follower).joined.generation == 2, "nothing has changed for it"
    assert state(stage) is GroupState.STABLE
    assert not stage.join(leader).is_answered, "a leader that joins again wants a rebalance"
    assert state(stage) is GroupState.PREPARING


def test_a_lost_answer_to_a_join_is_given_again_before_assignments_are_there() -> None:
    stage = Stage()
    joined = stage.join().joined
    assert stage.join(joined.member_id).joined == joined
    assert state(stage) is GroupState.COMPLETING


def test_a_changed_subscription_begins_a_rebalance() -> None:
    stage = Stage()
    _, follower = stage.stable(None, None)
    changed = stage.join(follower, protocols=(SupportedProtocol("range", subscription("t", "u")),))
    assert not changed.is_answered
    assert state(stage) is GroupState.PREPARING


def test_a_join_asked_twice_is_answered_on_the_newer_connection() -> None:
    stage = Stage()
    leader, follower = stage.stable(None, None)
    lost = stage.join(leader)
    again = stage.join(leader)
    assert lost.code is ErrorCode.REBALANCE_IN_PROGRESS
    stage.join(follower)
    assert again.joined.generation == 3


def test_no_more_members_than_allowed() -> None:
    stage = Stage(GroupConfig(initial_rebalance_delay_ms=0, members_max=2))
    stage.join(must_know_id=True)
    stage.join(must_know_id=True)
    assert stage.join(must_know_id=True).code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert stage.join(instance="i").code is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_no_more_groups_than_allowed() -> None:
    stage = Stage(GroupConfig(groups_max=1))
    stage.join(group="one")
    assert stage.join(group="two").code is ErrorCode.POLICY_VIOLATION
    assert stage.commit(1, group="three") is ErrorCode.POLICY_VIOLATION
    assert not stage.join(group="one").is_answered, "it waits for more members"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"session_ms": NO_DELAY.session_timeout_ms_min - 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_ms": NO_DELAY.session_timeout_ms_max + 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group": "g" * 10_001}, ErrorCode.INVALID_GROUP_ID),
        ({"instance": "i" * 1_001}, ErrorCode.INVALID_REQUEST),
        (
            {"protocols": tuple(SupportedProtocol(f"p{at}", b"") for at in range(101))},
            ErrorCode.INVALID_REQUEST,
        ),
        ({"protocols": (SupportedProtocol("p", bytes(1_000_001)),)}, ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
def test_what_is_out_of_bounds_is_refused(change: dict[str, object], code: ErrorCode) -> None:
    stage = Stage()
    assert stage.join(**change).code is code  # type: ignore[arg-type]
    assert stage.machine.groups == {}


# --- syncing -----------------------------------------------------------------------------------


def test_followers_wait_for_the_leader_and_nobody_hears_before_it_is_committed() -> None:
    stage = Stage(GroupConfig(initial_rebalance_delay_ms=DELAY_MS), commits=False)
    joins = [stage.join() for _ in range(2)]
    stage.advance(2 * DELAY_MS)
    leader, follower = (each.joined.member_id for each in joins)
    waits = stage.sync(follower, 1)
    assert not waits.is_answered
    leads = stage.sync(leader, 1, {leader: b"a", follower: b"b"})
    assert not waits.is_answered
    assert not leads.is_answered
    stage.settle(commit=True)
    assert (leads.assignment, waits.assignment) == (b"a", b"b")
    assert stage.sync(follower, 1).assignment == b"b", "asked again, it is told again"


def test_whom_the_leader_forgets_has_an_empty_part_and_strangers_get_none() -> None:
    stage = Stage()
    leader, follower = stage.stable(None, None)
    again = stage.join(leader)
    stage.join(follower)
    leads = stage.sync(leader, again.joined.generation, {leader: b"all", "stranger": b"x"})
    assert leads.assignment == b"all"
    assert stage.sync(follower, 3).assignment == b""


def test_a_sync_of_another_generation_or_protocol_is_refused() -> None:
    stage = Stage()
    (member,) = stage.stable(None)
    assert stage.sync(member, 2).code is ErrorCode.ILLEGAL_GENERATION
    assert stage.sync(member, 0).code is ErrorCode.ILLEGAL_GENERATION
    assert stage.sync("stranger", 1).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.sync(member, 1, protocol="other").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_rebalance_releases_those_who_wait_for_assignments() -> None:
    stage = Stage(GroupConfig(initial_rebalance_delay_ms=DELAY_MS))
    joins = [stage.join() for _ in range(2)]
    stage.advance(2 * DELAY_MS)
    waits = stage.sync(joins[1].joined.member_id, 1)
    stage.join()
    assert waits.code is ErrorCode.REBALANCE_IN_PROGRESS


def test_members_that_never_ask_for_their_part_are_out() -> None:
    stage = Stage(GroupConfig(initial_rebalance_delay_ms=DELAY_MS))
    joins = [stage.join(session_ms=100_000) for _ in range(2)]
    stage.advance(2 * DELAY_MS)
    leader, silent = (each.joined.member_id for each in joins)
    stage.sync(leader, 1, {leader: b"a", silent: b"b"})
    for _ in range(REBALANCE_MS // 5_000):
        assert stage.heartbeat(leader, 1) is ErrorCode.NONE
        stage.heartbeat(silent, 1)
        stage.advance(5_000)
    assert stage.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert stage.heartbeat(silent, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_assignments_that_no_entry_can_hold_are_refused_and_the_group_goes_on() -> None:
    stage = Stage()
    joined = stage.join().joined
    member = joined.member_id
    assert stage.sync(member, 1, {member: bytes(1_000_001)}).code is ErrorCode.MESSAGE_TOO_LARGE
    assert stage.sync(member, 1, {member: b"less"}).assignment == b"less"


# --- leaving, and being gone -------------------------------------------------------------------


def test_who_leaves_makes_room_and_the_others_hear_of_it() -> None:
    stage = Stage()
    leader, follower = stage.stable(None, None)
    assert stage.leave(leader) == [ErrorCode.NONE]
    assert stage.heartbeat(follower, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert stage.join(follower).joined.leader_id == follower


def test_several_leave_at_once_each_with_its_own_answer() -> None:
    stage = Stage()
    leader, follower = stage.stable(None, None)
    codes = stage.leave(leader, "stranger", follower)
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    assert state(stage) is GroupState.EMPTY
    assert generation(stage) == 3


def test_a_group_that_is_not_there_cannot_be_left() -> None:
    assert Stage().leave("m") == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_an_id_that_was_given_out_can_be_given_back() -> None:
    stage = Stage()
    (leader,) = stage.stable(None)
    pending = stage.join(must_know_id=True).joined.member_id
    again = stage.join(leader)
    assert not again.is_answered
    assert stage.leave(pending) == [ErrorCode.NONE]
    assert again.joined.generation == 2


def test_a_silent_member_is_out_after_its_session() -> None:
    stage = Stage()
    leader, silent = stage.stable(None, None)
    stage.advance(SESSION_MS - 1)
    assert stage.heartbeat(leader, 2) is ErrorCode.NONE
    stage.advance(1)
    assert stage.heartbeat(leader, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert stage.heartbeat(silent, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_one_gone_leaves_an_empty_group_and_a_record_of_it() -> None:
    stage = Stage()
    stage.stable(None)
    stage.advance(SESSION_MS)
    assert state(stage) is GroupState.EMPTY
    stored = stage.machine.stored[GROUP]
    assert (stored.generation, stored.members, stored.protocol) == (2, [], None)


def test_who_waits_at_the_barrier_does_not_expire() -> None:
    stage = Stage()
    leader, follower = stage.stable(None, None)
    waits = stage.join(leader)
    for _ in range(4):
        stage.advance(SESSION_MS - 1)
        stage.heartbeat(follower, 2)
    assert not waits.is_answered
    stage.join(follower)
    assert waits.joined.generation == 3


def test_a_newcomer_that_is_gone_does_not_hold_the_barrier_for_ever() -> None:
    config = GroupConfig(initial_rebalance_delay_ms=0, new_member_timeout_ms=30_000)
    stage = Stage(config)
    leader, follower = stage.stable(None, None)
    newcomer = stage.join()
    stage.join(leader)
    for _ in range(6):
        stage.heartbeat(follower, 2)
        stage.advance(5_000)
    assert newcomer.code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_coordinator_that_stood_still_excuses_its_members() -> None:
    stage = Stage()
    (member,) = stage.stable(None)
    stage.now_ms += SESSION_MS + 5_000
    stage.runtime.tick(stage.now_ms)
    stage.settle()
    assert stage.heartbeat(member, 1) is ErrorCode.NONE
    stage.advance(SESSION_MS)
    assert state(stage) is GroupState.EMPTY


# --- static members ----------------------------------------------------------------------------


def test_a_static_member_that_restarts_causes_no_rebalance() -> None:
    stage = Stage()
    leader, old = stage.stable("i0", "i1")
    stage.advance(SESSION_MS - 1)
    stage.heartbeat(leader, 2, "i0")
    back = stage.join(instance="i1").joined
    assert back.member_id != old
    assert (back.generation, back.leader_id, back.skip_assignment) == (2, leader, False)
    assert stage.sync(back.member_id, 2, instance="i1").assignment == old.encode()
    assert stage.heartbeat(leader, 2, "i0") is ErrorCode.NONE
    assert stage.heartbeat(old, 2, "i1") is ErrorCode.FENCED_INSTANCE_ID
    assert stage.commit(1, old, 2, instance="i1") is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_leader_that_restarts_is_told_to_keep_the_assignment() -> None:
    stage = Stage()
    old, _ = stage.stable("i0", "i1")
    back = stage.join(instance="i0").joined
    assert (back.leader_id, back.skip_assignment, len(back.members)) == (back.member_id, True, 2)
    older = stage.join(instance="i0", may_skip=False).joined
    assert older.leader_id == back.member_id != older.member_id, "it must not think that it leads"
    assert older.members == ()
    assert old not in stage.machine.groups[GROUP].members


def test_a_static_member_that_subscribes_to_something_else_does_cause_one() -> None:
    stage = Stage()
    stage.stable("i0", "i1")
    assert not stage.join(
        instance="i1", protocols=(SupportedProtocol("range", subscription("u")),)
    ).is_answered
    assert state(stage) is GroupState.PREPARING


def test_a_duplicate_instance_fences_the_one_that_waits() -> None:
    stage = Stage()
    leader, follower = stage.stable("i0", "i1")
    waits = stage.join(leader, instance="i0")
    twin = stage.join(instance="i0")
    assert waits.code is ErrorCode.FENCED_INSTANCE_ID
    stage.join(follower, instance="i1")
    assert twin.joined.generation == 3


def test_a_static_member_replaced_before_assignments_brings_all_back_to_the_barrier() -> None:
    stage = Stage()
    leader, follower = stage.stable("i0", "i1")
    stage.join(leader, instance="i0")
    stage.join(follower, instance="i1")
    waits = stage.sync(follower, 3, instance="i1")
    twin = stage.join(instance="i1")
    assert waits.code is ErrorCode.FENCED_INSTANCE_ID
    assert state(stage) is GroupState.PREPARING
    assert not twin.is_answered


def test_static_members_that_do_not_come_stay_until_their_session_ends() -> None:
    stage = Stage()
    quick, slow = stage.stable("i0", "i1")
    stage.machine.groups[GROUP].members[slow].rebalance_timeout_ms = 6_000
    again = stage.join(quick, instance="i0", rebalance_ms=6_000)
    stage.advance(6_000)
    assert [each.member_id for each in again.joined.members] == [quick, slow]
    assert stage.sync(quick, 3, {quick: b"a", slow: b"b"}, instance="i0").assignment == b"a"
    stage.advance(SESSION_MS - 6_000)
    assert slow not in stage.machine.groups[GROUP].members


def test_the_barrier_stays_open_while_there_is_nobody_who_could_lead() -> None:
    stage = Stage()
    leader, static = stage.stable(None, "i1")
    stage.machine.groups[GROUP].members[static].session_timeout_ms = 10 * REBALANCE_MS
    stage.heartbeat(static, 2, "i1")
    stage.leave(leader)
    stage.advance(REBALANCE_MS)
    assert (state(stage), generation(stage)) == (GroupState.PREPARING, 2)
    assert stage.join(static, instance="i1").joined.leader_id == static


def test_an_administrator_removes_a_static_member_by_its_instance() -> None:
    stage = Stage()
    leader, follower = stage.stable("i0", "i1")
    codes = stage.leave(Leaver("", "i1"), Leaver("", "i9"), Leaver(follower, "i0"))
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID]
    assert list(stage.machine.groups[GROUP].members) == [leader]


# --- failover ----------------------------------------------------------------------------------


def test_a_new_coordinator_goes_on_with_the_last_generation_that_was_assigned() -> None:
    stage = Stage()
    leader, follower = stage.stable(None, "i1")
    stage.join()
    stage.failover()
    assert state(stage) is GroupState.STABLE
    assert stage.heartbeat(leader, 2) is ErrorCode.NONE
    assert stage.sync(follower, 2, instance="i1").assignment == follower.encode()
    assert stage.commit(7, follower, 2, instance="i1") is ErrorCode.NONE
    stage.advance(SESSION_MS)
    assert state(stage) is GroupState.EMPTY


def test_a_described_group_shows_its_parts_only_when_they_are_decided() -> None:
    stage = Stage()
    leader, _ = stage.stable(None, None)

    def described() -> DescribeReply:
        reply = stage.ask(DescribeRequest(GROUP))
        assert isinstance(reply, DescribeReply)
        return reply

    shown = described()
    assert (shown.state, shown.protocol_type, shown.protocol) == ("Stable", "consumer", "range")
    assert shown.members[0][2:] == ("client", "/host", RANGE[0].metadata, leader.encode())
    stage.join()
    shown = described()
    assert (shown.state, shown.protocol) == ("PreparingRebalance", "")
    assert {each.assignment for each in shown.members} == {b""}
