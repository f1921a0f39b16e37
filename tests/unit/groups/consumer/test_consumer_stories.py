"""Stories of consumer groups: who joins, what each gives up and gets, who is fenced."""

from typing import Any

import pytest

from distributedlog.groups.config import GroupConfig
from distributedlog.groups.consumer.member import MemberState
from distributedlog.groups.consumer.patterns import PATTERNS_PER_GROUP_MAX
from distributedlog.groups.consumer.topics import NO_PARTITIONS, TopicIdPartition
from distributedlog.groups.requests import (
    ConsumerHeartbeatRequest,
    DeleteGroupRequest,
    DescribeConsumerGroupRequest,
    DescribeReply,
    DescribeRequest,
    GroupListing,
    Leaver,
    LeaveReply,
    LeaveRequest,
    ListReply,
    ListRequest,
)
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import Uuid
from tests.unit.groups.consumer.stage import REVOCATION_MS, SESSION_MS, Client, ConsumerStage, Topics
from tests.unit.groups.stage import GROUP, decoded

EARLIER = TopicIdPartition(Uuid(b"x" * 16), 0)


def listing(stage: ConsumerStage) -> list[GroupListing]:
    reply = stage.ask(ListRequest())
    assert isinstance(reply, ListReply)
    return list(reply.groups)


# --- coming and going --------------------------------------------------------------------------


def test_the_first_member_gets_everything_at_once() -> None:
    stage = ConsumerStage()
    first = stage.member("m0")
    assert (first.epoch, first.partitions) == (1, [0, 1, 2, 3])
    assert stage.describe().state == "Stable"
    assert listing(stage) == [GroupListing(GROUP, "consumer", "Stable", "consumer")]


def test_a_second_member_gets_half_once_the_first_has_given_it_up() -> None:
    stage = ConsumerStage()
    first, second = stage.member("m0"), stage.member("m1")
    assert (second.epoch, second.partitions) == (2, []), "it is in the new epoch, and waits"
    assert stage.describe().state == "Reconciling"
    first.beat(gives_up=False)
    assert (first.epoch, len(first.assigned)) == (1, 2), "it stays in its epoch until it has given up"
    second.beat()
    assert second.partitions == []
    first.take()
    first.beat()
    assert first.epoch == 2
    second.beat()
    assert sorted(first.partitions + second.partitions) == [0, 1, 2, 3]
    assert stage.describe().state == "Stable"


def test_ten_members_share_a_hundred_partitions_evenly() -> None:
    stage = ConsumerStage(Topics(t=100))
    members = [stage.member(f"m{at}") for at in range(10)]
    stage.settle_members(*members)
    assert [len(each.owned) for each in members] == [10] * 10
    assert frozenset().union(*(each.owned for each in members)) == stage.topics.all_partitions("t")


def test_who_leaves_frees_its_partitions_at_once() -> None:
    stage = ConsumerStage()
    first, second = stage.member("m0"), stage.member("m1")
    stage.settle_members(first, second)
    assert second.leave() is ErrorCode.NONE
    assert stage.describe().state == "Assigning"
    first.beat()
    assert first.partitions == [0, 1, 2, 3]
    assert second.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_whose_last_member_left_is_empty_and_can_be_deleted() -> None:
    stage = ConsumerStage()
    only = stage.member("m0")
    assert stage.code_of(DeleteGroupRequest(GROUP)) is ErrorCode.NON_EMPTY_GROUP
    only.leave()
    assert [each.state for each in listing(stage)] == ["Empty"]
    assert stage.code_of(DeleteGroupRequest(GROUP)) is ErrorCode.NONE
    assert listing(stage) == []
    assert stage.code_of(DescribeConsumerGroupRequest(GROUP)) is ErrorCode.GROUP_ID_NOT_FOUND
    assert list(stage.machine.durable_records()) == []


def test_a_silent_member_is_out_after_its_session() -> None:
    stage = ConsumerStage()
    first, second = stage.member("m0"), stage.member("m1")
    stage.settle_members(first, second)
    stage.advance(SESSION_MS - 1)
    first.beat()
    stage.advance(1)
    first.beat()
    assert first.partitions == [0, 1, 2, 3]
    assert second.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    second.forget()
    assert second.beat() is ErrorCode.NONE, "it comes back as it would for the first time"


