"""A request on its way to the active controller: whom it is asked of, how often, and how it ends."""

from typing import NamedTuple

import pytest

from distributedlog.broker.cluster.forwarding import (
    BEHIND_MS,
    PAUSE_MS_MAX,
    PAUSE_MS_MIN,
    TRY_MS,
    ControllerForwarder,
    is_safe_to_retry,
)
from distributedlog.broker.cluster.metadata import MetadataReplica
from distributedlog.control.contract import ControllerReply
from distributedlog.controller.bundles import encode_bundle
from distributedlog.controller.features import LEVEL_MAX, versioned
from distributedlog.controller.image import ControllerRegistration
from distributedlog.controller.records import NoOp
from distributedlog.controller.requests import (
    AddVoterRequest,
    AllocateProducerIdsRequest,
    AlterConfigsRequest,
    AlterPartitionsRequest,
    AlterQuotasRequest,
    AlterReassignmentsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeQuorumRequest,
    ElectLeadersRequest,
    FenceRefusedRequest,
    ForgetControllerRequest,
    HeartbeatRequest,
    IncrementalAlterConfigsRequest,
    NewTopic,
    ProducerIdBlock,
    ReadImageRequest,
    RegisterControllerRequest,
    RemoveVoterRequest,
    Request,
    Response,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from distributedlog.model.errors import (
    DlogError,
    InvalidRequestError,
    LeadershipLostError,
    LoadInProgressError,
    NotLeaderError,
    OverloadedError,
    RequestTimedOutError,
    StaleBrokerEpochError,
    UnreachableError,
)
from distributedlog.model.ids import Uuid
from distributedlog.ports.executor import Done, Outcome
from tests.simulation.clock import SeededRandomness
from tests.unit.broker.control_stage import Timers, registration

CONTROLLER = ControllerRegistration(2, Uuid(bytes(16)), 7, "h", 9093)
CHANGE = CreateTopicsRequest((NewTopic(name="orders"),))
"""Done twice it would not be the same."""
HARMLESS = AllocateProducerIdsRequest(1, 1)
BLOCK = ProducerIdBlock(0, 1_000)


class Call(NamedTuple):
    """A request that reached a voter, or the way to it."""

    node_id: int
    request: Request
    timeout_ms: int
    at_ms: int
    done: Done[ControllerReply]

    def fail(self, error: DlogError) -> None:
        self.done(Outcome(error=error))

    def answer(self, offset: int = -1, response: Response = BLOCK) -> None:
        self.done(Outcome(ControllerReply(response, offset)))


class Bench:
    """A forwarder, and the voters that it asks: a test answers for them."""

    def __init__(self, *, node_id: int = 9, voters: tuple[int, ...] = (1, 2, 3)) -> None:
        self.timers = Timers()
        self.replica = MetadataReplica()
        self.calls: list[Call] = []
        self.outcomes: list[Outcome[Response]] = []
        self.behind: list[int] = []
        local = _Local(self, node_id) if node_id in voters else None
        self.forwarder = ControllerForwarder(
            node_id,
            voters,
            self,
            local,
            self.replica,
            clock=self.timers.clock,
            scheduler=self.timers,
            randomness=SeededRandomness(1),
            behind=lambda: self.behind.append(self.timers.clock.monotonic_ms()),
        )

    def call(self, node_id: int, request: Request, timeout_ms: int, done: Done[ControllerReply]) -> None:
        self.calls.append(Call(node_id, request, timeout_ms, self.timers.clock.monotonic_ms(), done))

    def ask(self, request: Request = CHANGE, timeout_ms: int = 10_000, *, until_visible: bool = True) -> None:
        self.forwarder.ask(request, timeout_ms, self.outcomes.append, until_visible=until_visible)

    def commit(self, offset: int) -> None:
        self.replica.handle_entry(encode_bundle(versioned([NoOp()], LEVEL_MAX)), offset)
        self.replica.publish()

    @property
    def asked(self) -> list[int]:
        return [call.node_id for call in self.calls]

    @property
    def last(self) -> Call:
        return self.calls[-1]

    @property
    def error(self) -> BaseException | None:
        (outcome,) = self.outcomes
        return outcome.error


class _Local:
    def __init__(self, bench: Bench, node_id: int) -> None:
        self._bench = bench
        self._node_id = node_id

    def submit(self, request: Request, timeout_ms: int, done: Done[ControllerReply]) -> None:
        self._bench.call(self._node_id, request, timeout_ms, done)


# --- whom --------------------------------------------------------------------------------------


def test_a_voter_asks_itself_first() -> None:
    bench = Bench(node_id=2)
    bench.ask()
    assert bench.asked == [2]


def test_whoever_answered_is_asked_first_the_next_time() -> None:
    bench = Bench()
    bench.ask()
    bench.last.fail(NotLeaderError("not me", 3))
    assert bench.asked == [1, 3]
    bench.last.answer()
    bench.ask()
    assert bench.asked == [1, 3, 3]


def test_without_a_hint_the_next_voter_is_asked_after_a_pause() -> None:
    bench = Bench()
    bench.ask()
    bench.last.fail(NotLeaderError("nobody leads"))
    assert bench.asked == [1]
    bench.timers.advance(PAUSE_MS_MIN)
    assert bench.asked == [1, 2]
    bench.last.fail(UnreachableError("gone"))
    bench.timers.advance(2 * PAUSE_MS_MIN)
    assert bench.asked == [1, 2, 3]
    bench.last.fail(UnreachableError("gone"))
    bench.timers.advance(4 * PAUSE_MS_MIN)
    assert bench.asked == [1, 2, 3, 1]


def test_a_hint_to_nobody_that_may_lead_or_to_itself_is_no_hint() -> None:
    bench = Bench()
    bench.ask()
    for hint in (99, 2):
        bench.last.fail(NotLeaderError("there", hint))
        bench.timers.advance(PAUSE_MS_MAX)
    assert bench.asked == [1, 2, 3]


def test_voters_that_send_the_request_to_each_other_do_not_keep_it_going_without_a_pause() -> None:
    bench = Bench()
    bench.ask()
    for _ in range(3):
        bench.last.fail(NotLeaderError("the other", 3 - bench.last.node_id))
    assert len(bench.calls) == 3, "after two hints that led nowhere there is a pause"
    bench.timers.advance(PAUSE_MS_MIN)
    assert len(bench.calls) == 4


def test_a_controller_that_is_loading_or_has_too_much_to_do_is_asked_again() -> None:
    bench = Bench()
    bench.ask(HARMLESS)
    bench.last.answer()
    bench.ask()
    for error in (LoadInProgressError("soon"), OverloadedError("later")):
        bench.last.fail(error)
        bench.timers.advance(PAUSE_MS_MAX)
    assert bench.asked == [1, 1, 1, 1]


def pauses_of(seed: int) -> list[int]:
    bench = Bench()
    bench.forwarder.randomness = SeededRandomness(seed)
    bench.ask(timeout_ms=60_000)
    pauses: list[int] = []
    while len(pauses) < 12:
        failed_ms = bench.timers.clock.monotonic_ms()
        count = len(bench.calls)
        bench.last.fail(UnreachableError("gone"))
        while len(bench.calls) == count:
            bench.timers.advance(1)
        pauses.append(bench.last.at_ms - failed_ms)
    return pauses


def test_each_pause_is_between_half_and_the_whole_of_twice_the_last() -> None:
    pauses = pauses_of(1)
    whole = PAUSE_MS_MIN
    for pause in pauses:
        assert whole // 2 <= pause <= whole
        whole = min(2 * whole, PAUSE_MS_MAX)
    assert pauses != pauses_of(2), "brokers that fail together do not come back together"


# --- how it ends -------------------------------------------------------------------------------


def test_a_refusal_is_passed_on_as_it_is() -> None:
    for error in (InvalidRequestError("no"), StaleBrokerEpochError("old")):
        bench = Bench()
        bench.ask()
        bench.last.fail(error)
        assert bench.error is error
        bench.timers.advance(20_000)
        assert len(bench.calls) == len(bench.outcomes) == 1


@pytest.mark.parametrize("error", [LeadershipLostError("lost"), RequestTimedOutError("cut")])
def test_a_change_whose_outcome_is_unknown_is_not_asked_for_again(error: DlogError) -> None:
    bench = Bench()
    bench.ask()
    bench.last.fail(error)
    assert bench.error is error
    bench.timers.advance(20_000)
    assert len(bench.calls) == 1


@pytest.mark.parametrize("error", [LeadershipLostError("lost"), RequestTimedOutError("cut")])
def test_what_does_no_harm_twice_is_asked_again_elsewhere_after_an_unknown_outcome(error: DlogError) -> None:
    bench = Bench()
    bench.ask(HARMLESS)
    bench.last.fail(error)
    bench.timers.advance(PAUSE_MS_MIN)
    assert bench.asked == [1, 2]
    bench.last.answer()
    assert bench.outcomes[0].value() == BLOCK


def test_a_controller_that_left_us_in_doubt_is_not_asked_first_the_next_time() -> None:
    bench = Bench()
    bench.ask(HARMLESS)
    bench.last.answer()
    bench.ask()
    bench.last.fail(RequestTimedOutError("cut"))
    bench.ask()
    assert bench.asked == [1, 1, 2]


def test_a_controller_that_hangs_is_given_up_if_that_does_no_harm_and_its_late_answer_is_ignored() -> None:
    bench = Bench()
    bench.ask(HARMLESS)
    bench.timers.advance(TRY_MS + PAUSE_MS_MIN)
    assert bench.asked == [1, 2]
    bench.calls[0].answer()
    assert bench.outcomes == []
    bench.last.answer(response=ProducerIdBlock(1_000, 1_000))
    assert bench.outcomes[0].value() == ProducerIdBlock(1_000, 1_000)


def test_a_change_waits_for_a_controller_that_hangs_until_its_own_deadline() -> None:
    bench = Bench()
    bench.ask(timeout_ms=4_000)
    assert bench.last.timeout_ms == 4_000
    bench.timers.advance(3_999)
    assert bench.outcomes == []
    bench.timers.advance(1)
    assert isinstance(bench.error, RequestTimedOutError)
    assert bench.asked == [1]
    bench.last.answer()
    assert len(bench.outcomes) == 1, "it was answered once, and that was the end"


def test_at_the_deadline_the_last_thing_that_went_wrong_is_told() -> None:
    bench = Bench()
    bench.ask(timeout_ms=1_000)
    while not bench.outcomes:
        if bench.calls:
            bench.calls.pop().fail(UnreachableError("no way to node 7"))
        bench.timers.advance(1)
    assert isinstance(bench.error, RequestTimedOutError)
    assert "no way to node 7" in str(bench.error)


def test_no_voter_is_given_more_time_than_is_left() -> None:
    bench = Bench()
    bench.ask(timeout_ms=100)
    bench.last.fail(UnreachableError("gone"))
    bench.timers.advance(PAUSE_MS_MIN)
    assert bench.last.timeout_ms == 100 - bench.last.at_ms


def test_closing_ends_what_is_under_way_as_unknown_and_asks_nobody() -> None:
    bench = Bench()
    bench.ask()
    bench.last.fail(UnreachableError("gone"))
    bench.forwarder.close()
    bench.timers.advance(PAUSE_MS_MIN)
    assert isinstance(bench.error, RequestTimedOutError)
    bench.ask()
    assert isinstance(bench.outcomes[1].error, RequestTimedOutError)
    assert len(bench.calls) == 1


# --- visible here ------------------------------------------------------------------------------


def test_an_answer_waits_until_our_own_image_has_what_was_done() -> None:
    bench = Bench()
    bench.ask()
    bench.last.answer(offset=5)
    bench.commit(4)
    assert bench.outcomes == []
    bench.commit(5)
    assert bench.outcomes[0].value() == BLOCK


def test_who_does_not_want_to_see_it_need_not_wait() -> None:
    bench = Bench()
    bench.ask(HARMLESS, until_visible=False)
    bench.last.answer(offset=5)
    assert bench.outcomes[0].value() == BLOCK


def test_what_is_done_and_does_not_become_visible_in_time_is_unknown_to_who_asked() -> None:
    bench = Bench()
    bench.ask(timeout_ms=500)
    bench.last.answer(offset=5)
    bench.timers.advance(500)
    assert isinstance(bench.error, RequestTimedOutError)
    bench.commit(5)
    assert len(bench.outcomes) == 1


def test_who_hangs_after_the_answer_is_not_asked_again() -> None:
    """The time for one try is over while the answer waits to become visible."""
    bench = Bench()
    bench.ask(HARMLESS)
    bench.last.answer(offset=5)
    bench.timers.advance(TRY_MS + PAUSE_MS_MAX)
    assert len(bench.calls) == 1
    bench.commit(5)
    assert bench.outcomes[0].value() == BLOCK


def test_an_image_that_does_not_come_to_show_it_is_told_of_once() -> None:
    """Whoever feeds it may be cut off from the others."""
    bench = Bench()
    bench.ask(timeout_ms=5 * BEHIND_MS)
    bench.last.answer(offset=5)
    bench.timers.advance(BEHIND_MS - 1)
    assert bench.behind == []
    bench.timers.advance(3 * BEHIND_MS)
    assert len(bench.behind) == 1
    bench.commit(5)
    assert bench.outcomes[0].value() == BLOCK


def test_an_image_that_shows_it_soon_is_no_reason_to_warn() -> None:
    bench = Bench()
    bench.ask()
    bench.last.answer(offset=5)
    bench.commit(5)
    bench.timers.advance(2 * BEHIND_MS)
    assert bench.behind == []


def test_who_waited_in_vain_leaves_nothing_behind() -> None:
    bench = Bench()
    for _ in range(50):
        bench.ask(timeout_ms=100)
        bench.last.answer(offset=5)
        bench.timers.advance(100)
    assert not bench.replica._waiters


# --- what does no harm twice -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "harmless"),
    [
        (AllocateProducerIdsRequest(1, 1), True),
        (AlterPartitionsRequest(1, 1, ()), True),
        (DescribeQuorumRequest(), True),
        (ElectLeadersRequest(0), True),
        (HeartbeatRequest(broker_id=1, broker_epoch=1, metadata_offset=0), True),
        (ReadImageRequest(), True),
        (registration(1), True),
        (UpdateFeaturesRequest(()), True),
        (AlterReassignmentsRequest(()), False),
        (FenceRefusedRequest(1, 2), False),  # of the controller to itself
        (UnregisterBrokerRequest(1), False),
        (RegisterControllerRequest("c", CONTROLLER), True),
        (ForgetControllerRequest(CONTROLLER), False),
        (AddVoterRequest("c", 2), False),
        (RemoveVoterRequest("c", 2), False),
        (DeleteTopicsRequest(("orders",)), False),
        (CreateTopicsRequest((), validate_only=False), False),
        (CreateTopicsRequest((), validate_only=True), True),
        (CreatePartitionsRequest((), validate_only=False), False),
        (CreatePartitionsRequest((), validate_only=True), True),
        (AlterConfigsRequest((), validate_only=False), False),
        (AlterConfigsRequest((), validate_only=True), True),
        (IncrementalAlterConfigsRequest((), validate_only=False), False),
        (IncrementalAlterConfigsRequest((), validate_only=True), True),
        (AlterQuotasRequest((), validate_only=False), False),
        (AlterQuotasRequest((), validate_only=True), True),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, bool) else str(value),
)
def test_only_what_another_may_come_between_unharmed_is_asked_twice(
    request_: Request, harmless: bool
) -> None:
    assert is_safe_to_retry(request_) is harmless


def test_every_request_is_in_the_table_above() -> None:
    (mark,) = test_only_what_another_may_come_between_unharmed_is_asked_twice.pytestmark  # type: ignore[attr-defined]
    told = {type(each) for each, _ in mark.args[1]}
    assert told == set(Request.__args__)
