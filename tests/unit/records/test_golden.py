"""Our bytes are the bytes of others.  How the golden batches came to be stands in golden/README.md."""

from pathlib import Path

import pytest

from distributedlog.records.arrow import decode_to_arrow
from distributedlog.records.arrow_write import encode_from_arrow
from distributedlog.records.batch import check_batch, stamp
from distributedlog.records.compression import Codec
from distributedlog.records.control import ControlType, EndMarker, encode_end_marker_batch, read_end_marker
from distributedlog.records.record import Header, Record, decode_batch, encode_batch
from tests.unit.records.strategies import LIMITS

GOLDEN = Path(__file__).parent / "golden"
RECORDS = [
    Record(b"value-0", b"key-0", (), 1_700_000_000_000, 0),
    Record(b"", None, (Header("trace", b"\x00\xff"),), 1_700_000_000_250, 1),
    Record(None, b"key-2", (Header("ünï", None), Header("", b"")), 1_699_999_999_000, 2),
    Record(b"long " * 40, b"", (), 1_700_000_086_400, 3),
]


def golden(name: str) -> bytes:
    return bytes.fromhex((GOLDEN / f"{name}.hex").read_text())


@pytest.mark.parametrize("codec", list(Codec))
def test_a_golden_batch_is_decoded_to_its_records(codec: Codec) -> None:
    batch = golden(f"records-{codec.name.lower()}")
    header = check_batch(batch, limits=LIMITS)
    assert decode_batch(batch, limits=LIMITS) == RECORDS
    assert (header.codec, header.is_transactional, header.is_control) == (codec, True, False)
    assert (header.producer_id, header.producer_epoch) == (4711, 3)
    assert (header.base_sequence, header.last_sequence) == (20, 23)
    assert (header.base_timestamp, header.max_timestamp) == (1_700_000_000_000, 1_700_000_086_400)


def test_records_are_encoded_to_the_golden_bytes() -> None:
    ours = encode_batch(RECORDS, producer_id=4711, producer_epoch=3, base_sequence=20, is_transactional=True)
    assert ours.hex() == golden("records-none").hex()


def test_rows_are_encoded_to_the_golden_bytes() -> None:
    rows = decode_to_arrow(golden("records-none"), limits=LIMITS)
    (ours,) = encode_from_arrow(
        rows, producer_id=4711, producer_epoch=3, base_sequence=20, is_transactional=True
    )
    assert ours.hex() == golden("records-none").hex()


@pytest.mark.parametrize("kind", list(ControlType))
def test_markers_are_encoded_to_the_golden_bytes_and_back(kind: ControlType) -> None:
    batch = golden(f"marker-{kind.name.lower()}")
    assert read_end_marker(batch, 0, check_batch(batch, limits=LIMITS)) == EndMarker(kind, 9)
    ours = encode_end_marker_batch(
        EndMarker(kind, 9), producer_id=4711, producer_epoch=3, timestamp_ms=1_700_000_000_000
    )
    stamp(ours, 0, 1000, 6)
    assert ours.hex() == batch.hex()
