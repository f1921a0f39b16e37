"""A member of a consumer group: what each answer means; and that with the broker's own coordinator no
partition ever has two readers, whatever is lost on the way."""

from collections.abc import Iterable
from itertools import combinations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from distributedlog.client.groups.consumer_membership import (
    BEATING,
    TRANSITIONS,
    ConsumerMembership,
    Heartbeat,
    MemberEvent,
    MemberState,
)
from distributedlog.client.groups.membership import CONSUMER, Change, GroupOptions
from distributedlog.groups.consumer.topics import TopicIdPartition
from distributedlog.groups.requests import ConsumerHeartbeatReply, ConsumerHeartbeatRequest
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import (
    DlogError,
    InvalidRegularExpressionError,
    UnreleasedInstanceError,
    UnsupportedVersionError,
)
from distributedlog.model.ids import TopicPartition, Uuid
from distributedlog.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.unit.groups.consumer.stage import SESSION_MS, ConsumerStage, Topics
from tests.unit.groups.stage import GROUP

A, B = Uuid(bytes(15) + b"a"), Uuid(bytes(15) + b"b")
NAMES = {A: "a", B: "b"}
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def member(topics: Iterable[str] = ("a", "b"), **options: str) -> ConsumerMembership:
    pattern = options.pop("pattern", None)
    made = GroupOptions(group_id=GROUP, protocol=CONSUMER, **options)  # type: ignore[arg-type]
    return ConsumerMembership(made, "me", tuple(topics), pattern=pattern)


def answer(*partitions: tuple[Uuid, int], epoch: int = 1, code: int = 0) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=code,
        member_id="me",
        member_epoch=epoch,
        heartbeat_interval_ms=100,
        assignment=Assignment(
            topic_partitions=[TopicPartitions(topic_id=each, partitions=[at]) for each, at in partitions]
        ),
    )


def joined(found: ConsumerMembership, *partitions: tuple[Uuid, int]) -> ConsumerMembership:
    """One that has joined, and has these."""
    found.prepare()
    found.told()
    found.accept(found.heartbeat(), answer(*partitions))
    found.learn(NAMES)
    if found.needs_attention:
        found.prepare()
        found.told()
        found.accept(found.heartbeat(), answer(*partitions))
    assert found.state is MemberState.STABLE
    return found


def state_of(found: ConsumerMembership) -> MemberState:
    return found.state


def held_in(heartbeat: Heartbeat) -> set[tuple[Uuid, int]]:
    """What it says that the member holds."""
    return {
        (each.topic_id, at) for each in heartbeat.request.topic_partitions or () for at in each.partitions
    }


def test_a_member_joins_in_epoch_0_and_says_all_there_is_to_say_once() -> None:
    found = member(instance_id="i", rack="r", remote_assignor="uniform")
    assert (found.needs_attention, found.is_heartbeat_due) == (True, False)
    assert found.prepare() == Change()
    found.told()
    request = found.heartbeat().request
    assert (request.member_epoch, request.instance_id, request.rack_id) == (0, "i", "r")
    assert (request.subscribed_topic_names, request.topic_partitions) == (["a", "b"], [])
    assert (request.server_assignor, request.subscribed_topic_regex) == ("uniform", None)
    assert request.rebalance_timeout_ms == found.options.max_poll_interval_ms
    found.accept(found.heartbeat(), answer(epoch=7))
    later = found.heartbeat().request
    assert (later.member_epoch, later.subscribed_topic_names, later.topic_partitions) == (7, None, None)
    assert (later.rebalance_timeout_ms, later.server_assignor, later.rack_id) == (-1, None, None)
    assert found.identity == (7, "me", "i")
    found.missed()
    assert found.is_heartbeat_due
    assert found.heartbeat().request.subscribed_topic_names == ["a", "b"]


