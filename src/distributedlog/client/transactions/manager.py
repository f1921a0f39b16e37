"""What a producer asks of coordinators for its transactions.

| step           | classic flow                                   | with `transaction.version` 2            |
|----------------|------------------------------------------------|-----------------------------------------|
| `init`         | InitProducerId: whoever has the id is fenced   | the same                                |
| `add`          | AddPartitionsToTxn before the first record     | nothing: Produce 12 adds its partitions |
| `send_offsets` | AddOffsetsToTxn, then TxnOffsetCommit up to 4  | TxnOffsetCommit 5                       |
| `end`          | EndTxn up to 4; InitProducerId after a failure | EndTxn 5, which gives the next epoch    |

Which flow it is, the coordinator's features say at every `begin`.  What passes is tried again until
`call_timeout_ms` is over; all requests may be repeated.  One is under way at a time, so that an end never
overtakes an addition.  `state` judges the errors.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple, TypeVar

from distributedlog.client.accumulator import NOBODY, Identity
from distributedlog.client.admin.group_offsets import OffsetAndMetadata
from distributedlog.client.connection import Connection
from distributedlog.client.coordinators import GROUP_KEY, TRANSACTION_KEY, Coordinator
from distributedlog.client.errors import check_response, code_of
from distributedlog.client.metadata import Cluster
from distributedlog.client.transactions.state import State, TransactionState
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError, GroupRebalancedError
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from distributedlog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from distributedlog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from distributedlog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from distributedlog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from distributedlog.protocol.schema import Message

M = TypeVar("M", bound=Message)

FEATURE: Final = "transaction.version"
IMPLICIT_LEVEL: Final = 2
INIT_VERSION_MAX: Final = 5
"""6 is for two-phase commits, which are not stable."""
OWN_EPOCH_SINCE: Final = 3
"""The first version of InitProducerId with which a producer asks for its own next epoch."""
ADD_VERSION_MAX: Final = 3
CLASSIC_END_MAX: Final = 4
CLASSIC_OFFSETS_MAX: Final = 4
NO_MEMBER_ANY_MORE: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)


class GroupMetadata(NamedTuple):
    """Which member of a group commits: `consumer.group_metadata()` has it."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


