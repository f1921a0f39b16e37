"""A leader asks for another ISR: in one request at a time, and counts on nothing that is not known."""

from distributedlog.broker.replicas.isr_changes import RETRY_MS, IsrChanges
from distributedlog.controller.records import BrokerEndpoint, RegisterBroker
from distributedlog.controller.requests import (
    AlterPartitionsReply,
    AlterPartitionsRequest,
    IsrOutcome,
    Request,
    Response,
)
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import RequestTimedOutError
from distributedlog.ports.executor import Done, Outcome
from distributedlog.replication.isr import LeaderView
from tests.unit.broker.partition_stage import ME, OTHER, Stage, topic_id
from tests.unit.replication.support import produce_data
from tests.unit.storage.support import batch_of, value_of

LAG_MS = 10_000
TIMEOUT_MS = 2_000
THIRD = 3
NUMBER = 7


class Leader:
    """Broker 1 leads the one partition of `t`, whose ISR is itself; the controller answers by hand."""

    def __init__(self) -> None:
        self.stage = Stage()
        self.asked: list[tuple[AlterPartitionsRequest, Done[Response]]] = []
        self.changes = IsrChanges(
            ME,
            self.stage.partitions.signals,
            ask=self._ask,
            image=lambda: self.stage.metadata.image,
            broker_epoch=lambda: ME,
            clock=self.stage.clock,
            scheduler=self.stage.scheduler,
            lag_ms_max=LAG_MS,
            timeout_ms=TIMEOUT_MS,
        )
        for broker_id in (ME, OTHER, THIRD):
            self.register(broker_id)
        self.stage.metadata.create("t", NUMBER, replicas=(ME, OTHER, THIRD))
        self.set_isr(ME)

    def _ask(self, request: Request, timeout_ms: int, done: Done[Response]) -> None:
        assert isinstance(request, AlterPartitionsRequest)
        assert timeout_ms == TIMEOUT_MS
        self.asked.append((request, done))

    def register(self, broker_id: int, *, epoch: int | None = None, fenced: bool = False) -> None:
        self.stage.metadata.apply(
            RegisterBroker(
                broker_id=broker_id,
                incarnation_id=topic_id(broker_id),
                broker_epoch=broker_id if epoch is None else epoch,
                end_points=[BrokerEndpoint(name="L", host="h", port=1, security_protocol=0)],
                features=[],
                rack=None,
                fenced=fenced,
            )
        )

    def set_isr(self, *isr: int) -> None:
        self.stage.metadata.change(NUMBER, isr=list(isr))
        self.stage.apply()

    def is_open(self) -> bool:
        """Whether a proposal is open."""
        return self.view.proposal is not None

    @property
    def view(self) -> LeaderView:
        view = self.stage["t"].view
        assert view is not None
        return view

    def fetch(self, follower: int, offset: int, epoch: int | None = None) -> None:
        read = self.stage["t"].read_for_replica(
            follower,
            offset,
            1000,
            self.stage.clock.monotonic_ms(),
            follower_epoch=follower if epoch is None else epoch,
        )
        if read.region is not None:
            read.region.close()
        self.stage.settle()

    def asked_isr(self, at: int = -1) -> list[tuple[int, int]]:
        (change,) = self.asked[at][0].changes
        return [tuple(member) for member in change.isr]  # type: ignore[misc]

    def answer(self, error: ErrorCode = ErrorCode.NONE, at: int = -1) -> None:
        request, done = self.asked[at]
        outcomes = tuple(
            IsrOutcome(topic_id=each.topic_id, partition_id=each.partition_id, error=error)
            for each in request.changes
        )
        done(Outcome(AlterPartitionsReply(outcomes), None))
        self.stage.settle()

    def lose_answer(self) -> None:
        self.asked[-1][1](Outcome(None, RequestTimedOutError("nobody answered")))
        self.stage.settle()

    def advance(self, elapsed_ms: int) -> None:
        self.stage.scheduler.advance(elapsed_ms)
        self.stage.settle()


def test_a_follower_that_has_caught_up_joins() -> None:
    leader = Leader()
    leader.fetch(OTHER, 0)
    assert leader.asked_isr() == [(ME, -1), (OTHER, OTHER)]
    request = leader.asked[0][0]
    assert (request.broker_id, request.broker_epoch) == (ME, ME)
    assert leader.is_open()
    leader.set_isr(ME, OTHER)
    leader.answer()
    assert leader.view.isr == (ME, OTHER)
    assert not leader.is_open()
    assert (leader.changes.expands, leader.changes.shrinks) == (1, 0)


def test_one_request_is_under_way_at_a_time() -> None:
    leader = Leader()
    leader.fetch(OTHER, 0)
    leader.fetch(THIRD, 0)
    assert len(leader.asked) == 1
    leader.set_isr(ME, OTHER)
    leader.fetch(THIRD, 0)
    leader.answer()
    assert [broker_id for broker_id, _ in leader.asked_isr()] == [ME, OTHER, THIRD]


def test_a_follower_that_falls_behind_leaves() -> None:
    leader = Leader()
    leader.set_isr(ME, OTHER)
    leader.fetch(OTHER, 0)
    produce_data(leader.stage["t"], batch_of([value_of(0)]))
    leader.stage.settle()
    leader.advance(LAG_MS)
    assert not leader.asked
    leader.advance(LAG_MS)
    assert leader.asked_isr() == [(ME, -1)]
    leader.set_isr(ME)
    leader.answer()
    assert (leader.changes.expands, leader.changes.shrinks) == (0, 1)
    assert leader.stage["t"].high_watermark == 1