def test_what_is_to_go_is_told_the_program_before_the_coordinator() -> None:
    found = joined(member(), (A, 0), (A, 1))
    assert found.owned == (A0, A1)
    found.accept(found.heartbeat(), answer((A, 1), (B, 0)))
    found.learn(NAMES)
    assert state_of(found) is MemberState.RECONCILING
    assert found.heartbeat().request.topic_partitions is None, "nothing is given up yet"
    found.missed()
    assert held_in(found.heartbeat()) == {(A, 0), (A, 1)}, "nor does one that says everything say so"
    found.accept(found.heartbeat(), answer((A, 1), (B, 0)))
    assert found.prepare() == Change(revoked=(A0,), assigned=(B0,))
    assert found.held == (A0, A1, B0), "commits for what is about to go are right"
    in_between = found.heartbeat()
    assert in_between.request.topic_partitions is None
    found.told()
    found.accept(in_between, answer((A, 1), (B, 0)))
    assert state_of(found) is MemberState.ACKNOWLEDGING, "that one was on its way before the program was told"
    told = found.heartbeat()
    assert held_in(told) == {(A, 1), (B, 0)}
    found.accept(told, answer((A, 1), (B, 0), epoch=2))
    assert (found.state, found.epoch, found.is_heartbeat_due) == (MemberState.STABLE, 2, False)


def test_a_target_that_changes_while_the_program_is_told_is_told_next() -> None:
    found = joined(member(), (A, 0))
    found.accept(found.heartbeat(), answer())
    assert found.prepare().revoked == (A0,)
    found.accept(found.heartbeat(), answer((A, 1)))
    assert found.state is MemberState.TELLING
    found.told()
    found.accept(found.heartbeat(), answer((A, 1)))
    assert found.prepare() == Change(assigned=(A1,))


def test_topics_wait_for_their_names() -> None:
    found = joined(member(), (A, 0))
    other = Uuid(bytes(15) + b"c")
    found.accept(found.heartbeat(), answer((A, 0), (other, 0)))
    assert (found.state, *found.unnamed) == (MemberState.STABLE, other)
    found.learn({other: "a-again"})
    assert found.prepare().assigned == (TopicPartition("a-again", 0),)


def test_a_member_that_is_fenced_before_it_knows_the_names_does_not_ask_for_them() -> None:
    found = joined(member(), (A, 0))
    found.accept(found.heartbeat(), answer((Uuid(bytes(15) + b"c"), 0)))
    found.accept(found.heartbeat(), answer(code=ErrorCode.FENCED_MEMBER_EPOCH))
    assert (found.state, found.unnamed) == (MemberState.FENCED, frozenset())


def test_a_topic_that_was_made_again_under_its_name_is_another() -> None:
    found = joined(member(), (A, 0))
    found.accept(found.heartbeat(), answer((B, 0)))
    found.learn({B: "a"})
    assert found.prepare() == Change(revoked=(A0,), assigned=(A0,))


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_fenced_member_loses_all_and_joins_again_with_its_id(code: ErrorCode) -> None:
    found = joined(member(), (A, 0))
    found.accept(found.heartbeat(), answer(code=code))
    assert (found.state, found.is_heartbeat_due) == (MemberState.FENCED, False)
    assert found.prepare() == Change(lost=(A0,))
    assert found.prepare() == Change(), "a callback that failed is called again by whoever polls"
    found.told()
    request = found.heartbeat().request
    assert (request.member_id, request.member_epoch, request.topic_partitions) == ("me", 0, [])


def test_a_member_that_is_fenced_while_the_program_is_told_loses_what_it_was_told_of() -> None:
    found = joined(member(), (A, 0))
    found.accept(found.heartbeat(), answer((A, 1)))
    found.prepare()
    found.accept(found.heartbeat(), answer(code=ErrorCode.FENCED_MEMBER_EPOCH))
    found.told()
    assert found.prepare() == Change(lost=(A1,))


def test_a_refused_member_is_told_why_and_may_try_again() -> None:
    found = member(instance_id="i")
    found.prepare()
    found.told()
    with pytest.raises(UnreleasedInstanceError) as caught:
        found.accept(found.heartbeat(), answer(code=ErrorCode.UNRELEASED_INSTANCE_ID))
    found.refused(caught.value)
    with pytest.raises(UnreleasedInstanceError):
        found.prepare()
    assert found.prepare() == Change()
    found.told()
    assert found.heartbeat().request.member_epoch == 0
    with pytest.raises(InvalidRegularExpressionError):
        found.accept(found.heartbeat(), answer(code=ErrorCode.INVALID_REGULAR_EXPRESSION))


