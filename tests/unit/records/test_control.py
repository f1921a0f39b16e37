"""Transaction markers."""

import pytest

from distributedlog.model.errors import InvalidRecordError
from distributedlog.records.batch import check_batch, read_header
from distributedlog.records.control import ControlType, EndMarker, encode_end_marker_batch, read_end_marker
from distributedlog.records.record import Record, decode_batch, encode_batch
from tests.unit.records.strategies import LIMITS


@pytest.mark.parametrize("kind", list(ControlType))
def test_a_marker_comes_back(kind: ControlType) -> None:
    batch = b".." + encode_end_marker_batch(
        EndMarker(kind, 42),
        producer_id=9,
        producer_epoch=3,
        timestamp_ms=1000,
        base_offset=17,
        leader_epoch=5,
    )
    header = check_batch(batch, 2, limits=LIMITS)
    assert read_end_marker(batch, 2, header) == EndMarker(kind, 42)
    assert read_end_marker(batch, 2, header).is_commit == (kind is ControlType.COMMIT)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, -1)
    assert (header.base_offset, header.leader_epoch, header.max_timestamp) == (17, 5, 1000)


def test_a_marker_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    record = Record(key=b"\0\x01\0\x01more", value=b"\0\x05\0\0\0\x07more")
    batch = encode_batch([record], is_control=True)
    assert read_end_marker(batch, 0, read_header(batch)) == EndMarker(ControlType.COMMIT, 7)


@pytest.mark.parametrize(
    "record",
    [
        Record(key=b"\0\0\0\x02", value=bytes(6)),
        Record(key=b"\0\0\xff\xff", value=bytes(6)),
        Record(key=b"\xff\xff\0\0", value=bytes(6)),
        Record(key=bytes(4), value=b"\xff\xff\0\0\0\0"),
        Record(key=bytes(3), value=bytes(6)),
        Record(key=bytes(4), value=bytes(5)),
        Record(key=None, value=bytes(6)),
        Record(key=bytes(4), value=None),
    ],
)
def test_a_control_record_that_ends_no_transaction_is_refused(record: Record) -> None:
    batch = encode_batch([record], is_control=True)
    with pytest.raises(InvalidRecordError):
        read_end_marker(batch, 0, read_header(batch))


def test_a_batch_that_holds_no_marker_is_refused() -> None:
    marker = Record(key=bytes(4), value=bytes(6))
    for batch in (encode_batch([marker]), encode_batch([marker] * 2, is_control=True)):
        with pytest.raises(InvalidRecordError, match="no marker"):
            read_end_marker(batch, 0, read_header(batch))


def test_a_marker_is_a_record_like_any_other_to_who_decodes_all() -> None:
    batch = encode_end_marker_batch(
        EndMarker(ControlType.ABORT, 1), producer_id=1, producer_epoch=0, timestamp_ms=5
    )
    (record,) = decode_batch(batch, limits=LIMITS)
    assert (record.key, record.value, record.timestamp_ms) == (bytes(4), b"\0\0\0\0\0\x01", 5)