def test_a_coordinator_that_stood_still_throws_nobody_out() -> None:
    stage = ConsumerStage()
    first = stage.member("m0")
    stage.now_ms += SESSION_MS + 5_000
    stage.runtime.tick(stage.now_ms)
    assert first.beat() is ErrorCode.NONE


def test_a_member_that_does_not_give_up_in_time_is_out() -> None:
    stage = ConsumerStage()
    slow, other = stage.member("m0"), stage.member("m1")
    slow.beat(gives_up=False)
    for _ in range(REVOCATION_MS // 20_000):
        stage.advance(20_000)
        other.beat()
        slow.beat(gives_up=False)
    assert slow.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    other.beat()
    assert other.partitions == [0, 1, 2, 3]


def test_the_time_to_give_up_begins_anew_with_a_new_coordinator() -> None:
    stage = ConsumerStage()
    slow, other = stage.member("m0"), stage.member("m1")
    slow.beat(gives_up=False)
    stage.advance(30_000)
    stage.failover()
    stage.advance(40_000)
    assert [slow.beat(gives_up=False), other.beat()] == [ErrorCode.NONE] * 2
    stage.advance(20_000)
    assert slow.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_coordinator_has_the_group_as_it_was() -> None:
    stage = ConsumerStage()
    first, second = stage.member("m0"), stage.member("m1")
    stage.settle_members(first, second)
    entries = len(stage.log.entries)
    stage.failover()
    assert [first.beat(), second.beat()] == [ErrorCode.NONE] * 2
    assert (first.epoch, second.epoch) == (2, 2)
    assert len(stage.log.entries) == entries, "nobody notices, nothing is written"


# --- epochs ------------------------------------------------------------------------------------


def test_a_member_whose_answer_was_lost_is_told_again() -> None:
    stage = ConsumerStage()
    first = Client(stage, "m0")
    stage.ask(first.request())  # joined, and never heard of it
    assert first.beat() is ErrorCode.NONE
    assert first.partitions == [0, 1, 2, 3]
    second = stage.member("m1")
    first.beat()
    stage.ask(first.request())  # it goes to epoch 2, and does not hear of that
    first.must_say_all = True
    assert first.beat() is ErrorCode.NONE
    stage.settle_members(first, second)


def test_other_epochs_are_fenced() -> None:
    stage = ConsumerStage()
    first, second = stage.member("m0"), stage.member("m1")
    stage.settle_members(first, second)
    for epoch in (1, 3, 99):
        request = first.request(epoch=epoch)
        assert stage.code_of(request._replace(owned=None)) is ErrorCode.FENCED_MEMBER_EPOCH
    holds_more = first.request(epoch=1)._replace(owned=first.owned | {EARLIER})
    assert stage.code_of(holds_more) is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_that_begins_anew_under_its_id_keeps_its_place() -> None:
    stage = ConsumerStage()
    first, second = stage.member("m0"), stage.member("m1")
    stage.settle_members(first, second)
    epoch = stage.describe().epoch
    first.forget()
    first.beat()
    assert (first.epoch, len(first.owned), stage.describe().epoch) == (epoch, 2, epoch)


def test_what_a_member_says_only_once_is_remembered() -> None:
    stage = ConsumerStage(Topics(t=2, u=2))
    first = stage.member("m0", "t", "u", "t")
    first.beat()
    (member,) = stage.describe().members
    assert (member.topics, member.client_host, member.epoch) == (("t", "u"), "/host", 1)
    assert len(stage.log.entries) == 1, "a heartbeat that says nothing new is not written"


def test_an_answer_names_the_assignment_only_when_there_is_a_reason() -> None:
    stage = ConsumerStage()
    first = stage.member("m0")
    assert stage.ask(first.request()).assignment is None  # type: ignore[union-attr]
    first.must_say_all = True
    assert stage.ask(first.request()).assignment == first.owned  # type: ignore[union-attr]


# --- subscriptions -----------------------------------------------------------------------------


def test_a_changed_subscription_gives_up_what_is_read_no_more() -> None:
    stage = ConsumerStage(Topics(t=2, u=2))
    first = stage.member("m0", "t")
    first.topics, first.must_say_all = ("u",), True
    stage.settle_members(first)
    assert first.owned == stage.topics.all_partitions("u")


def test_new_partitions_are_given_out_with_the_next_heartbeat() -> None:
    stage = ConsumerStage()
    first, second = stage.member("m0"), stage.member("m1")
    stage.settle_members(first, second)
    stage.topics.grow("t", 6)
    stage.settle_members(first, second)
    assert sorted(first.partitions + second.partitions) == [0, 1, 2, 3, 4, 5]
    assert len(first.partitions) == 3


def test_a_topic_that_is_created_later_is_read_then_and_one_that_is_removed_no_more() -> None:
    stage = ConsumerStage(Topics())
    first = stage.member("m0", "t")
    assert first.partitions == []
    stage.topics.create("t", 2)
    stage.settle_members(first)
    earlier = first.owned
    stage.topics.remove("t")
    stage.settle_members(first)
    assert first.owned == NO_PARTITIONS
    stage.topics.create("t", 2)
    stage.settle_members(first)
    assert first.owned == stage.topics.all_partitions("t")
    assert not first.owned & earlier, "a topic of the same name is another"


def test_changes_of_topics_that_nobody_reads_disturb_nobody() -> None:
    stage = ConsumerStage()
    first = stage.member("m0")
    stage.topics.create("other", 3)
    first.beat()
    assert (first.epoch, len(stage.log.entries)) == (1, 1)


def test_a_pattern_stands_for_topics_that_come_and_go() -> None:
    stage = ConsumerStage(Topics(a1=2, b=2))
    first = stage.member("m0", pattern="a.*")
    assert first.owned == stage.topics.all_partitions("a1")
    stage.topics.create("a2", 1)
    stage.settle_members(first)
    assert first.owned == stage.topics.all_partitions("a1", "a2")
    stage.failover()
    assert stage.group.patterns["a.*"].topics == {"a1", "a2"}
    stage.topics.remove("a1")
    stage.settle_members(first)
    assert first.owned == stage.topics.all_partitions("a2")
    first.pattern, first.topics, first.must_say_all = "", ("b",), True
    stage.settle_members(first)
    assert (first.owned, stage.group.patterns) == (stage.topics.all_partitions("b"), {})


def test_a_pattern_that_begins_to_stand_for_what_others_read_counts_for_its_own_member() -> None:
    stage = ConsumerStage(Topics(a=2, b=2))
    named, patterned = stage.member("m0", "a", "b"), stage.member("m1", pattern="a")
    stage.settle_members(named, patterned)
    patterned.pattern, patterned.must_say_all = "[ab]", True
    stage.settle_members(named, patterned)
    assert len(patterned.owned) == len(named.owned) == 2
    patterned.leave()
    assert stage.group.patterns == {}


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"pattern": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 1, "member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -2}, ErrorCode.INVALID_REQUEST),
        ({"owned": None}, ErrorCode.INVALID_REQUEST),
        ({"owned": frozenset({EARLIER})}, ErrorCode.INVALID_REQUEST),
        ({"topics": None}, ErrorCode.INVALID_REQUEST),
        ({"topics": ("t",) * 10_001}, ErrorCode.INVALID_REQUEST),
        ({"topics": ("x" * 1_001,)}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "x" * 1_001}, ErrorCode.INVALID_REQUEST),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "x" * 10_001}, ErrorCode.INVALID_GROUP_ID),
    ],
)
def test_what_cannot_be_asked_is_refused_and_leaves_no_trace(wrong: dict[str, Any], code: ErrorCode) -> None:
    stage = ConsumerStage()
    request = Client(stage, "m0").request()._replace(**wrong)
    assert stage.code_of(request) is code
    assert stage.log.entries == []
    assert stage.machine.consumers.by_id == {}


