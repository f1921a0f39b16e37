"""Asks transaction coordinators whether partitions take part in a transaction, or has them added to it.

A leader asks before the first append of a transaction (`replication/verifications`), a group's coordinator
before offsets that are committed in one.  The request is AddPartitionsToTxn, from version 4 on between
brokers:

    verify      is the partition part of the transaction?  The client has added it before.
    add         it is to be part of it from now on: clients of transaction.version 2 add nothing themselves

One request at a time is in flight to each coordinator; what is asked meanwhile is gathered for the next.  A
response names transactions by their transactional id alone, so a request has each id once, and another
question about it waits for the next request: for another epoch, say, or to add where others verify.

A transaction's end is answered before its markers are written, so its producer's next one may come too early
(CONCURRENT_TRANSACTIONS).  What it wants to be added waits here, as in Kafka, for ADD_WAIT_MS at most:
otherwise its client would send the request again, and all its batches with it.

    waits ──► the coordinator on this broker has noted the end (`completed`) ──► asked about again
         └──► ADD_AGAIN_MS are over: the coordinator is elsewhere, or stalls ──► asked about again

| what happens                                        | error code, for each partition              |
|-----------------------------------------------------|---------------------------------------------|
| nobody leads the partition of `__transaction_state` | COORDINATOR_NOT_AVAILABLE                   |
| the coordinator cannot be reached, is lost or fenced| NETWORK_EXCEPTION: it may have been added   |
| too many ask already                                | COORDINATOR_NOT_AVAILABLE                   |
| it says that the request as a whole failed          | that                                        |
| it says something of a partition                    | that, as `in_words_of_producers` has it     |
| it says nothing of a partition                      | UNKNOWN_SERVER_ERROR                        |

A coordinator that is fenced is waited for no longer (`brokers_changed`), and not only until a request to it
has timed out: whoever waits holds up its client, and all behind it on its connection.

Nothing here survives a crash, and nothing need: who asks is a request, which its client sends again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from distributedlog.client.connection import Connection
from distributedlog.client.errors import as_error_code
from distributedlog.controller.image import MetadataImage
from distributedlog.groups.placement import partition_of
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition
from distributedlog.model.internal_topics import TRANSACTIONS_TOPIC
from distributedlog.ports.clock import Clock
from distributedlog.ports.scheduler import Scheduler
from distributedlog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

logger = logging.getLogger(__name__)

BETWEEN_BROKERS_SINCE: Final = 4
QUESTIONS_MAX: Final = 10_000
"""Questions that wait for one coordinator."""
TRANSACTIONS_MAX: Final = 1_000
"""Transactions in one request."""
ADD_WAIT_MS: Final = 100
ADD_AGAIN_MS: Final = 20
"""What Kafka's brokers wait by default (`add.partitions.to.txn.retry.backoff.max.ms` and `.ms`)."""


class Purpose(Enum):
    """What is asked, which depends on what the client's request can be answered with."""

    VERIFY = "verify, for a client that knows no TRANSACTION_ABORTABLE"
    VERIFY_ABORTABLE = "verify"
    ADD = "add"


