"""A member: what each answer means to it, and that nothing is lost without being told."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from distributedlog.client.groups.membership import GroupOptions, Lead, Membership, State
from distributedlog.client.groups.subscription import (
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import BrokerError, ConfigError, FencedInstanceError
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from distributedlog.protocol.messages.sync_group import SyncGroupResponse

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def member(assignor: str = "range", **options: Any) -> Membership:
    return Membership(GroupOptions(group_id="g", assignors=(assignor,), **options), ["a", "b"])


def joined(code: int = 0, generation: int = 1, leader: str = "other", protocol: str = "range") -> Any:
    return JoinGroupResponse(
        error_code=code,
        generation_id=generation,
        protocol_name=protocol,
        leader=leader,
        member_id="me",
        members=[],
    )


def synced(*partitions: TopicPartition, code: int = 0) -> Any:
    return SyncGroupResponse(error_code=code, assignment=encode_assignment(partitions))


def stable(membership: Membership, *partitions: TopicPartition) -> Membership:
    membership.must_join = False
    membership.join_request()
    assert membership.accept_join(joined(protocol=membership.options.assignors[0])) is True
    assert membership.accept_sync(synced(*partitions)) is not None
    return membership


def test_a_new_member_takes_the_id_it_is_given_and_joins_again() -> None:
    found = member()
    assert found.join_request().member_id == ""
    assert found.accept_join(joined(ErrorCode.MEMBER_ID_REQUIRED)) is False
    assert found.join_request().member_id == "me"


def test_the_leader_is_told_who_wants_what() -> None:
    found = member()
    found.join_request()
    response = joined(leader="me")
    response.members = [
        JoinGroupResponseMember(member_id="me", metadata=encode_subscription(["a"], (), -1)),
        JoinGroupResponseMember(member_id="x", metadata=b"nonsense"),
    ]
    lead = found.accept_join(response)
    assert isinstance(lead, Lead)
    assert (lead.topics, lead.assignor.name) == ({"a"}, "range")
    request = found.sync_request(lead.assignor.assign({"a": 1}, lead.members))
    assert {each.member_id for each in request.assignments} == {"me", "x"}


def test_an_assignor_that_nobody_proposed_is_an_error() -> None:
    found = member()
    with pytest.raises(BrokerError, match="chose assignor 'other'"):
        found.accept_join(joined(leader="me", protocol="other"))


def test_an_eager_member_gives_everything_up_before_it_joins() -> None:
    found = stable(member(), A0, B0)
    found.accept_error(ErrorCode.REBALANCE_IN_PROGRESS, "a heartbeat")
    assert (found.must_join, found.owned) == (True, (A0, B0))
    assert found.prepare().revoked == (A0, B0)
    assert found.owned == ()
    assert found.join_request().member_id == "me"


def test_a_sticky_member_remembers_what_it_gave_up() -> None:
    found = stable(member("sticky"), A0)
    found.prepare()
    (protocol,) = found.join_request().protocols
    assert decode_subscription(protocol.metadata).owned == (A0,)


def test_a_cooperative_member_keeps_what_it_has_and_joins_again_after_giving_up() -> None:
    found = stable(member("cooperative-sticky"), A0, A1)
    found.must_join = True
    assert found.prepare().revoked == ()
    (protocol,) = found.join_request().protocols
    assert decode_subscription(protocol.metadata).owned == (A0, A1)
    found.accept_join(joined(generation=2, protocol="cooperative-sticky"))
    change = found.accept_sync(synced(A0, B0))
    assert change is not None
    assert (change.revoked, change.assigned, found.must_join) == ((A1,), (B0,), True)


def test_a_cooperative_member_gives_up_topics_that_it_does_not_want_any_more() -> None:
    found = stable(member("cooperative-sticky"), A0, B0)
    found.subscribe(["b"])
    assert found.must_join
    assert found.prepare().revoked == (A0,)
    assert found.owned == (B0,)


def test_topics_that_are_subscribed_to_during_a_join_take_another_one() -> None:
    found = member()
    found.must_join = False
    found.join_request()
    found.subscribe(["b"])
    found.accept_join(joined())
    assert found.accept_sync(synced(A0)) is not None
    assert found.must_join, "the coordinator was told of other topics"
    assert found.prepare().revoked == (A0,)
    stable(found, B0)
    assert not found.must_join


@pytest.mark.parametrize(
    ("code", "keeps_id"), [(ErrorCode.ILLEGAL_GENERATION, True), (ErrorCode.UNKNOWN_MEMBER_ID, False)]
)
def test_a_member_that_the_group_went_on_without_has_lost_what_it_had(
    code: ErrorCode, keeps_id: bool
) -> None:
    found = stable(member(), A0)
    found.accept_error(code, "a heartbeat")
    assert (found.owned, found.state, found.must_join) == ((), State.OUTSIDE, True)
    assert found.join_request().member_id == ("me" if keeps_id else "")
    assert found.prepare().lost == (A0,)
    assert found.prepare().lost == ()


def test_a_fenced_member_is_told_for_good() -> None:
    found = stable(member(instance_id="i"), A0)
    with pytest.raises(FencedInstanceError, match="FENCED_INSTANCE_ID"):
        found.accept_error(ErrorCode.FENCED_INSTANCE_ID, "a heartbeat")
    assert found.leave_request(5, "why").members[0].group_instance_id == "i"
    assert member().leave_request(2, "why").members == []


@pytest.mark.parametrize(
    "options",
    [{"group_id": ""}, {"heartbeat_interval_ms": 0}, {"session_timeout_ms": 100}, {"assignors": ("x",)}],
)
def test_settings_of_a_group_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        GroupOptions(**{"group_id": "g", **options})


CODES = [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID]


class AnyMember(RuleBasedStateMachine):
    """Whatever comes: what the program was given is what the member owns, or is told to be gone."""

    def __init__(self) -> None:
        super().__init__()
        self.member = member("cooperative-sticky")
        self.given: set[TopicPartition] = set()
        self.generation = 0

    def tell(self, change: Any) -> None:
        gone = {*change.lost, *change.revoked}
        assert gone <= self.given
        self.given = (self.given - gone) | {*change.assigned}

    @precondition(lambda self: self.member.must_join)
    @rule(assigned=st.sets(st.sampled_from([A0, A1, B0])), code=st.sampled_from([0, 0, 0, *CODES]))
    def join(self, assigned: set[TopicPartition], code: int) -> None:
        self.tell(self.member.prepare())
        self.member.must_join = False
        self.member.join_request()
        self.generation += 1
        self.member.accept_join(joined(generation=self.generation, protocol="cooperative-sticky"))
        change = self.member.accept_sync(synced(*assigned, code=code))
        if change is None:
            assert self.member.must_join
        else:
            self.tell(change)
            assert self.given == assigned

    @precondition(lambda self: self.member.state is State.STABLE)
    @rule(code=st.sampled_from(CODES))
    def heartbeat(self, code: ErrorCode) -> None:
        self.member.accept_error(code, "a heartbeat")
        assert self.member.must_join

    @rule(topics=st.sets(st.sampled_from(["a", "b"]), min_size=1))
    def subscribe(self, topics: set[str]) -> None:
        self.member.subscribe(topics)

    @rule()
    def leave(self) -> None:
        self.member.left()

    @invariant()
    def what_is_owned_was_given(self) -> None:
        assert set(self.member.owned) <= self.given


TestAnyMember = AnyMember.TestCase
TestAnyMember.settings = settings(max_examples=50, stateful_step_count=20)