class Transactions:
    def __init__(self, cluster: Cluster, transactional_id: str, timeout_ms: int) -> None:
        self.state = TransactionState(transactional_id)
        self._cluster = cluster
        self._timeout_ms = timeout_ms
        self._coordinator = Coordinator(cluster, TRANSACTION_KEY, transactional_id)
        self._asking = asyncio.Lock()

    async def init(self) -> None:
        """Takes the transactional id over: whoever had it is fenced, and what was open is aborted."""
        async with self._asking:
            if self.state.state is State.NEW:
                self.state.initialized(await self._ask_identity(NOBODY))

    async def begin(self) -> None:
        await self.init()
        connection = await self._cluster.retrying(self._coordinator.connection)
        self.state.begin(is_implicit=connection.features.get(FEATURE, 0) >= IMPLICIT_LEVEL)

    async def _ask_identity(self, own: Identity) -> Identity:
        def request(version: int) -> InitProducerIdRequest:
            mine = own if version >= OWN_EPOCH_SINCE else NOBODY
            return InitProducerIdRequest(
                transactional_id=self.state.transactional_id,
                transaction_timeout_ms=self._timeout_ms,
                producer_id=mine.producer_id,
                producer_epoch=mine.epoch,
            )

        response = await self._ask(
            self._coordinator, InitProducerIdRequest, request, InitProducerIdResponse, INIT_VERSION_MAX
        )
        return Identity(response.producer_id, response.producer_epoch)

    # --- while it is open ----------------------------------------------------------------------

    async def add(self, partitions: Collection[TopicPartition]) -> None:
        """Makes partitions part of the transaction, as far as they are not.  An error is noted and raised."""
        async with self._asking:
            self.state.check_sending()
            new = self.state.to_add(partitions)
            if not new:
                return
            topics: dict[str, list[int]] = {}
            for each in new:
                topics.setdefault(each.topic, []).append(each.partition)
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.state.transactional_id,
                v3_and_below_producer_id=self.state.identity.producer_id,
                v3_and_below_producer_epoch=self.state.identity.epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=name, partitions=found) for name, found in topics.items()
                ],
            )
            await self._ask(
                self._coordinator,
                AddPartitionsToTxnRequest,
                lambda _: request,
                AddPartitionsToTxnResponse,
                ADD_VERSION_MAX,
            )
            self.state.added(new)

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        """Commits positions of a group together with the transaction.  An error is noted and raised."""
        async with self._asking:
            self.state.check_sending()
            if self.state.must_add_group(group.group_id):
                request = AddOffsetsToTxnRequest(
                    transactional_id=self.state.transactional_id,
                    producer_id=self.state.identity.producer_id,
                    producer_epoch=self.state.identity.epoch,
                    group_id=group.group_id,
                )
                await self._ask(
                    self._coordinator, AddOffsetsToTxnRequest, lambda _: request, AddOffsetsToTxnResponse
                )
                self.state.added_group(group.group_id)
            await self._commit_offsets(offsets, group)

    async def _commit_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for (topic, index), committed in offsets.items():
            topics.setdefault(topic, []).append(
                TxnOffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    committed_metadata=committed.metadata,
                )
            )
        request = TxnOffsetCommitRequest(
            transactional_id=self.state.transactional_id,
            group_id=group.group_id,
            producer_id=self.state.identity.producer_id,
            producer_epoch=self.state.identity.epoch,
            generation_id=group.generation,
            member_id=group.member_id,
            group_instance_id=group.instance_id,
            topics=[
                TxnOffsetCommitRequestTopic(name=name, partitions=found) for name, found in topics.items()
            ],
        )
        coordinator = Coordinator(self._cluster, GROUP_KEY, group.group_id)
        at_most = None if self.state.is_implicit else CLASSIC_OFFSETS_MAX
        try:
            await self._ask(
                coordinator, TxnOffsetCommitRequest, lambda _: request, TxnOffsetCommitResponse, at_most
            )
        except DlogError as error:
            if code_of(error) not in NO_MEMBER_ANY_MORE:
                raise
            raise GroupRebalancedError(
                f"the group {group.group_id!r} was rebalanced before its offsets were sent: abort, poll, and "
                "read again what is assigned then"
            ) from error

    # --- the end -------------------------------------------------------------------------------

    async def end(self) -> Identity:
        """Ends the transaction as `state.ending` was told.  Returns who the producer is from then on."""
        async with self._asking:
            state = self.state
            identity = state.identity
            if state.is_started:
                identity = await self._end_started()
            if state.needs_epoch and not state.is_implicit:
                identity = await self._ask_identity(identity)
            state.ended(identity)
            return identity

    async def _end_started(self) -> Identity:
        state = self.state
        request = EndTxnRequest(
            transactional_id=state.transactional_id,
            producer_id=state.identity.producer_id,
            producer_epoch=state.identity.epoch,
            committed=bool(state.is_committing),
        )
        at_most = None if state.is_implicit else CLASSIC_END_MAX
        response = await self._ask(
            self._coordinator, EndTxnRequest, lambda _: request, EndTxnResponse, at_most
        )
        if response.producer_id < 0:
            return state.identity
        return Identity(response.producer_id, response.producer_epoch)

    # --- asking --------------------------------------------------------------------------------

    async def _ask(
        self,
        coordinator: Coordinator,
        kind: type[Message],
        request: Callable[[int], Message],
        response: type[M],
        at_most: int | None = None,
    ) -> M:
        async def attempt() -> M:
            try:
                connection: Connection = await coordinator.connection()
                version = connection.version_for(kind, at_most)
                answer = await connection.call(
                    request(version),
                    response,
                    timeout_ms=self._cluster.options.request_timeout_ms,
                    version=version,
                )
                _check(answer, f"the transactional id {self.state.transactional_id!r}")
                return answer
            except DlogError as error:
                if code_of(error) is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    coordinator.forget()
                raise

        try:
            return await self._cluster.retrying(attempt)
        except DlogError as error:
            self.state.failed(error, by_coordinator=coordinator is self._coordinator)
            raise


def _check(answer: Message, about: str) -> None:
    """Raises the first error that a response has, for whatever part of it."""
    if isinstance(answer, AddPartitionsToTxnResponse):
        codes = {
            each.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        }
        # Those beside one that is refused are not attempted, which says nothing.
        for code in sorted(codes - {ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED}):
            check_response(code, about)
        return
    if isinstance(answer, TxnOffsetCommitResponse):
        for topic in answer.topics:
            for part in topic.partitions:
                check_response(part.error_code, f"{about} at {topic.name}-{part.partition_index}")
        return
    assert isinstance(answer, InitProducerIdResponse | AddOffsetsToTxnResponse | EndTxnResponse)
    check_response(answer.error_code, about)