def test_a_member_that_is_not_polled_is_stale_and_loses_what_it_had() -> None:
    found = joined(member(), (A, 0))
    found.poll_expired()
    assert (found.is_beating, found.needs_attention) == (False, True)
    assert found.prepare().lost == (A0,)


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("i", -2)])
def test_a_static_member_leaves_for_a_while(instance: str | None, epoch: int) -> None:
    found = member() if instance is None else member(instance_id=instance)
    assert found.leave_request().member_epoch == epoch
    found.left()
    assert (found.is_beating, found.needs_attention) == (False, False)


def test_a_pattern_is_told_and_taken_back() -> None:
    found = joined(member((), pattern="a.*"), (A, 0))
    with pytest.raises(UnsupportedVersionError, match="classic"):
        found.check_version(0)
    found.check_version(1)
    found.subscribe(["b"])
    due = [found.is_heartbeat_due]
    request = found.heartbeat().request
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (["b"], "")
    found.accept(found.heartbeat(), answer((A, 0)))
    assert [*due, found.is_heartbeat_due] == [True, False]
    assert found.heartbeat().request.subscribed_topic_regex is None


def test_every_state_has_a_way_out_and_answers_are_known_wherever_heartbeats_go_out() -> None:
    answers = (MemberEvent.SAME, MemberEvent.DIFFERS, MemberEvent.FENCED, MemberEvent.REFUSED)
    assert all((state, event) in TRANSITIONS for state in BEATING for event in answers)
    for state in MemberState:
        outcomes = {TRANSITIONS.get((state, event)) for event in MemberEvent} - {None, state}
        assert outcomes or state is MemberState.LEFT


# --- with the coordinator of the broker --------------------------------------------------------


def as_request(request: ConsumerGroupHeartbeatRequest) -> ConsumerHeartbeatRequest:
    owned, topics = request.topic_partitions, request.subscribed_topic_names
    return ConsumerHeartbeatRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        client_id="client",
        client_host="/host",
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=None if topics is None else tuple(topics),
        pattern=request.subscribed_topic_regex,
        owned=None
        if owned is None
        else frozenset(TopicIdPartition(each.topic_id, at) for each in owned for at in each.partitions),
    )


def as_response(reply: ConsumerHeartbeatReply) -> ConsumerGroupHeartbeatResponse:
    response = answer(
        *(() if reply.assignment is None else ((each.topic_id, each.partition) for each in reply.assignment)),
        epoch=reply.epoch,
    )
    response.member_id = reply.member_id
    if reply.assignment is None:
        response.assignment = None
    return response


class RefusedError(DlogError):
    """Something for which no member goes on."""


class Program:
    """A member, and what its program believes to read."""

    def __init__(self, number: int) -> None:
        options = GroupOptions(group_id=GROUP, protocol=CONSUMER)
        self.member = ConsumerMembership(options, f"m{number}", ["t", "u"])
        self.reads: set[TopicPartition] = set()
        self.change: Change | None = None
        self.under_way: Heartbeat | None = None

    def prepare(self) -> None:
        """Another poll: what the member was refused for is told once."""
        try:
            change = self.member.prepare()
        except RefusedError:
            change = self.member.prepare()
        self.tell(change)

    def tell(self, change: Change) -> None:
        gone = {*change.lost, *change.revoked}
        assert gone <= self.reads, "what was never told cannot be taken"
        self.reads = (self.reads - gone) | {*change.assigned}


MEMBERS = 3
ONE = st.integers(0, MEMBERS - 1)