def test_a_group_has_so_many_patterns_and_no_more() -> None:
    stage = ConsumerStage()
    members = [stage.member(f"m{at}", pattern=f"t{at}?") for at in range(PATTERNS_PER_GROUP_MAX)]
    one_more = Client(stage, "more", (), None, "x")
    assert stage.code_of(one_more.request()) is ErrorCode.INVALID_REGULAR_EXPRESSION
    one_more.pattern = "t0?"
    assert one_more.beat() is ErrorCode.NONE, "one that others have too"
    assert members[0].beat() is ErrorCode.NONE


def test_members_choose_the_assignor_by_votes() -> None:
    stage = ConsumerStage(Topics(t=2, u=2))
    members = [stage.member(f"m{at}", "t", "u", assignor="range" if at else None) for at in range(2)]
    stage.settle_members(*members)
    assert stage.describe().assignor == "range"
    assert members[0].partitions == [0, 0], "range splits both topics alike"


def test_a_full_group_takes_nobody_in() -> None:
    stage = ConsumerStage(config=GroupConfig(consumer_members_max=1))
    only = stage.member("m0")
    assert stage.code_of(Client(stage, "m1").request()) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert only.beat() is ErrorCode.NONE


def test_a_group_that_does_not_fit_one_entry_is_refused_as_a_whole() -> None:
    stage = ConsumerStage(Topics(t=400), config=GroupConfig(entry_bytes_max=1_000))
    assert stage.code_of(Client(stage, "m0").request()) is ErrorCode.MESSAGE_TOO_LARGE
    assert stage.machine.consumers.by_id == {}