def test_who_is_fenced_leaving_or_of_another_epoch_is_not_proposed() -> None:
    leader = Leader()
    leader.register(OTHER, epoch=9)
    leader.fetch(OTHER, 0)
    leader.register(THIRD, fenced=True)
    leader.fetch(THIRD, 0)
    assert not leader.asked
    leader.fetch(OTHER, 0, epoch=9)
    assert leader.asked_isr() == [(ME, -1), (OTHER, 9)]


def test_who_is_refused_is_proposed_again_later() -> None:
    leader = Leader()
    leader.fetch(OTHER, 0)
    leader.answer(ErrorCode.INELIGIBLE_REPLICA)
    assert not leader.is_open()
    leader.fetch(OTHER, 0)
    assert len(leader.asked) == 1
    leader.advance(RETRY_MS)
    assert len(leader.asked) == 2


def test_who_is_refused_holds_back_no_commit_any_more() -> None:
    """Nobody fetches or appends after it: what waits for the high watermark is told now, or never."""
    leader = Leader()
    leader.fetch(OTHER, 0)
    produce_data(leader.stage["t"], batch_of([value_of(0)]))
    leader.stage.settle()
    assert leader.stage["t"].high_watermark == 0
    told: list[int] = []
    leader.stage.partitions.signals.commit_advanced.append(lambda each: told.append(each.high_watermark))
    leader.answer(ErrorCode.INELIGIBLE_REPLICA)
    assert told == [1]


def test_a_proposal_of_which_nothing_is_known_still_counts() -> None:
    """The controller may have taken it: what only the leader has must not be committed."""
    leader = Leader()
    leader.fetch(OTHER, 0)
    leader.lose_answer()
    assert leader.is_open()
    produce_data(leader.stage["t"], batch_of([value_of(0)]))
    leader.stage.settle()
    assert leader.stage["t"].high_watermark == 0
    leader.advance(RETRY_MS)
    assert leader.asked_isr(0) == leader.asked_isr(1)
    # The request that was lost may still come to the controller, after this one was refused.
    leader.answer(ErrorCode.INELIGIBLE_REPLICA)
    assert leader.is_open()
    leader.advance(2 * TIMEOUT_MS)
    leader.answer(ErrorCode.INELIGIBLE_REPLICA)
    assert not leader.is_open()


def test_a_lost_proposal_of_who_has_registered_anew_is_withdrawn_at_once() -> None:
    """Whatever became of the lost request, nobody can join in an earlier broker epoch any more."""
    leader = Leader()
    leader.fetch(OTHER, 0)
    leader.lose_answer()
    leader.register(OTHER, epoch=9)
    leader.advance(RETRY_MS)
    leader.answer(ErrorCode.INELIGIBLE_REPLICA)
    assert not leader.is_open()
    leader.fetch(OTHER, 0, epoch=9)
    leader.advance(RETRY_MS)
    assert leader.asked_isr() == [(ME, -1), (OTHER, 9)]


def test_a_lost_proposal_that_a_later_image_has_settled_is_not_withdrawn_before_that() -> None:
    """It was applied before its member registered anew; this broker has yet to take the image in."""
    leader = Leader()
    leader.fetch(OTHER, 0)
    leader.lose_answer()
    leader.stage.metadata.change(NUMBER, isr=[ME, OTHER])
    leader.register(OTHER, epoch=9)
    leader.advance(RETRY_MS)
    leader.answer(ErrorCode.INELIGIBLE_REPLICA)
    assert leader.is_open()
    leader.stage.apply()
    assert leader.view.isr == (ME, OTHER)


def test_nothing_is_kept_of_a_partition_that_goes_while_it_is_asked_about() -> None:
    leader = Leader()
    leader.fetch(OTHER, 0)
    partition = leader.stage["t"]
    leader.stage.metadata.remove(NUMBER)
    leader.stage.apply()
    assert partition.is_stopped
    leader.lose_answer()
    changes = leader.changes
    for kept in (changes._leading, changes._waiting, changes._not_before_ms, changes._unknown_until_ms):
        assert partition not in kept


def test_an_answer_that_is_lost_says_nothing_of_a_proposal_that_the_image_has_settled() -> None:
    leader = Leader()
    leader.fetch(OTHER, 0)
    leader.set_isr(ME, OTHER)
    leader.lose_answer()
    leader.fetch(THIRD, 0)
    assert leader.asked_isr() == [(ME, -1), (OTHER, OTHER), (THIRD, THIRD)], "at once"
    leader.answer(ErrorCode.INELIGIBLE_REPLICA)
    assert not leader.is_open()


def test_another_partition_epoch_is_settled_by_the_image() -> None:
    leader = Leader()
    leader.fetch(OTHER, 0)
    leader.answer(ErrorCode.INVALID_UPDATE_VERSION)
    assert leader.is_open()
    leader.set_isr(ME, OTHER)
    assert not leader.is_open()


def test_a_partition_that_is_led_elsewhere_proposes_nothing() -> None:
    leader = Leader()
    leader.fetch(OTHER, 0)
    leader.stage.metadata.change(NUMBER, isr=[ME, OTHER])
    leader.stage.metadata.change(NUMBER, leader=OTHER)
    leader.stage.apply()
    leader.answer(ErrorCode.FENCED_LEADER_EPOCH)
    leader.advance(4 * LAG_MS)
    assert len(leader.asked) == 1