class Question(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    purpose: Purpose
    partitions: tuple[TopicPartition, ...]


Verdicts = Mapping[TopicPartition, ErrorCode]
"""What became of each partition of a question; NONE: it takes part in the transaction."""
Answered = Callable[[Verdicts], None]
AskSelf = Callable[[AddPartitionsToTxnRequest, int], Awaitable[AddPartitionsToTxnResponse]]


class _Waiting(NamedTuple):
    question: Question
    answered: Answered
    until_ms: int
    """How long it waits for the end of the transaction before, if that holds it up."""


class TransactionVerifier:
    """Belongs to the data loop.  `answered` is called there too, and never before `ask` has returned."""

    def __init__(
        self,
        image: Callable[[], MetadataImage],
        *,
        broker_id: int,
        connect: Callable[[int], Awaitable[Connection]],
        ask_self: AskSelf,
        clock: Clock,
        scheduler: Scheduler,
        timeout_ms: int,
    ) -> None:
        """`ask_self` asks the coordinator on this broker."""
        self._image = image
        self._broker_id = broker_id
        self._connect = connect
        self._ask_self = ask_self
        self._clock = clock
        self._scheduler = scheduler
        self._timeout_ms = timeout_ms
        self._by_broker: dict[int, _CoordinatorQueue] = {}
        self._is_closed = False

    def ask(self, question: Question, answered: Answered) -> None:
        coordinator_id = self._find_coordinator(question.transactional_id)
        if coordinator_id is None or self._is_closed:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            asyncio.get_running_loop().call_soon(answered, dict.fromkeys(question.partitions, code))
            return
        queue = self._by_broker.get(coordinator_id)
        if queue is None:
            queue = self._by_broker[coordinator_id] = _CoordinatorQueue(
                self._make_ask(coordinator_id),
                f"broker {coordinator_id}",
                clock=self._clock,
                scheduler=self._scheduler,
            )
        queue.add(question, answered)

    def completed(self, transactional_id: str) -> None:
        """The coordinator on this broker has noted that a transaction is complete: the next one may begin."""
        queue = self._by_broker.get(self._broker_id)
        if queue is not None:
            queue.completed(transactional_id)

    def brokers_changed(self) -> None:
        """Gives up on fenced brokers: others coordinate in their place, or will."""
        image = self._image()
        for broker_id in list(self._by_broker):
            if broker_id != self._broker_id and not _is_unfenced(image, broker_id):
                self._by_broker.pop(broker_id).give_up()

    def _find_coordinator(self, transactional_id: str) -> int | None:
        image = self._image()
        topic = image.topic_named(TRANSACTIONS_TOPIC)
        if topic is None:
            return None
        leader = topic.partitions[partition_of(transactional_id, len(topic.partitions))].leader
        return leader if _is_unfenced(image, leader) else None

    def _make_ask(self, coordinator_id: int) -> "_Ask":
        if coordinator_id == self._broker_id:
            return _SelfAsk(self._ask_self)
        return _PeerAsk(coordinator_id, self._connect, self._timeout_ms)

    def close(self) -> None:
        self._is_closed = True
        for queue in self._by_broker.values():
            queue.close()


def _is_unfenced(image: MetadataImage, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.fenced


# --- one coordinator ---------------------------------------------------------------------------


class _Ask:
    """The way to one coordinator."""

    async def __call__(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        raise NotImplementedError

    def close(self) -> None:
        return None


class _SelfAsk(_Ask):
    def __init__(self, ask: AskSelf) -> None:
        self._ask = ask

    async def __call__(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        return await self._ask(request, AddPartitionsToTxnRequest.versions[1])


class _PeerAsk(_Ask):
    """Keeps one connection, and makes another when that is lost."""

    def __init__(
        self, broker_id: int, connect: Callable[[int], Awaitable[Connection]], timeout_ms: int
    ) -> None:
        self._broker_id = broker_id
        self._connect = connect
        self._timeout_ms = timeout_ms
        self._connection: Connection | None = None

    async def __call__(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        connection = self._connection
        if connection is None or connection.is_closed:
            connection = self._connection = await self._connect(self._broker_id)
        version = connection.version_for(AddPartitionsToTxnRequest)
        response = await connection.call(
            request, AddPartitionsToTxnResponse, timeout_ms=self._timeout_ms, version=version
        )
        if response.error_code != ErrorCode.NONE:
            self.close()  # it may be that the proof is of an earlier life of this broker: it proves anew
        return response

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _CoordinatorQueue:
    """Who waits for one coordinator; one request at a time."""

    def __init__(self, ask: _Ask, label: str, *, clock: Clock, scheduler: Scheduler) -> None:
        self._ask = ask
        self._label = label
        self._clock = clock
        self._scheduler = scheduler
        self._waiting: deque[_Waiting] = deque()
        self._in_flight: list[_Waiting] = []
        self._early: dict[str, list[_Waiting]] = {}
        """Who is held up by the end of the transaction before, by transactional id."""
        self._early_count = 0
        self._completed: set[str] = set()
        """Whose transactions were completed while a request was in flight."""
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def add(self, question: Question, answered: Answered) -> None:
        if len(self._waiting) + self._early_count >= QUESTIONS_MAX:
            refusal = dict.fromkeys(question.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            asyncio.get_running_loop().call_soon(answered, refusal)
            return
        until_ms = self._clock.monotonic_ms() + ADD_WAIT_MS
        self._waiting.append(_Waiting(question, answered, until_ms))
        self._begin()

    def _begin(self) -> None:
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())

    def close(self) -> None:
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
        self._ask.close()

    def give_up(self) -> None:
        """Closes it, and answers all who wait: what is in flight may be done or not."""
        self.close()
        early = (each for held in self._early.values() for each in held)
        for waiting in (*self._in_flight, *self._waiting, *early):
            _answer(waiting, dict.fromkeys(waiting.question.partitions, ErrorCode.NETWORK_EXCEPTION))

    # --- who comes too early -------------------------------------------------------------------

    def _hold(self, waiting: _Waiting) -> None:
        """Asks again later, or at once if what it waits for has happened meanwhile."""
        transactional_id = waiting.question.transactional_id
        if transactional_id in self._completed:
            self._waiting.append(waiting)
            return
        self._early.setdefault(transactional_id, []).append(waiting)
        self._early_count += 1
        again_ms = self._clock.monotonic_ms() + ADD_AGAIN_MS
        self._scheduler.call_at(again_ms, lambda: self._ask_again(transactional_id))

    def _ask_again(self, transactional_id: str) -> None:
        early = self._early.pop(transactional_id, None)
        if early is not None and not self._is_closed:
            self._early_count -= len(early)
            self._waiting.extend(early)
            self._begin()

    def completed(self, transactional_id: str) -> None:
        if self._task is not None:
            self._completed.add(transactional_id)
        self._ask_again(transactional_id)

    # --- rounds --------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._ask_round()
        finally:
            self._task = None

    def _take_round(self) -> list[_Waiting]:
        """Takes the questions of the next request: of each transactional id those that agree with its
        first."""
        taken: list[_Waiting] = []
        later: deque[_Waiting] = deque()
        first: dict[str, Question] = {}
        while self._waiting:
            waiting = self._waiting.popleft()
            question = waiting.question
            agreed = first.get(question.transactional_id)
            if agreed is None and len(first) < TRANSACTIONS_MAX:
                agreed = first[question.transactional_id] = question
            if agreed is not None and agreed._replace(partitions=()) == question._replace(partitions=()):
                taken.append(waiting)
            else:
                later.append(waiting)
        self._waiting = later
        return taken

    async def _ask_round(self) -> None:
        taken = self._in_flight = self._take_round()
        self._completed.clear()
        failure = ErrorCode.NONE
        results: Mapping[tuple[str, TopicPartition], ErrorCode] = {}
        try:
            response = await self._ask(make_request(each.question for each in taken))
        except (DlogError, OSError, TimeoutError) as error:
            logger.debug("the transaction coordinator on %s could not be asked: %s", self._label, error)
            failure = ErrorCode.NETWORK_EXCEPTION
        except Exception:  # whoever waits is answered whatever happened
            logger.exception("the transaction coordinator on %s could not be asked", self._label)
            failure = ErrorCode.NETWORK_EXCEPTION
        else:
            failure = as_error_code(response.error_code)
            results = _index_results(response.results_by_transaction)
        self._in_flight = []
        now_ms = self._clock.monotonic_ms()
        for waiting in taken:
            question = waiting.question
            verdicts = _find_verdicts(question, failure, results)
            if now_ms < waiting.until_ms and _comes_too_early(question, verdicts):
                self._hold(waiting)
            else:
                _answer(waiting, verdicts)


def _answer(waiting: _Waiting, verdicts: Verdicts) -> None:
    try:
        waiting.answered(verdicts)
    except Exception:  # a defect that shows in one of them must not keep the others waiting
        logger.exception("what the transaction coordinator said was not taken")


# --- requests and responses --------------------------------------------------------------------


def make_request(questions: Iterable[Question]) -> AddPartitionsToTxnRequest:
    """Makes one request of questions that agree where they are about the same transactional id."""
    partitions: dict[str, dict[TopicPartition, None]] = {}
    first: dict[str, Question] = {}
    for each in questions:
        first.setdefault(each.transactional_id, each)
        partitions.setdefault(each.transactional_id, {}).update(dict.fromkeys(each.partitions))
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                verify_only=each.purpose is not Purpose.ADD,
                topics=_group_by_topic(partitions[each.transactional_id]),
            )
            for each in first.values()
        ]
    )


def _group_by_topic(partitions: Iterable[TopicPartition]) -> list[AddPartitionsToTxnTopic]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    return [AddPartitionsToTxnTopic(name=name, partitions=found) for name, found in by_topic.items()]


def _index_results(
    results: Iterable[AddPartitionsToTxnResult],
) -> Mapping[tuple[str, TopicPartition], ErrorCode]:
    return {
        (each.transactional_id, TopicPartition(topic.name, result.partition_index)): as_error_code(
            result.partition_error_code
        )
        for each in results
        for topic in each.topic_results
        for result in topic.results_by_partition
    }


def _find_verdicts(
    question: Question, failure: ErrorCode, results: Mapping[tuple[str, TopicPartition], ErrorCode]
) -> Verdicts:
    transactional_id, purpose = question.transactional_id, question.purpose
    if failure is not ErrorCode.NONE:
        return dict.fromkeys(question.partitions, failure)
    unknown = ErrorCode.UNKNOWN_SERVER_ERROR
    return {
        each: in_words_of_producers(results.get((transactional_id, each), unknown), purpose)
        for each in question.partitions
    }


def _comes_too_early(question: Question, verdicts: Verdicts) -> bool:
    """Returns whether the transaction before is still being ended, which its producer does not know."""
    return question.purpose is Purpose.ADD and ErrorCode.CONCURRENT_TRANSACTIONS in verdicts.values()


def in_words_of_producers(code: ErrorCode, purpose: Purpose) -> ErrorCode:
    """Returns the code for a producer: coordinators have codes that it does not expect of a partition."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and purpose is Purpose.VERIFY:
        return ErrorCode.INVALID_TXN_STATE
    return code
