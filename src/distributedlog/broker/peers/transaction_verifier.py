"""Asks transaction coordinators whether partitions take part in a transaction, or has them added to it.

A leader asks before the first append of a transaction (`replication/verifications`), a group's coordinator
before offsets that are committed in one.  The request is AddPartitionsToTxn, from version 4 on between
brokers:

    verify      is the partition part of the transaction?  The client has added it before.
    add         it is to be part of it from now on: clients of transaction.version 2 add nothing themselves

One request at a time is in flight to each coordinator; what is asked meanwhile is gathered for the next.  A
response names transactions by their transactional id alone, so a request has each id once, and another
question about it waits for the next request: for another epoch, say, or to add where others verify.

| what happens                                        | error code, for each partition              |
|-----------------------------------------------------|---------------------------------------------|
| nobody leads the partition of `__transaction_state` | COORDINATOR_NOT_AVAILABLE                   |
| the coordinator cannot be reached, or is lost       | NETWORK_EXCEPTION: it may have been added   |
| too many ask already                                | COORDINATOR_NOT_AVAILABLE                   |
| it says that the request as a whole failed          | that                                        |
| it says something of a partition                    | that, as `in_words_of_producers` has it     |
| it says nothing of a partition                      | UNKNOWN_SERVER_ERROR                        |

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


class TransactionVerifier:
    """Belongs to the data loop.  `answered` is called there too, and never before `ask` has returned."""

    def __init__(
        self,
        image: Callable[[], MetadataImage],
        *,
        broker_id: int,
        connect: Callable[[int], Awaitable[Connection]],
        ask_self: AskSelf,
        timeout_ms: int,
    ) -> None:
        """`ask_self` asks the coordinator on this broker."""
        self._image = image
        self._broker_id = broker_id
        self._connect = connect
        self._ask_self = ask_self
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
                self._make_ask(coordinator_id), f"broker {coordinator_id}"
            )
        queue.add(_Waiting(question, answered))

    def _find_coordinator(self, transactional_id: str) -> int | None:
        image = self._image()
        topic = image.topic_named(TRANSACTIONS_TOPIC)
        if topic is None:
            return None
        leader = topic.partitions[partition_of(transactional_id, len(topic.partitions))].leader
        broker = image.brokers.get(leader)
        return None if broker is None or broker.fenced else leader

    def _make_ask(self, coordinator_id: int) -> "_Ask":
        if coordinator_id == self._broker_id:
            return _SelfAsk(self._ask_self)
        return _PeerAsk(coordinator_id, self._connect, self._timeout_ms)

    def close(self) -> None:
        self._is_closed = True
        for queue in self._by_broker.values():
            queue.close()


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

    def __init__(self, ask: _Ask, label: str) -> None:
        self._ask = ask
        self._label = label
        self._waiting: deque[_Waiting] = deque()
        self._task: asyncio.Task[None] | None = None

    def add(self, waiting: _Waiting) -> None:
        if len(self._waiting) >= QUESTIONS_MAX:
            refusal = dict.fromkeys(waiting.question.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            asyncio.get_running_loop().call_soon(waiting.answered, refusal)
            return
        self._waiting.append(waiting)
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._ask.close()

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._ask_round(self._take_round())
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

    async def _ask_round(self, taken: list[_Waiting]) -> None:
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
        for question, answered in taken:
            verdicts = {each: _find_verdict(question, each, failure, results) for each in question.partitions}
            try:
                answered(verdicts)
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


def _find_verdict(
    question: Question,
    partition: TopicPartition,
    failure: ErrorCode,
    results: Mapping[tuple[str, TopicPartition], ErrorCode],
) -> ErrorCode:
    if failure is not ErrorCode.NONE:
        return failure
    code = results.get((question.transactional_id, partition), ErrorCode.UNKNOWN_SERVER_ERROR)
    return in_words_of_producers(code, question.purpose)


def in_words_of_producers(code: ErrorCode, purpose: Purpose) -> ErrorCode:
    """Returns the code for a producer: coordinators have codes that it does not expect of a partition."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and purpose is Purpose.VERIFY:
        return ErrorCode.INVALID_TXN_STATE
    return code