def test_more_members_than_fit_one_entry_do_not_leave_at_once() -> None:
    stage = ConsumerStage(config=GroupConfig(entry_bytes_max=2_000))
    for at in range(10):
        assert stage.member(f"m{at}").epoch > 0
    leavers = tuple(Leaver(f"m{at}") for at in range(10))
    entries = len(stage.log.entries)
    assert stage.code_of(LeaveRequest(GROUP, leavers)) is ErrorCode.MESSAGE_TOO_LARGE
    assert (len(stage.group.members), len(stage.log.entries)) == (10, entries)
    assert stage.ask(LeaveRequest(GROUP, leavers[:5])) == LeaveReply((ErrorCode.NONE,) * 5)
    assert stage.ask(LeaveRequest(GROUP, leavers[5:])) == LeaveReply((ErrorCode.NONE,) * 5)
    assert stage.group.members == {}


def test_who_goes_fits_one_entry_even_if_what_the_patterns_of_others_stand_for_does_not() -> None:
    stage = ConsumerStage(Topics(a=1), config=GroupConfig(entry_bytes_max=2_000))
    first, second = stage.member("m0", pattern="a.*"), stage.member("m1", pattern="a.*")
    for at in range(100):
        stage.topics.create(f"a-topic-with-a-long-name-{at}", 1)
    assert first.beat() is second.beat() is ErrorCode.MESSAGE_TOO_LARGE
    entries = len(stage.log.entries)
    stage.advance(SESSION_MS)
    assert stage.group.members == {}
    for entry in stage.log.entries[entries:]:
        assert sum(len(key) + len(value or b"") for key, value in entry) <= 2_000


