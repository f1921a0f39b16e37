from pathlib import Path

import pytest

from distributedlog.broker.handlers.write_txn_markers import is_loopback
from distributedlog.broker.net.context import ANONYMOUS, RequestContext
from distributedlog.broker.net.pending import PendingResponse
from distributedlog.broker.peers.authentication import BrokerIdentity
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import ClusterAuthorizationError, StaleBrokerEpochError
from distributedlog.model.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from distributedlog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from distributedlog.replication.contract import ACKS_ALL, Isolation
from tests.unit.broker.handlers.admin_stage import registration_of
from tests.unit.broker.handlers.data_stage import TOPIC, DataBroker, data_broker
from tests.unit.broker.handlers.transaction_stage import transactional
from tests.unit.broker.partition_stage import OTHER
from tests.unit.replication.support import confirm, produce_data
from tests.unit.storage.support import NOW_MS


def marker(
    *, epoch: int = 0, commit: bool = True, coordinator_epoch: int = 0, version: int = 0, topic: str = TOPIC
) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=7,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
    )


def begin(broker: DataBroker, *markers: WritableTxnMarker) -> object:
    return broker.begin(WriteTxnMarkersRequest(markers=list(markers)), 2)


def codes(broker: DataBroker, answer: object) -> list[ErrorCode]:
    response = broker.finish(answer, 2, WriteTxnMarkersResponse)  # type: ignore[arg-type]
    return [
        ErrorCode(each.error_code)
        for result in response.markers
        for topic in result.topics
        for each in topic.partitions
    ]


def write(broker: DataBroker, *markers: WritableTxnMarker) -> list[ErrorCode]:
    answer = begin(broker, *markers)
    broker.settle()
    return codes(broker, answer)


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_ends_a_transaction_and_is_answered_when_it_is_committed(
    tmp_path: Path, commit: bool
) -> None:
    with data_broker(tmp_path) as broker:
        produce_data(broker.partition, transactional())
        broker.settle()
        assert broker.partition.last_stable_offset == 0
        pending = begin(broker, marker(commit=commit))
        assert isinstance(pending, PendingResponse)
        assert not pending.is_decided
        broker.settle()
        assert codes(broker, pending) == [ErrorCode.NONE]
        assert broker.partition.last_stable_offset == 2
        read = broker.partition.read(0, 1 << 20, isolation=Isolation.READ_COMMITTED)
        assert read.region is not None
        read.region.close()
        assert read.aborted is not None
        assert [each.producer_id for each in read.aborted] == ([] if commit else [7])


