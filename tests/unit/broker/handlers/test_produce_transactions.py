"""Produce in transactions: nothing is appended before the coordinator has confirmed it, nor out of order."""

import asyncio
from pathlib import Path

import pytest

from distributedlog.broker.net.context import ConnectionSession
from distributedlog.broker.net.pending import PendingResponse
from distributedlog.broker.peers.transaction_verifier import Purpose
from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.messages.list_offsets import ListOffsetsResponse
from distributedlog.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from distributedlog.replication.contract import OffsetSpec
from distributedlog.storage.append import Origin
from tests.simulation.executor import StepExecutor
from tests.unit.broker.handlers.data_requests import offsets_request
from tests.unit.broker.handlers.data_stage import TOPIC, DataBroker, data_broker, produce_request
from tests.unit.broker.handlers.test_data_over_sockets import Served, answer, ask, send, sole
from tests.unit.broker.handlers.test_produce_preparing import long_batch
from tests.unit.broker.handlers.transaction_stage import TRANSACTIONAL_ID, transactional
from tests.unit.broker.server_stage import run
from tests.unit.replication.support import produce_data
from tests.unit.storage.support import NOW_MS, batch_of, marker_of, value_of

VERSIONS = {10: Purpose.VERIFY, 11: Purpose.VERIFY_ABORTABLE, 12: Purpose.ADD}


def request_of(data: bytearray, acks: int = 1) -> ProduceRequest:
    request = produce_request(data, acks=acks)
    request.transactional_id = TRANSACTIONAL_ID
    return request


def begin(broker: DataBroker, data: bytearray, version: int = 11, acks: int = 1) -> PendingResponse:
    pending = broker.begin(request_of(data, acks), version)
    assert isinstance(pending, PendingResponse)
    return pending


def told(broker: DataBroker, pending: object, version: int = 11) -> PartitionProduceResponse:
    response = broker.finish(pending, version, ProduceResponse)  # type: ignore[arg-type]
    ((found,),) = (topic.partition_responses for topic in response.responses)
    return found


def end(broker: DataBroker, *, commit: bool = True) -> None:
    """Does what WriteTxnMarkers does (`handlers.write_txn_markers`)."""
    produce_data(broker.partition, marker_of(7, commit=commit), Origin.COORDINATOR)
    broker.partition.verifications.end(7, 0, has_bumped_epoch=False)


@pytest.mark.parametrize(("version", "purpose"), VERSIONS.items())
def test_the_first_batch_waits_for_the_coordinator(tmp_path: Path, version: int, purpose: Purpose) -> None:
    with data_broker(tmp_path) as broker:
        pending = begin(broker, transactional(), version)
        assert not pending.is_applied
        assert broker.partition.log_end_offset == 0
        (question,) = broker.verifier.asked
        assert question == (TRANSACTIONAL_ID, 7, 0, purpose, (broker.partition.key,))
        broker.verifier.answer()
        assert told(broker, pending, version).base_offset == 0
        assert broker.partition.has_open_transaction(7, 0)
        assert len(broker.partition.verifications) == 0


