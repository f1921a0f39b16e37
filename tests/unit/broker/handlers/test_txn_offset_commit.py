"""Offsets in transactions over their bytes, on a real coordinator and its partition: from the request to the
marker."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest

from distributedlog.broker.net.context import ANONYMOUS, RequestContext
from distributedlog.broker.net.dispatch import HandlerResponse
from distributedlog.broker.net.pending import PendingResponse
from distributedlog.broker.peers.transaction_verifier import Purpose
from distributedlog.broker.replicas.delayed import Purgatory
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.model.internal_topics import OFFSETS_TOPIC
from distributedlog.protocol.codec import decode_all, encode_bytes, join_parts
from distributedlog.protocol.framing import decode_response, encode_response
from distributedlog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from distributedlog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from distributedlog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from distributedlog.protocol.schema import Message
from distributedlog.replication.partition import Partition
from tests.unit.broker.group_stage import GROUP, OFFSETS_NUMBER, GroupStage
from tests.unit.broker.handlers.admin_stage import registration_of, versions_of
from tests.unit.broker.handlers.transaction_stage import TRANSACTIONAL_ID, ScriptedVerifier
from tests.unit.broker.partition_stage import ME
from tests.unit.broker.server_stage import bare_services
from tests.unit.replication.support import confirm

R = TypeVar("R", bound=Message)


class TransactionalGroupBroker:
    """Broker 1, which leads `__consumer_offsets`, with a verifier that answers when the test says."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.groups = GroupStage()
        self.groups.settle()
        stage = self.groups.stage
        self.verifier = ScriptedVerifier()
        self.meanwhile: Callable[[], None] = lambda: None
        """What happens while the coordinator is asked."""
        self.services = bare_services(stage.settings, stage.clock)
        self.services.metadata = self.groups.metadata
        self.services.groups = self.groups.groups
        self.services.partitions = stage.partitions
        self.services.transaction_verifier = self.verifier
        self.services.purgatory = Purgatory(
            stage.partitions.signals, clock=stage.clock, scheduler=stage.scheduler
        )

    @property
    def partition(self) -> Partition:
        return self.groups.stage[OFFSETS_TOPIC]

    def lead_anew(self) -> None:
        """It leads on in another leader epoch, and has loaded the group again."""
        self.groups.metadata.change(OFFSETS_NUMBER, leader=ME)
        self.groups.stage.apply()
        self.groups.settle()

    def restart(self) -> None:
        self.groups.restart()
        self.groups.settle()
        self.services.groups = self.groups.groups
        self.services.partitions = self.groups.stage.partitions

    def ask(
        self, request: Message, version: int, response: type[R], *codes: ErrorCode, verifies: bool = True
    ) -> R:
        """Handles a request as the server does; the coordinator is asked and syncs are done while it
        waits."""
        return self.runner.run(self._ask(request, version, response, codes, verifies))

    async def _ask(
        self, request: Message, version: int, response: type[R], codes: tuple[ErrorCode, ...], verifies: bool
    ) -> R:
        registration = registration_of(request)
        received = decode_all(type(request), version, bytearray(encode_bytes(request, version)))
        deadline_ms = self.groups.stage.clock.monotonic_ms() + 30_000
        context = RequestContext(ANONYMOUS, "L", "client", "127.0.0.1", 7, version, 0, deadline_ms)
        answer: HandlerResponse | None
        try:
            answer = registration.handle(self.services, received, context)
            self.meanwhile()
            if verifies:
                self.verifier.answer(*codes)
            if isinstance(answer, Awaitable):
                answer = asyncio.ensure_future(answer)
            for _ in range(5):
                self.groups.settle()
                await asyncio.sleep(0)
            if isinstance(answer, PendingResponse):
                assert answer.is_decided, "it still waits"
                if answer.error is not None:
                    raise answer.error
                answer = answer.response
            elif isinstance(answer, asyncio.Future):
                answer = await answer
        except DlogError as error:
            answer = registration.make_error_response(received, context, error.code, str(error))
        assert isinstance(answer, Message)
        return decode_response(response, version, join_parts(encode_response(answer, version, 5))[4:])[1]

    def commit(
        self,
        offset: int,
        *codes: ErrorCode,
        version: int = 4,
        epoch: int = 0,
        member_id: str = "",
        generation: int = -1,
        partition: int = 0,
        group: str = GROUP,
    ) -> ErrorCode:
        request = TxnOffsetCommitRequest(
            transactional_id=TRANSACTIONAL_ID,
            group_id=group,
            producer_id=7,
            producer_epoch=epoch,
            generation_id=generation,
            member_id=member_id,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=offset, committed_metadata="why"
                        )
                    ],
                )
            ],
        )
        response = self.ask(request, version, TxnOffsetCommitResponse, *codes)
        ((only,),) = (topic.partitions for topic in response.topics)
        return ErrorCode(only.error_code)

    def end(self, *, commit: bool, epoch: int = 0, version: int = 0, coordinator_epoch: int = 0) -> ErrorCode:
        marker = WritableTxnMarker(
            producer_id=7,
            producer_epoch=epoch,
            transaction_result=commit,
            topics=[WritableTxnMarkerTopic(name=OFFSETS_TOPIC, partition_indexes=[0])],
            coordinator_epoch=coordinator_epoch,
            transaction_version=version,
        )
        response = self.ask(WriteTxnMarkersRequest(markers=[marker]), 2, WriteTxnMarkersResponse)
        return ErrorCode(response.markers[0].topics[0].partitions[0].error_code)

    def fetch(self, version: int = 9, *, stable: bool = False) -> tuple[int, ErrorCode]:
        """The offset of the one partition, and its error."""
        if version >= 8:
            topic = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
            group = OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])
            request = OffsetFetchRequest(groups=[group], require_stable=stable)
            found = self.ask(request, version, OffsetFetchResponse).groups[0].topics[0].partitions[0]
            return found.committed_offset, ErrorCode(found.error_code)
        request = OffsetFetchRequest(
            group_id=GROUP,
            topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])],
            require_stable=stable,
        )
        single = self.ask(request, version, OffsetFetchResponse).topics[0].partitions[0]
        return single.committed_offset, ErrorCode(single.error_code)


