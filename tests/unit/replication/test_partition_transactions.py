"""What the leader of a partition makes of transactions: verifications, markers, failover."""

import pytest

from distributedlog.model.errors import (
    CoordinatorFencedError,
    DlogError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
)
from distributedlog.records.control import ControlType, EndMarker, encode_end_marker_batch
from distributedlog.replication.contract import ACKS_ALL
from distributedlog.replication.partition import Partition
from distributedlog.replication.verifications import Verification
from distributedlog.storage.append import Origin
from tests.unit.replication.support import Stage, confirm, produce, produce_data
from tests.unit.storage.support import NOW_MS, batch_of, marker_of, value_of


def transactional(sequence: int = 0, epoch: int = 0) -> bytearray:
    return batch_of(
        [value_of(sequence)],
        producer_id=7,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )


def append(partition: Partition, data: bytearray, origin: Origin = Origin.CLIENT) -> int:
    return partition.append(data, ACKS_ALL, NOW_MS, origin).last_offset


def end(partition: Partition, kind: ControlType, coordinator_epoch: int, *, epoch: int = 0) -> int:
    marker = encode_end_marker_batch(
        EndMarker(kind, coordinator_epoch), producer_id=7, producer_epoch=epoch, timestamp_ms=NOW_MS
    )
    before = bytes(marker)
    offset = partition.append_marker(marker, NOW_MS)
    assert marker == before, "the same bytes are for other partitions, too"
    return offset


def test_no_transaction_begins_that_nobody_has_confirmed() -> None:
    partition = Stage().lead()
    for origin in (Origin.CLIENT, Origin.COORDINATOR):
        with pytest.raises(InvalidTransactionStateError, match="not known to be part"):
            append(partition, transactional(), origin)
    assert partition.log_end_offset == 0
    verification = partition.verifications.begin(7, 0)
    with pytest.raises(InvalidTransactionStateError):
        append(partition, transactional())
    verification.is_confirmed = True
    assert append(partition, transactional()) == 0


def test_an_open_transaction_goes_on_without_being_confirmed_again() -> None:
    partition = Stage().lead()
    partition.verifications.release(appended(partition))
    assert append(partition, transactional(1)) == 1
    with pytest.raises(InvalidTransactionStateError):
        append(partition, transactional(0, epoch=1))


def appended(partition: Partition) -> Verification:
    """Begins a transaction."""
    verification = confirm(partition, 7)
    append(partition, transactional())
    return verification


def test_a_batch_that_is_sent_again_after_its_transaction_ended_gets_its_offset() -> None:
    partition = Stage().lead()
    appended(partition)
    produce_data(partition, marker_of(7, commit=True), Origin.COORDINATOR)
    assert append(partition, transactional()) == 0
    assert partition.log_end_offset == 2


def test_a_fenced_producer_hears_that_it_is_and_not_that_it_is_not_confirmed() -> None:
    partition = Stage().lead()
    produce_data(partition, marker_of(7, producer_epoch=3, commit=False), Origin.COORDINATOR)
    with pytest.raises(InvalidProducerEpochError):
        append(partition, transactional())


def test_an_append_takes_no_verification_away() -> None:
    """Who writes a marker knows which transactions it ends (`Verifications.end`)."""
    partition = Stage().lead()
    confirm(partition, 7, 1)
    with pytest.raises(DlogError):
        append(partition, marker_of(7, commit=True))
    produce_data(partition, marker_of(7, producer_epoch=1, commit=True), Origin.COORDINATOR)
    assert append(partition, transactional(0, epoch=1)) == 1


def test_another_leadership_has_confirmed_nothing() -> None:
    stage = Stage()
    confirm(stage.lead(0), 7)
    partition = stage.lead(1)
    with pytest.raises(InvalidTransactionStateError):
        append(partition, transactional())


def test_a_repeated_marker_is_recognized_and_a_late_one_refused() -> None:
    partition = Stage().lead()
    appended(partition)
    assert not partition.is_marker_written(7, 1, 0, has_bumped_epoch=True)
    end(partition, ControlType.COMMIT, 0, epoch=1)
    assert partition.is_marker_written(7, 1, 0, has_bumped_epoch=True)
    assert not partition.is_marker_written(7, 1, 1, has_bumped_epoch=True), "of a later coordinator"
    confirm(partition, 7, 1)
    append(partition, transactional(0, epoch=1))
    with pytest.raises(InvalidProducerEpochError, match="is late"):
        partition.is_marker_written(7, 1, 0, has_bumped_epoch=True)
    assert not partition.is_marker_written(7, 1, 0, has_bumped_epoch=False)
    assert partition.last_stable_offset < partition.log_end_offset


def test_a_marker_of_an_earlier_coordinator_epoch_is_refused() -> None:
    partition = Stage().lead()
    appended(partition)
    end(partition, ControlType.COMMIT, 5, epoch=0)
    with pytest.raises(CoordinatorFencedError):
        end(partition, ControlType.ABORT, 4, epoch=0)


def test_a_new_leader_keeps_the_last_stable_offset_at_a_transaction_it_took_as_a_follower() -> None:
    stage = Stage()
    partition = stage.follow()
    data = batch_of([value_of(0)]) + batch_of(
        [value_of(1)],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
        base_offset=1,
    )
    partition.append_as_follower(bytes(data), leader_epoch=0, leader_high_watermark=2, now_ms=NOW_MS)
    stage.executor.run_all()
    partition = stage.lead(1)
    produce(partition, 2)
    stage.executor.run_all()
    assert (partition.high_watermark, partition.last_stable_offset) == (3, 1)
    assert append(partition, transactional(1)) == 3, "it is open here too"


def test_truncating_a_marker_opens_its_transaction_again() -> None:
    stage = Stage()
    partition = stage.lead()
    appended(partition)
    end(partition, ControlType.COMMIT, 0, epoch=0)
    stage.executor.run_all()
    assert partition.last_stable_offset == 2
    follower = stage.follow(1)
    follower.log.truncate_to(1, NOW_MS)
    follower.log.high_watermark = 1
    assert follower.last_stable_offset == 0
    leader = stage.lead(2)
    assert leader.has_open_transaction(7, 0)
    assert not leader.is_marker_written(7, 0, 0, has_bumped_epoch=False)
    end(leader, ControlType.ABORT, 0, epoch=0)
    stage.executor.run_all()
    assert leader.last_stable_offset == 2