def test_nobody_can_be_a_member_of_a_group_that_is_not_there() -> None:
    stage = ConsumerStage()
    ghost = Client(stage, "m0")
    assert stage.code_of(ghost.request(epoch=3)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert ghost.leave() is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_member_of_an_old_client_is_given_an_id() -> None:
    stage = ConsumerStage()
    reply = stage.ask(Client(stage, "").request())
    assert reply.member_id == "client-1"  # type: ignore[union-attr]


def test_to_the_classic_way_of_describing_a_consumer_group_is_dead() -> None:
    stage = ConsumerStage()
    stage.member("m0")
    reply = stage.ask(DescribeRequest(GROUP))
    assert isinstance(reply, DescribeReply)
    assert reply.state == "Dead"


# --- static members ----------------------------------------------------------------------------


def test_a_static_member_that_restarts_causes_no_rebalance() -> None:
    stage = ConsumerStage()
    first, second = stage.member("m0", instance="i0"), stage.member("m1", instance="i1")
    stage.settle_members(first, second)
    before = stage.describe()
    assert second.leave(epoch=-2) is ErrorCode.NONE
    stage.advance(SESSION_MS - 1_000)
    first.beat()
    again = stage.member("m2", instance="i1")
    assert (again.owned, again.epoch) == (second.owned, before.epoch)
    after = stage.describe()
    assert (after.epoch, after.target_epoch, after.state) == (before.epoch, before.target_epoch, "Stable")
    assert first.beat() is ErrorCode.NONE
    assert first.epoch == before.epoch
    assert second.beat() is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_may_come_back_under_its_own_id() -> None:
    stage = ConsumerStage()
    only = stage.member("m0", instance="i0")
    only.leave(epoch=-2)
    assert stage.code_of(only.request()) is ErrorCode.FENCED_MEMBER_EPOCH
    only.forget()
    only.beat()
    assert (only.epoch, only.partitions) == (1, [0, 1, 2, 3])


def test_a_static_member_that_stays_away_is_out_after_its_session() -> None:
    stage = ConsumerStage()
    first, second = stage.member("m0", instance="i0"), stage.member("m1", instance="i1")
    stage.settle_members(first, second)
    second.leave(epoch=-2)
    for _ in range(5):
        stage.advance(SESSION_MS // 4)
        first.beat()
    stage.settle_members(first)
    assert first.partitions == [0, 1, 2, 3]


def test_two_processes_with_one_instance_id_do_not_both_get_in() -> None:
    stage = ConsumerStage()
    first = stage.member("m0", instance="i0")
    other = Client(stage, "m1", instance="i0")
    assert stage.code_of(other.request()) is ErrorCode.UNRELEASED_INSTANCE_ID
    assert first.beat() is ErrorCode.NONE
    assert first.leave() is ErrorCode.NONE
    assert other.beat() is ErrorCode.NONE


def test_a_static_member_that_left_for_good_is_gone() -> None:
    stage = ConsumerStage()
    first, second = stage.member("m0"), stage.member("m1", instance="i1")
    stage.settle_members(first, second)
    assert second.leave() is ErrorCode.NONE
    assert stage.group.static == {}
    gone = second.request()
    assert stage.code_of(gone) is ErrorCode.UNKNOWN_MEMBER_ID
    unknown = ConsumerHeartbeatRequest(GROUP, "m0", -1, instance_id="i9")
    assert stage.code_of(unknown) is ErrorCode.UNKNOWN_MEMBER_ID


def test_while_a_static_member_is_away_what_it_holds_stays_its_own() -> None:
    stage = ConsumerStage()
    static = stage.member("m0", instance="i0")
    static.leave(epoch=-2)
    newcomer = stage.member("m1")
    newcomer.beat()
    assert newcomer.partitions == []
    again = stage.member("m2", instance="i0")
    stage.settle_members(newcomer, again)
    assert sorted(newcomer.partitions + again.partitions) == [0, 1, 2, 3]


# --- the log -----------------------------------------------------------------------------------


def test_a_snapshot_is_the_group_and_so_is_any_part_of_the_log_behind_one() -> None:
    stage = ConsumerStage(Topics(t=4, a=2))
    members = [stage.member("m0", instance="i0"), stage.member("m1", pattern="[at]"), stage.member("m2")]
    stage.settle_members(*members)
    members[0].leave(epoch=-2)
    whole = list(stage.machine.durable_records())
    for cut in range(len(stage.log.entries) + 1):
        early = stage.new_machine()
        for offset, entry in enumerate(stage.log.entries[:cut]):
            early.replay(decoded(entry), offset)
        late = stage.new_machine()
        late.restore(early.snapshot(), cut)
        for offset, entry in enumerate(stage.log.entries[cut:], cut):
            late.replay(decoded(entry), offset)
        assert list(late.durable_records()) == whole
        assert late.consumers.by_id[GROUP].owners == stage.group.owners


def test_a_log_that_was_compacted_gives_the_same_group() -> None:
    stage = ConsumerStage()
    members = [stage.member(f"m{at}", instance=f"i{at}") for at in range(3)]
    stage.settle_members(*members)
    members[0].leave()
    members[1].topics, members[1].must_say_all = ("t", "u"), True
    stage.settle_members(*members[1:])
    records = [record for entry in stage.log.entries for record in entry]
    last = {key: at for at, (key, _) in enumerate(records)}
    kept = [record for at, record in enumerate(records) if last[record[0]] == at]
    for with_tombstones in (True, False):
        machine = stage.new_machine()
        machine.replay(decoded([each for each in kept if with_tombstones or each[1] is not None]), 0)
        group = machine.consumers.by_id[GROUP]
        assert group.members == stage.group.members
        assert (group.owners, group.targets, group.static) == (
            stage.group.owners,
            stage.group.targets,
            stage.group.static,
        )
        assert (group.epoch, group.target_epoch) == (stage.group.epoch, stage.group.target_epoch)


def test_a_state_that_a_newer_coordinator_wrote_is_not_taken_for_another() -> None:
    stage = ConsumerStage()
    only = stage.member("m0")
    key, value = next(record for record in stage.log.entries[0] if record[0][1] == 8)
    assert value is not None
    unknown = value[:10] + bytes([9]) + value[11:]
    stage.log.entries.append([(key, unknown)])
    stage.failover()
    assert stage.group.members["m0"].state is MemberState.UNKNOWN
    assert only.beat() is ErrorCode.FENCED_MEMBER_EPOCH
    only.forget()
    assert only.beat() is ErrorCode.NONE
    assert only.partitions == [0, 1, 2, 3]