def test_an_open_transaction_goes_on_without_asking(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        begin(broker, transactional())
        broker.verifier.answer()
        assert told(broker, broker.begin(request_of(transactional(1)), 11)).base_offset == 1
        assert len(broker.verifier.asked) == 1
        end(broker)
        begin(broker, transactional(2))
        assert len(broker.verifier.asked) == 2, "the next transaction is asked for again"
        broker.verifier.answer()


def test_a_repeated_batch_is_answered_without_asking(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        begin(broker, transactional())
        broker.verifier.answer()
        end(broker)
        assert told(broker, broker.begin(request_of(transactional()), 11)).base_offset == 0
        assert len(broker.verifier.asked) == 1


@pytest.mark.parametrize(
    ("code", "version", "expected"),
    [
        (ErrorCode.INVALID_TXN_STATE, 11, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.INVALID_PRODUCER_EPOCH, 11, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 12, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.NETWORK_EXCEPTION, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 9, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, 9, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 9, ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
def test_what_is_not_confirmed_is_not_appended(
    tmp_path: Path, code: ErrorCode, version: int, expected: ErrorCode
) -> None:
    with data_broker(tmp_path) as broker:
        pending = begin(broker, transactional(), version)
        broker.verifier.answer(code)
        response = told(broker, pending, version)
        assert (ErrorCode(response.error_code), response.base_offset) == (expected, -1)
        assert broker.partition.log_end_offset == 0
        assert len(broker.partition.verifications) == 0


def test_what_follows_a_refused_first_batch_does_not_come_before_it(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        first = begin(broker, transactional(), 12)
        broker.verifier.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        assert told(broker, first, 12).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        second = told(broker, broker.begin(request_of(transactional(1)), 12), 12)
        assert second.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert (len(broker.verifier.asked), broker.partition.log_end_offset) == (1, 0)
        again = begin(broker, transactional(), 12)
        broker.verifier.answer()
        assert told(broker, again, 12).base_offset == 0


def test_a_classic_client_is_not_overtaken_by_its_own_next_batch(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        first = begin(broker, transactional())
        broker.verifier.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        assert told(broker, first).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        second = begin(broker, transactional(1))
        broker.verifier.answer()
        assert told(broker, second).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert broker.partition.log_end_offset == 0
        again = begin(broker, transactional())
        broker.verifier.answer()
        assert told(broker, again).base_offset == 0
        assert told(broker, broker.begin(request_of(transactional(1)), 11)).base_offset == 1


def test_a_classic_client_is_not_overtaken_on_another_connection(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        begin(broker, transactional())
        broker.verifier.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        broker.session = ConnectionSession()
        second = begin(broker, transactional(1))
        broker.verifier.answer()
        assert told(broker, second).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert broker.partition.log_end_offset == 0


def test_a_first_batch_that_is_not_sent_again_holds_nobody_up(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        begin(broker, transactional())
        broker.verifier.answer(ErrorCode.TRANSACTION_ABORTABLE)
        following = begin(broker, transactional(1))
        broker.verifier.answer()
        assert told(broker, following).base_offset == 0


def test_partitions_of_a_request_stand_for_themselves(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.metadata.create("u", 2, 2)
        broker.follow()
        data = [PartitionProduceData(index=at, records=transactional()) for at in (0, 1)]
        topics = [
            TopicProduceData(name="u", partition_data=data),
            TopicProduceData(
                name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch_of([value_of(1)]))]
            ),
        ]
        request = ProduceRequest(
            transactional_id=TRANSACTIONAL_ID, acks=1, timeout_ms=1_000, topic_data=topics
        )
        pending = broker.begin(request, 11)
        assert broker.partition.log_end_offset == 0, "nothing of the request is appended yet"
        broker.verifier.answer(ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE)
        response = broker.finish(pending, 11, ProduceResponse)
        codes = [
            ErrorCode(each.error_code) for topic in response.responses for each in topic.partition_responses
        ]
        assert codes == [ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE, ErrorCode.NONE]


def test_a_marker_that_comes_while_the_coordinator_is_asked_refuses_the_batch(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        pending = begin(broker, transactional())
        end(broker, commit=False)
        broker.verifier.answer()
        assert told(broker, pending).error_code == ErrorCode.INVALID_TXN_STATE
        assert broker.partition.log_end_offset == 1
        broker.settle()
        assert broker.partition.last_stable_offset == 1, "nothing hangs"


def test_a_leadership_that_was_lost_meanwhile_refuses_the_batch(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        pending = begin(broker, transactional())
        broker.hand_over()
        broker.verifier.answer()
        assert told(broker, pending).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert broker.partition.log_end_offset == 0


def test_another_leader_epoch_meanwhile_has_the_batch_sent_again(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        pending = begin(broker, transactional())
        broker.lead_anew()
        broker.verifier.answer()
        assert told(broker, pending).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        broker.session = ConnectionSession()
        following = begin(broker, transactional(1))
        broker.verifier.answer()
        assert told(broker, following).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        broker.lead_anew()
        following = begin(broker, transactional(1))
        broker.verifier.answer()
        assert told(broker, following).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        again = begin(broker, transactional())
        broker.verifier.answer()
        assert told(broker, again).base_offset == 0
        assert len(broker.verifier.asked) == 4, "what was confirmed in an earlier epoch is asked again"


def test_another_leader_epoch_while_a_batch_is_prepared_has_it_sent_again(tmp_path: Path) -> None:
    preparing = StepExecutor()
    with data_broker(tmp_path, preparing=preparing) as broker:
        request = request_of(transactional())
        request.topic_data[0].partition_data.append(PartitionProduceData(index=0, records=long_batch()))
        pending = broker.begin(request, 11)
        broker.verifier.answer()
        broker.lead_anew()
        preparing.run_all()
        response = broker.finish(pending, 11, ProduceResponse)
        found = [each for topic in response.responses for each in topic.partition_responses]
        assert found[0].error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert len(broker.partition.verifications) == 0


def test_a_request_whose_time_is_over_appends_nothing(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        pending = begin(broker, transactional())
        pending.cancel()
        broker.verifier.answer()
        assert broker.partition.log_end_offset == 0
        assert len(broker.partition.verifications) == 0


def test_a_client_that_leaves_takes_nothing_back(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        pending = begin(broker, transactional())
        pending.drop_response()
        broker.verifier.answer()
        assert pending.is_applied
        assert broker.partition.log_end_offset == 1


def test_acks_all_waits_for_the_commit_behind_the_coordinator(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        pending = begin(broker, transactional(), acks=-1)
        broker.verifier.answer()
        assert pending.is_applied
        assert not pending.is_decided
        broker.settle()
        assert told(broker, pending).error_code == ErrorCode.NONE


def test_a_batch_that_takes_long_is_prepared_behind_the_coordinator(tmp_path: Path) -> None:
    preparing = StepExecutor()
    with data_broker(tmp_path, preparing=preparing) as broker:
        request = request_of(transactional())
        request.topic_data[0].partition_data.append(PartitionProduceData(index=0, records=long_batch()))
        pending = broker.begin(request, 11)
        assert isinstance(pending, PendingResponse)
        broker.verifier.answer()
        assert broker.partition.log_end_offset == 0
        assert len(broker.partition.verifications) == 1
        preparing.run_all()
        assert pending.is_applied
        assert broker.partition.log_end_offset == 9
        assert len(broker.partition.verifications) == 0


def test_a_transactional_batch_without_a_transactional_id_is_refused(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        found = told(broker, broker.begin(produce_request(transactional(), acks=1), 11))
        assert found.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert broker.verifier.asked == []


def test_bytes_that_are_no_batch_are_corrupt_whatever_their_bits_say(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        found = told(broker, broker.begin(produce_request(bytearray(b"\xff" * 100), acks=1), 11))
        assert found.error_code == ErrorCode.CORRUPT_MESSAGE
        assert broker.verifier.asked == []


def test_batches_of_two_producers_are_refused(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        request = request_of(transactional())
        other = PartitionProduceData(index=0, records=transactional(producer_id=8))
        request.topic_data[0].partition_data.append(other)
        response = broker.ask(request, 11, ProduceResponse)
        codes = {each.error_code for topic in response.responses for each in topic.partition_responses}
        assert codes == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
        assert broker.verifier.asked == []


def test_what_comes_behind_waits_until_the_coordinator_has_answered(tmp_path: Path) -> None:
    async def story() -> None:
        async with Served(tmp_path) as served:
            client = await served.connect()
            await send(client, request_of(transactional()), 11)
            await send(client, request_of(transactional(1)), 11)
            await send(client, offsets_request(OffsetSpec.LATEST), 7)
            other = await served.connect()
            while not served.verifier.asked:
                await asyncio.sleep(0)
            plain = produce_request(batch_of([b"of another connection"], timestamp_ms=NOW_MS), acks=-1)
            assert sole(await ask(other, plain, 9, ProduceResponse)).base_offset == 0
            assert len(served.verifier.asked) == 1
            served.verifier.answer()
            offsets = [sole(await answer(client, 11, ProduceResponse)).base_offset for _ in range(2)]
            assert offsets == [1, 2]
            listed = await answer(client, 7, ListOffsetsResponse)
            assert listed.topics[0].partitions[0].offset == 3
            assert len(served.verifier.asked) == 1, "the second one goes on with the transaction"

    run(story())