@pytest.fixture
def broker() -> Iterator[TransactionalGroupBroker]:
    broker = TransactionalGroupBroker()
    yield broker
    broker.runner.close()


NOTHING = (-1, ErrorCode.NONE)


@pytest.mark.parametrize("version", range(6))
def test_in_every_version_offsets_are_committed_by_the_marker(
    broker: TransactionalGroupBroker, version: int
) -> None:
    assert versions_of(TxnOffsetCommitRequest) == range(6)
    assert broker.commit(5, version=version) is ErrorCode.NONE
    (question,) = broker.verifier.asked
    purpose = {4: Purpose.VERIFY_ABORTABLE, 5: Purpose.ADD}.get(version, Purpose.VERIFY)
    assert question == (TRANSACTIONAL_ID, 7, 0, purpose, (broker.partition.key,))
    assert broker.fetch() == NOTHING
    assert broker.end(commit=True) is ErrorCode.NONE
    assert broker.fetch() == (5, ErrorCode.NONE)


@pytest.mark.parametrize("version", [7, 8, 9])
def test_who_requires_stable_offsets_waits_for_the_marker(
    broker: TransactionalGroupBroker, version: int
) -> None:
    broker.commit(5)
    assert broker.fetch(version, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert broker.fetch(version) == NOTHING
    broker.end(commit=False)
    assert broker.fetch(version, stable=True) == NOTHING


def test_pending_offsets_outlive_the_coordinator(broker: TransactionalGroupBroker) -> None:
    broker.commit(5)
    for _ in range(2):
        broker.restart()
        assert broker.fetch(stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert broker.end(commit=True) is ErrorCode.NONE
    broker.restart()
    assert broker.fetch(stable=True) == (5, ErrorCode.NONE)


def test_a_second_commit_of_the_transaction_asks_nobody(broker: TransactionalGroupBroker) -> None:
    broker.commit(5)
    assert broker.commit(6) is ErrorCode.NONE
    assert len(broker.verifier.asked) == 1
    broker.end(commit=True)
    assert broker.fetch() == (6, ErrorCode.NONE)
    broker.commit(7)
    assert len(broker.verifier.asked) == 2


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_what_is_not_confirmed_is_not_written(
    broker: TransactionalGroupBroker, code: ErrorCode, expected: ErrorCode
) -> None:
    end_offset = broker.partition.log_end_offset
    assert broker.commit(5, code) is expected
    assert broker.partition.log_end_offset == end_offset
    assert len(broker.partition.verifications) == 0


def test_what_was_confirmed_in_an_earlier_leader_epoch_is_asked_again(
    broker: TransactionalGroupBroker,
) -> None:
    broker.meanwhile = broker.lead_anew
    assert broker.commit(5) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert len(broker.partition.verifications) == 0
    broker.meanwhile = lambda: None
    assert broker.commit(5) is ErrorCode.NONE
    assert len(broker.verifier.asked) == 2
    assert broker.end(commit=True) is ErrorCode.NONE
    assert broker.fetch() == (5, ErrorCode.NONE)


def test_a_repeated_marker_and_a_late_one_change_nothing(broker: TransactionalGroupBroker) -> None:
    broker.commit(5)
    assert broker.end(commit=True, epoch=1, version=2) is ErrorCode.NONE
    end_offset = broker.partition.log_end_offset
    assert broker.end(commit=True, epoch=1, version=2) is ErrorCode.NONE
    assert broker.partition.log_end_offset == end_offset
    broker.commit(9, epoch=1)
    assert broker.end(commit=False, epoch=1, version=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert broker.fetch(stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert broker.end(commit=True, epoch=2, version=2) is ErrorCode.NONE
    assert broker.fetch() == (9, ErrorCode.NONE)


def test_a_marker_ends_the_verification_of_its_own_transaction_and_of_no_later_one(
    broker: TransactionalGroupBroker,
) -> None:
    broker.commit(5)
    verifications = broker.partition.verifications
    for epoch, is_kept in ((0, False), (1, True)):
        confirm(broker.partition, 7, epoch)
        assert broker.end(commit=True, epoch=1, version=2) is ErrorCode.NONE
        assert verifications.is_confirmed(7, epoch) is is_kept
    fenced = broker.end(commit=True, epoch=1, coordinator_epoch=-1)
    assert fenced is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert verifications.is_confirmed(7, 1), "what is refused ends nothing"
    assert broker.end(commit=True, epoch=1) is ErrorCode.NONE
    assert not verifications.is_confirmed(7, 1)


def test_a_fenced_producer_commits_nothing(broker: TransactionalGroupBroker) -> None:
    broker.commit(5, epoch=3)
    broker.end(commit=False, epoch=4, version=2)
    assert broker.commit(6, epoch=3) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert broker.fetch(stable=True) == NOTHING


def test_partitions_and_members_that_are_not_there_are_refused(broker: TransactionalGroupBroker) -> None:
    assert broker.commit(5, partition=9) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.commit(5, member_id="zombie", generation=3) is ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize("version", [0, 4, 5])
def test_a_group_without_a_name_is_refused_before_anybody_is_asked(
    broker: TransactionalGroupBroker, version: int
) -> None:
    assert broker.commit(1, version=version, group="") == ErrorCode.INVALID_GROUP_ID
    assert broker.verifier.asked == []


def test_a_broker_that_does_not_lead_the_group_s_partition_says_so(broker: TransactionalGroupBroker) -> None:
    broker.groups.metadata.change(50, replicas=[1, 2], isr=[1, 2], leader=2)
    broker.groups.stage.apply()
    assert broker.commit(5) is ErrorCode.NOT_COORDINATOR
    assert broker.end(commit=True) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert broker.verifier.asked == []


def test_a_partition_that_is_still_being_made_is_loading(broker: TransactionalGroupBroker) -> None:
    broker.groups.metadata.change(50, replicas=[1, 2], isr=[1, 2], leader=2)
    broker.groups.stage.apply()
    broker.groups.metadata.change(50, leader=1)  # which its partitions have not heard of yet
    assert broker.commit(5) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_without_a_transactional_id_it_is_no_transaction(broker: TransactionalGroupBroker) -> None:
    request = TxnOffsetCommitRequest(
        transactional_id="",
        group_id=GROUP,
        producer_id=7,
        producer_epoch=0,
        topics=[
            TxnOffsetCommitRequestTopic(
                name="t",
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=0, committed_offset=1, committed_metadata=None
                    )
                ],
            )
        ],
    )
    response = broker.ask(request, 4, TxnOffsetCommitResponse)
    assert response.topics[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST
