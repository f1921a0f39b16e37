import struct

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.model.errors import (
    CoordinatorFencedError,
    CorruptLogError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
)
from distributedlog.records.control import ControlType, EndMarker
from distributedlog.records.layout import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from distributedlog.storage.append import Origin
from distributedlog.storage.producers import BatchMetadata, CompletedTransaction, ProducerStates

SEQUENCE_MAX = 2**31 - 1
CLIENT, COORDINATOR, REPLICATION = Origin.CLIENT, Origin.COORDINATOR, Origin.REPLICATION


def batch(
    offset: int,
    sequence: int,
    count: int = 1,
    *,
    producer_id: int = 7,
    epoch: int = 0,
    timestamp: int = 1000,
    attributes: int = 0,
) -> BatchHeader:
    return BatchHeader(
        base_offset=offset,
        batch_length=100,
        leader_epoch=0,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=count - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count,
    )


def transactional(
    offset: int, sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0
) -> BatchHeader:
    return batch(offset, sequence, count, producer_id=producer_id, epoch=epoch, attributes=TRANSACTIONAL_BIT)


def marker_batch(offset: int, *, producer_id: int = 7, epoch: int = 0, timestamp: int = 2000) -> BatchHeader:
    bits = TRANSACTIONAL_BIT | CONTROL_BIT
    return batch(offset, -1, producer_id=producer_id, epoch=epoch, timestamp=timestamp, attributes=bits)


def end(kind: ControlType = ControlType.COMMIT, coordinator_epoch: int = 0) -> EndMarker:
    return EndMarker(kind, coordinator_epoch)


def states_after(*batches: BatchHeader) -> ProducerStates:
    states = ProducerStates()
    for header in batches:
        states.append(header)
    return states


# --- sequences ---------------------------------------------------------------------------------


def test_batches_in_order_are_new() -> None:
    states, offset = ProducerStates(), 0
    for count in (1, 3, 2, 10, 1, 1, 1):
        header = batch(offset, offset, count)
        assert states.check(header, origin=CLIENT) is None
        states.append(header)
        offset += count
    state = states.get(7)
    assert state is not None
    assert state.last_offset == 18
    assert state.next_sequence == 19
    assert len(state.batches) == 5


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert ProducerStates().check(batch(0, 4711), origin=CLIENT) is None


@pytest.mark.parametrize("sequence", [-1, -5, -(2**31)])
def test_a_producers_batch_without_a_sequence_is_refused(sequence: int) -> None:
    with pytest.raises(InvalidRecordError, match="which is none"):
        ProducerStates().check(batch(0, sequence), origin=CLIENT)


def test_each_of_the_last_five_batches_is_known_when_it_comes_again_and_the_sixth_is_not() -> None:
    sent = [batch(100 + 2 * at, 2 * at, 2) for at in range(6)]
    states = states_after(*sent)
    for header in sent[1:]:
        again = header._replace(base_offset=999)
        expected = BatchMetadata(
            header.base_sequence, header.base_sequence + 1, header.base_offset, header.base_offset + 1, 1000
        )
        assert states.check(again, origin=CLIENT) == expected
    with pytest.raises(OutOfOrderSequenceError):
        states.check(sent[0], origin=CLIENT)


@pytest.mark.parametrize(("sequence", "count"), [(0, 1), (0, 3), (1, 1), (3, 1), (1, 2), (100, 1)])
def test_what_neither_continues_nor_repeats_is_out_of_order(sequence: int, count: int) -> None:
    states = states_after(batch(0, 0, 2))
    with pytest.raises(OutOfOrderSequenceError, match="2 would be next"):
        states.check(batch(2, sequence, count), origin=CLIENT)


def test_sequences_wrap_to_zero() -> None:
    states = states_after(batch(0, SEQUENCE_MAX - 1, 2))
    assert states.check(batch(2, 0), origin=CLIENT) is None
    across = states_after(batch(0, SEQUENCE_MAX, 3))
    assert across.check(batch(3, 2), origin=CLIENT) is None
    duplicate = across.check(batch(9, SEQUENCE_MAX, 3), origin=CLIENT)
    assert duplicate == (SEQUENCE_MAX, 1, 0, 2, 1000)
    with pytest.raises(OutOfOrderSequenceError):
        across.check(batch(3, 0), origin=CLIENT)


def test_a_new_epoch_begins_at_zero_and_forgets_the_old_batches() -> None:
    states = states_after(batch(0, 0), batch(1, 1))
    with pytest.raises(OutOfOrderSequenceError, match="begins epoch 1 with sequence 2"):
        states.check(batch(2, 2, epoch=1), origin=CLIENT)
    assert states.check(batch(2, 0, epoch=1), origin=CLIENT) is None
    states.append(batch(2, 0, epoch=1))
    assert states.check(batch(9, 0, epoch=1), origin=CLIENT) == (0, 0, 2, 2, 1000)
    with pytest.raises(InvalidProducerEpochError, match="the current one is 1"):
        states.check(batch(3, 1, epoch=0), origin=CLIENT)


def test_a_coordinators_batches_have_no_sequence_but_an_epoch() -> None:
    states = states_after(batch(0, -1, epoch=3), batch(1, -1, epoch=3))
    assert states.check(batch(2, -1, epoch=3), origin=COORDINATOR) is None
    assert states.check(batch(2, -1, epoch=4), origin=COORDINATOR) is None
    with pytest.raises(InvalidProducerEpochError):
        states.check(batch(2, -1, epoch=2), origin=COORDINATOR)


def test_replication_is_never_refused() -> None:
    states = states_after(transactional(0, 5, epoch=3))
    for header in (batch(1, 99), batch(1, 0, epoch=1), batch(1, 5, epoch=3)):
        assert states.check(header, origin=REPLICATION) is None
    states.append(batch(1, 99, epoch=1))
    state = states.get(7)
    assert state is not None
    assert (state.epoch, state.next_sequence) == (1, 100)


def test_producers_do_not_disturb_each_other() -> None:
    states = states_after(batch(0, 0, producer_id=1), batch(1, 0, producer_id=2), batch(2, 1, producer_id=1))
    assert states.check(batch(3, 2, producer_id=1), origin=CLIENT) is None
    assert states.check(batch(3, 1, producer_id=2), origin=CLIENT) is None
    assert {state.producer_id for state in states} == {1, 2}


# --- transactions ------------------------------------------------------------------------------


def test_a_transaction_is_undecided_until_its_marker() -> None:
    states = states_after(batch(0, 0), transactional(1, 1, 2), transactional(3, 3))
    assert states.first_undecided_offset == 1
    completed = states.append_marker(marker_batch(4), end(ControlType.ABORT))
    assert completed == CompletedTransaction(7, first_offset=1, last_offset=4, is_aborted=True)
    assert states.first_undecided_offset is None


def test_a_commit_completes_without_being_aborted() -> None:
    completed = states_after(transactional(0, 0)).append_marker(marker_batch(1), end())
    assert completed is not None
    assert not completed.is_aborted


def test_a_marker_without_records_completes_nothing() -> None:
    states = ProducerStates()
    assert states.append_marker(marker_batch(0), end(coordinator_epoch=4)) is None
    state = states.get(7)
    assert state is not None
    assert state.coordinator_epoch == 4
    assert state.last_offset == -1


def test_a_plain_batch_may_not_enter_an_open_transaction() -> None:
    states = states_after(transactional(0, 0))
    with pytest.raises(InvalidTransactionStateError, match="since offset 0"):
        states.check(batch(1, 1), origin=CLIENT)
    with pytest.raises(InvalidTransactionStateError):
        states.check(batch(1, -1), origin=COORDINATOR)
    assert states.check(transactional(1, 1), origin=CLIENT) is None


def test_a_marker_of_a_fenced_producer_or_coordinator_is_refused() -> None:
    states = states_after(transactional(0, 0, epoch=2))
    states.append_marker(marker_batch(1, epoch=2), end(coordinator_epoch=5))
    states.check_marker(marker_batch(2, epoch=2), end(coordinator_epoch=5), origin=COORDINATOR)
    with pytest.raises(InvalidProducerEpochError):
        states.check_marker(marker_batch(2, epoch=1), end(coordinator_epoch=5), origin=COORDINATOR)
    with pytest.raises(CoordinatorFencedError, match="epoch 4; the current one is 5"):
        states.check_marker(marker_batch(2, epoch=2), end(coordinator_epoch=4), origin=COORDINATOR)
    states.check_marker(marker_batch(2, epoch=1), end(coordinator_epoch=4), origin=REPLICATION)
    ProducerStates().check_marker(marker_batch(2), end(), origin=COORDINATOR)


def test_a_marker_with_a_new_epoch_fences_what_came_before_it() -> None:
    states = states_after(transactional(0, 0), transactional(1, 1))
    states.append_marker(marker_batch(2, epoch=1), end())
    with pytest.raises(InvalidProducerEpochError):
        states.check(transactional(3, 2), origin=CLIENT)
    with pytest.raises(OutOfOrderSequenceError):
        states.check(transactional(3, 2, epoch=1), origin=CLIENT)
    assert states.check(transactional(3, 0, epoch=1), origin=CLIENT) is None


def test_the_oldest_open_transaction_bounds_what_is_stable() -> None:
    states = states_after(
        transactional(0, 0, producer_id=1),
        transactional(1, 0, producer_id=2),
        transactional(2, 0, producer_id=3),
    )
    second = states.append_marker(marker_batch(3, producer_id=2), end())
    assert second is not None
    assert states.last_stable_offset(second) == 0
    first = states.append_marker(marker_batch(4, producer_id=1), end())
    assert first is not None
    assert states.last_stable_offset(first) == 2
    third = states.append_marker(marker_batch(5, producer_id=3), end())
    assert third is not None
    assert states.last_stable_offset(third) == 6


def test_a_decided_transaction_is_unstable_until_its_marker_is_replicated() -> None:
    states = states_after(transactional(0, 0, producer_id=1), transactional(1, 0, producer_id=2))
    states.append_marker(marker_batch(2, producer_id=1), end())
    states.append_marker(marker_batch(3, producer_id=2), end())
    assert states.first_undecided_offset is None
    assert states.first_unstable_offset == 0
    states.advance_high_watermark(2)
    assert states.first_unstable_offset == 0
    states.advance_high_watermark(3)
    assert states.first_unstable_offset == 1
    states.advance_high_watermark(4)
    assert states.first_unstable_offset is None


# --- forgetting --------------------------------------------------------------------------------


def test_a_silent_producer_expires_whatever_its_timestamps_say() -> None:
    states = states_after(batch(0, 0, timestamp=5), batch(1, 0, producer_id=8, timestamp=10**15))
    assert states.expire(now_ms=1_000_000, expiration_ms=100) == 0
    assert states.expire(now_ms=1_000_099, expiration_ms=100) == 0
    states.append(batch(2, 1, producer_id=8, timestamp=6))
    assert states.expire(now_ms=1_000_100, expiration_ms=100) == 1
    assert states.get(7) is None
    assert len(states) == 1
    assert states.expire(now_ms=1_000_200, expiration_ms=100) == 1


def test_a_producer_with_an_open_transaction_does_not_expire() -> None:
    states = states_after(transactional(0, 0))
    states.expire(0, 1)
    assert states.expire(10**12, 1) == 0
    states.append_marker(marker_batch(1), end())
    states.expire(10**12, 1)
    assert states.expire(10**12 + 1, 1) == 1


def test_a_clock_set_back_delays_expiry_only_by_as_long_again() -> None:
    states = states_after(batch(0, 0))
    states.expire(1_000_000, 100)
    assert states.expire(500, 100) == 0
    assert states.expire(600, 100) == 1


def test_clearing_forgets_all() -> None:
    states = states_after(transactional(0, 0, producer_id=1), transactional(1, 0, producer_id=2))
    states.append_marker(marker_batch(2, producer_id=2), end())
    states.clear()
    assert len(states) == 0
    assert states.first_undecided_offset is None
    assert states.first_unstable_offset is None


# --- snapshots ---------------------------------------------------------------------------------

KAFKAS_ENTRY = (
    "0000000000000007"  # producer id 7
    "0002"  # epoch
    "00000005"  # last sequence
    "0000000000000069"  # last offset 105
    "00000001"  # offset delta
    "00000000000003e8"  # timestamp 1000
    "ffffffff"  # coordinator epoch -1
    "0000000000000064"  # the open transaction began at 100
)
OUR_WINDOW = (
    "444c5731"  # DLW1
    "00000001"
    "0000000000000007"
    "00000000000003e8"  # timestamp of the newest batch
    "01"  # one older batch
    "00000003000000000000006700000003"  # last sequence 3, last offset 103, delta 3
    "00000000000003e8"
)


def sealed(body: bytes, version: int = 1) -> bytes:
    return struct.pack(">hI", version, crc32c(body)) + body


def two_batches() -> ProducerStates:
    return states_after(transactional(100, 0, 4, epoch=2), transactional(104, 4, 2, epoch=2))


def test_a_snapshot_has_kafkas_bytes_and_then_ours() -> None:
    data = two_batches().encode_snapshot()
    assert data.hex() == "0001" + "45943761" + "00000001" + KAFKAS_ENTRY + OUR_WINDOW


def test_an_empty_snapshot_is_read() -> None:
    assert len(ProducerStates.decode_snapshot(ProducerStates().encode_snapshot())) == 0


@pytest.mark.parametrize("rest", [b"", b"something else behind the entries"])
def test_kafkas_own_snapshot_is_read_and_has_only_the_newest_batch(rest: bytes) -> None:
    body = bytes.fromhex("00000001" + KAFKAS_ENTRY) + rest
    states = ProducerStates.decode_snapshot(sealed(body))
    state = states.get(7)
    assert state is not None
    assert state.batches == [(4, 5, 104, 105, 1000)]
    assert states.first_undecided_offset == 100
    assert states.check(transactional(106, 6, epoch=2), origin=CLIENT) is None
    assert states.check(transactional(106, 4, 2, epoch=2), origin=CLIENT) == (4, 5, 104, 105, 1000)


def test_the_window_of_five_survives_a_restart() -> None:
    sent = [batch(10 * at, 10 * at, 10, timestamp=at) for at in range(7)]
    states = ProducerStates.decode_snapshot(states_after(*sent).encode_snapshot())
    for header in sent[2:]:
        duplicate = states.check(header, origin=CLIENT)
        assert duplicate is not None
        assert (duplicate.first_offset, duplicate.timestamp) == (header.base_offset, header.max_timestamp)
    with pytest.raises(OutOfOrderSequenceError):
        states.check(sent[1], origin=CLIENT)
    assert states.check(batch(70, 70), origin=CLIENT) is None


def test_open_transactions_are_in_order_after_a_restart_whoever_was_first_known() -> None:
    before = states_after(
        batch(0, 0, producer_id=1), transactional(1, 0, producer_id=2), transactional(2, 1, producer_id=1)
    )
    states = ProducerStates.decode_snapshot(before.encode_snapshot())
    assert states.first_undecided_offset == 1
    states.append(transactional(3, 0, producer_id=3))
    states.append_marker(marker_batch(4, producer_id=2), end())
    assert states.first_undecided_offset == 2


def test_a_producer_known_only_by_a_marker_survives_a_restart() -> None:
    states = ProducerStates()
    states.append_marker(marker_batch(5, epoch=3), end(coordinator_epoch=9))
    state = ProducerStates.decode_snapshot(states.encode_snapshot()).get(7)
    assert state is not None
    assert (state.epoch, state.coordinator_epoch, state.batches, state.last_timestamp) == (3, 9, [], 2000)


def test_every_cut_and_every_flipped_bit_of_a_snapshot_is_noticed() -> None:
    data = two_batches().encode_snapshot()
    for length in range(len(data)):
        with pytest.raises(CorruptLogError):
            ProducerStates.decode_snapshot(data[:length])
    for at in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[at // 8] ^= 1 << at % 8
        with pytest.raises(CorruptLogError):
            ProducerStates.decode_snapshot(bytes(damaged))


ENTRY_BYTES = bytes.fromhex(KAFKAS_ENTRY)
WINDOW_BYTES = bytes.fromhex(OUR_WINDOW)


@pytest.mark.parametrize(
    "body",
    [
        b"\x7f\xff\xff\xff" + ENTRY_BYTES,
        b"\xff\xff\xff\xff" + ENTRY_BYTES,
        b"\0\0\0\2" + ENTRY_BYTES,
        b"\0\0\0\2" + ENTRY_BYTES + ENTRY_BYTES,
        b"\0\0\0\2" + ENTRY_BYTES + b"\0\0\0\0\0\0\0\1" + ENTRY_BYTES[8:],
        b"\0\0\0\1" + ENTRY_BYTES[:22] + b"\xff\xff\xff\xff" + ENTRY_BYTES[26:],
        b"\0\0\0\1" + ENTRY_BYTES[:22] + b"\0\0\0\x6a" + ENTRY_BYTES[26:],
        b"\0\0\0\1" + ENTRY_BYTES + WINDOW_BYTES[:6],
        b"\0\0\0\1" + ENTRY_BYTES + WINDOW_BYTES[:-1],
        b"\0\0\0\1" + ENTRY_BYTES + WINDOW_BYTES[:4] + b"\0\0\0\2" + WINDOW_BYTES[8:],
        b"\0\0\0\1" + ENTRY_BYTES + WINDOW_BYTES[:8] + bytes(8) + WINDOW_BYTES[16:],
        b"\0\0\0\1" + ENTRY_BYTES + WINDOW_BYTES[:24] + b"\5" + bytes(24 * 5),
        b"\0\0\0\1" + ENTRY_BYTES + WINDOW_BYTES[:24] + b"\xff",
        b"\0\0\0\0" + WINDOW_BYTES,
    ],
)
def test_a_snapshot_that_lies_under_a_right_checksum_is_refused(body: bytes) -> None:
    with pytest.raises(CorruptLogError):
        ProducerStates.decode_snapshot(sealed(body))


def test_a_snapshot_of_another_version_is_refused() -> None:
    with pytest.raises(CorruptLogError, match="version 2"):
        ProducerStates.decode_snapshot(sealed(b"\0\0\0\0", version=2))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_any_body_under_a_right_checksum_is_read_or_refused(body: bytes) -> None:
    try:
        states = ProducerStates.decode_snapshot(sealed(body))
    except CorruptLogError:
        return
    assert len(states) * len(ENTRY_BYTES) <= len(body)