class AnyGroup(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.stage = ConsumerStage(Topics(t=4, u=3))
        self.programs = [Program(number) for number in range(MEMBERS)]
        self.made = MEMBERS

    @initialize(members=st.integers(0, MEMBERS))
    def begin(self, members: int) -> None:
        """Some are in the group from the beginning: few examples would else get as far as that."""
        for which in range(members):
            self.poll(which)
            self.heartbeat(which, "")

    @rule()
    def everybody_goes_on(self) -> None:
        for which in range(MEMBERS):
            self.poll(which)
            self.heartbeat(which, "")

    @rule(which=ONE)
    def poll(self, which: int) -> None:
        self.prepare(which)
        self.told(which)

    @rule(which=ONE, is_lost=st.sampled_from(["", "request", "response", "names"]))
    def heartbeat(self, which: int, is_lost: str) -> None:
        program = self.programs[which]
        if program.member.is_beating:
            self._beat(program, is_lost)

    def _beat(self, program: Program, is_lost: str = "") -> None:
        found = program.member
        heartbeat = found.heartbeat()
        if is_lost == "request":
            found.missed()
            return
        try:
            reply = self.stage.ask(as_request(heartbeat.request))
        except DlogError as error:
            found.accept(heartbeat, answer(code=error.code))
            return
        if is_lost == "response":
            found.missed()
            return
        assert isinstance(reply, ConsumerHeartbeatReply)
        found.accept(heartbeat, as_response(reply))
        if is_lost == "names":
            found.missed()
            return
        names = {each: name for each in found.unnamed if (name := self.stage.topics.name_of(each))}
        found.learn(names)

    @rule(which=ONE)
    def prepare(self, which: int) -> None:
        program = self.programs[which]
        if program.member.needs_attention:
            program.prepare()
            program.change = Change()

    @rule(which=ONE)
    def told(self, which: int) -> None:
        program = self.programs[which]
        if program.change is not None:
            program.change = None
            program.member.told()

    @rule(ms=st.sampled_from([1_000, SESSION_MS // 2, SESSION_MS + 1]))
    def time_passes(self, ms: int) -> None:
        self.stage.advance(ms)

    @rule(which=ONE, how=st.sampled_from(["dies", "leaves", "is not polled", "is refused"]))
    def end(self, which: int, how: str) -> None:
        """A process dies or leaves, and another one comes; or a member stays, and is none any more."""
        program = self.programs[which]
        if how == "dies":
            self._replace(which)
        elif program.member.is_beating and how == "leaves" and program.change is None:
            self.stage.code_of(as_request(program.member.leave_request()))
            self._replace(which)
        elif program.member.is_beating and how == "is not polled":
            program.member.poll_expired()  # its farewell does not arrive
        elif program.member.is_beating and how == "is refused":
            program.member.refused(RefusedError())

    def _replace(self, which: int) -> None:
        self.made += 1
        self.programs[which] = Program(self.made)

    @rule(which=ONE, topics=st.sampled_from([("t",), ("u",), ("t", "u")]))
    def subscribe(self, which: int, topics: tuple[str, ...]) -> None:
        self.programs[which].member.subscribe(topics)

    @precondition(lambda self: len(self.stage.topics.all_partitions("u")) < 5)
    @rule()
    def grow(self) -> None:
        self.stage.topics.grow("u", len(self.stage.topics.all_partitions("u")) + 1)

    @invariant()
    def nobody_reads_what_another_reads(self) -> None:
        known = self.stage.machine.consumers.by_id.get(GROUP)
        there = [
            each for each in self.programs if known is not None and each.member.member_id in known.members
        ]
        for one, other in combinations(there, 2):
            assert not one.reads & other.reads

    @invariant()
    def names_are_asked_for_only_by_who_beats(self) -> None:
        assert all(each.member.is_beating or not each.member.unnamed for each in self.programs)

    @invariant()
    def what_is_owned_is_what_was_told(self) -> None:
        assert all(set(each.member.owned) == each.reads for each in self.programs)

    def teardown(self) -> None:
        """Everybody is heard in the end, and all is read."""
        self.stage.advance(SESSION_MS + 1)
        for program in self.programs:
            program.member.subscribe(["t", "u"])
        for _ in range(30):
            for program in self.programs:
                if program.change is not None:
                    program.change = None
                    program.member.told()
                if program.member.needs_attention:
                    program.prepare()
                    program.member.told()
                if program.member.is_beating:
                    self._beat(program)
        assert {each.member.state for each in self.programs} == {MemberState.STABLE}
        everything = {(self.stage.topics.name_of(each), at) for each, at in self._all()}
        assert sorted(each for program in self.programs for each in program.reads) == sorted(everything)

    def _all(self) -> frozenset[TopicIdPartition]:
        return self.stage.topics.all_partitions("t", "u")


TestAnyGroup = AnyGroup.TestCase
TestAnyGroup.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