def test_a_repeated_marker_changes_nothing_and_is_answered_alike(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        produce_data(broker.partition, transactional())
        for _ in range(2):
            for version in (0, 2):
                assert write(broker, marker(epoch=1, version=version)) == [ErrorCode.NONE]
        assert broker.partition.log_end_offset == 2


def test_a_repetition_is_not_answered_before_the_first_one_is_committed(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        produce_data(broker.partition, transactional())
        first, second = begin(broker, marker()), begin(broker, marker())
        assert isinstance(second, PendingResponse)
        assert not second.is_decided
        broker.settle()
        assert codes(broker, first) == codes(broker, second) == [ErrorCode.NONE]


def test_a_late_marker_does_not_end_the_next_transaction(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        produce_data(broker.partition, transactional())
        assert write(broker, marker(epoch=1, version=2)) == [ErrorCode.NONE]
        produce_data(broker.partition, transactional(0, epoch=1))
        assert write(broker, marker(epoch=1, version=2, commit=False)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        assert broker.partition.has_open_transaction(7, 1)
        assert write(broker, marker(epoch=2, version=2)) == [ErrorCode.NONE]


def test_markers_of_earlier_epochs_are_fenced(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        produce_data(broker.partition, transactional(0, epoch=3))
        assert write(broker, marker(epoch=2)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        assert write(broker, marker(epoch=3, coordinator_epoch=5)) == [ErrorCode.NONE]
        fenced = write(broker, marker(epoch=4, coordinator_epoch=4))
        assert fenced == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]


def test_partitions_stand_for_themselves(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        answered = write(broker, marker(), marker(topic="absent"), marker(topic=TRANSACTIONS_TOPIC))
        assert answered == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ]
        broker.hand_over()
        assert write(broker, marker()) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_marker_ends_a_verification_that_is_under_way(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        for _ in range(2):  # the second one is a repetition
            asked = broker.partition.verifications.begin(7, 0)
            assert write(broker, marker()) == [ErrorCode.NONE]
            asked.is_confirmed = True
            assert not broker.partition.verifications.is_confirmed(7, 0)


def test_a_marker_ends_what_was_confirmed_in_the_epoch_before_and_not_in_its_own(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        ended, going_on = confirm(broker.partition, 7, 0), confirm(broker.partition, 8, 1)
        assert write(broker, marker(epoch=1, version=2)) == [ErrorCode.NONE]
        assert not broker.partition.verifications.is_confirmed(7, 0)
        assert broker.partition.verifications.is_confirmed(8, 1)
        for each in (ended, going_on):
            broker.partition.verifications.release(each)


@pytest.mark.parametrize("coordinator_epoch", [0, 1])
def test_a_marker_that_comes_again_takes_nothing_from_the_next_transaction(
    tmp_path: Path, coordinator_epoch: int
) -> None:
    """Sent again after a lost answer, or by the next coordinator."""
    with data_broker(tmp_path) as broker:
        produce_data(broker.partition, transactional())
        assert write(broker, marker(epoch=1, version=2)) == [ErrorCode.NONE]
        confirm(broker.partition, 7, 1)
        again = marker(epoch=1, version=2, coordinator_epoch=coordinator_epoch)
        assert write(broker, again) == [ErrorCode.NONE]
        broker.partition.append(transactional(0, epoch=1), ACKS_ALL, NOW_MS)
        assert broker.partition.has_open_transaction(7, 1)


def test_a_marker_that_is_refused_takes_no_verification_away(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        produce_data(broker.partition, transactional())
        assert write(broker, marker(coordinator_epoch=5)) == [ErrorCode.NONE]
        confirm(broker.partition, 7)
        dead = write(broker, marker(coordinator_epoch=4))
        assert dead == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
        assert broker.partition.verifications.is_confirmed(7, 0)
        broker.partition.append(transactional(1), ACKS_ALL, NOW_MS)


# --- who may ----------------------------------------------------------------------------------


def handle_from(broker: DataBroker, host: str) -> None:
    context = RequestContext(ANONYMOUS, "L", "c", host, 7, 2, 0, 30_000, broker.session)
    registration_of(WriteTxnMarkersRequest).handle(
        broker.services, WriteTxnMarkersRequest(markers=[]), context
    )


def test_markers_come_from_brokers_and_from_this_machine(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        handle_from(broker, "127.0.0.5")
        with pytest.raises(ClusterAuthorizationError):
            handle_from(broker, "192.0.2.1")
        broker.register(OTHER, 9_002)
        broker.session.broker = BrokerIdentity(OTHER, OTHER)
        handle_from(broker, "192.0.2.1")
        broker.session.broker = BrokerIdentity(OTHER, OTHER - 1)
        with pytest.raises(StaleBrokerEpochError):
            handle_from(broker, "192.0.2.1")


def test_who_is_refused_hears_it_for_each_partition(tmp_path: Path) -> None:
    request = WriteTxnMarkersRequest(markers=[marker(), marker(topic=OFFSETS_TOPIC)])
    registration = registration_of(WriteTxnMarkersRequest)
    context = RequestContext(ANONYMOUS, "L", "c", "192.0.2.1", 7, 2, 0, 30_000)
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    with data_broker(tmp_path) as broker:
        response = registration.make_error_response(request, context, code, "no")
        assert codes(broker, response) == [code, code]


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("10.0.0.1", False), ("localhost", False)],
)
def test_only_addresses_of_this_machine_are_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
