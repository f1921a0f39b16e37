"""aiokafka's and kafka-python's record codecs read what we write, and we read what they write."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.record import default_records as aiokafka_records

from distributedlog.model.errors import CorruptBatchError
from distributedlog.records.batch import check_batch, read_header
from distributedlog.records.compression import Codec
from distributedlog.records.record import Header, Record, decode_batch, encode_batch
from tests.compat.records import LIMITS, RECORDS

with warnings.catch_warnings():  # kafka-python reads its schemas in a way that Python has deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record import default_records as kafka_python_records

AIOKAFKA = [(aiokafka_records, codec) for codec in Codec]
# kafka-python takes snappy and zstd from libraries that are among the development dependencies.
KAFKA_PYTHON = [(kafka_python_records, codec) for codec in Codec]
CLIENTS = pytest.mark.parametrize(
    ("client", "codec"),
    AIOKAFKA + KAFKA_PYTHON,
    ids=lambda value: value.name if isinstance(value, Codec) else value.__name__.partition(".")[0],
)


def written_by(client: Any, codec: Codec, records: list[Record], **producer: int) -> bytes:
    fields = {"is_transactional": 0, "producer_id": -1, "producer_epoch": -1, "base_sequence": -1, **producer}
    builder = client.DefaultRecordBatchBuilder(
        magic=2, compression_type=int(codec), batch_size=1 << 24, **fields
    )
    for record in records:
        headers = [tuple(header) for header in record.headers]
        appended = builder.append(record.offset, record.timestamp_ms, record.key, record.value, headers)
        assert appended is not None
    return bytes(builder.build())


def read_by(client: Any, batch: bytes) -> list[Record]:
    reader = client.DefaultRecordBatch(batch)
    assert reader.validate_crc()
    return [
        Record(
            record.value,
            record.key,
            tuple(Header(key, value) for key, value in record.headers),
            record.timestamp,
            record.offset,
        )
        for record in reader
    ]


@CLIENTS
def test_we_read_what_a_client_writes(client: Any, codec: Codec) -> None:
    producer = {"producer_id": 77, "producer_epoch": 2, "base_sequence": 5, "is_transactional": 1}
    batch = written_by(client, codec, RECORDS, **producer)
    header = check_batch(batch, limits=LIMITS)
    assert decode_batch(batch, limits=LIMITS) == RECORDS
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 2, 5)
    assert header.codec == codec
    assert header.is_transactional


@CLIENTS
def test_a_client_reads_what_we_write(client: Any, codec: Codec) -> None:
    batch = bytes(encode_batch(RECORDS, codec=codec, producer_id=77, producer_epoch=2, base_sequence=5))
    assert read_by(client, batch) == RECORDS
    reader = client.DefaultRecordBatch(batch)
    assert (reader.producer_id, reader.producer_epoch, reader.base_sequence) == (77, 2, 5)


@pytest.mark.parametrize("client", [aiokafka_records, kafka_python_records])
def test_without_compression_we_write_the_same_bytes(client: Any) -> None:
    theirs = written_by(client, Codec.NONE, RECORDS)
    assert theirs == bytes(encode_batch(RECORDS, leader_epoch=read_header(theirs).leader_epoch))


@CLIENTS
def test_a_client_reads_gaps_and_append_times(client: Any, codec: Codec) -> None:
    gapped = [record._replace(offset=1000 + 3 * record.offset) for record in RECORDS]
    batch = encode_batch(
        gapped, codec=codec, base_offset=1000, preserve_offsets=True, log_append_time_ms=12345
    )
    assert read_by(client, bytes(batch)) == [record._replace(timestamp_ms=12345) for record in gapped]
    assert read_header(batch).last_offset == gapped[-1].offset


def cut(batch: bytes) -> bytes:
    return batch[:-1]


def flipped(batch: bytes) -> bytes:
    return batch[:-1] + bytes([batch[-1] ^ 1])


@pytest.mark.parametrize("damage", [cut, flipped])
def test_what_a_client_calls_damaged_we_call_damaged(damage: Callable[[bytes], bytes]) -> None:
    damaged = damage(bytes(encode_batch(RECORDS)))
    assert not aiokafka_records.DefaultRecordBatch(damaged).validate_crc()
    with pytest.raises(CorruptBatchError):
        decode_batch(damaged, limits=LIMITS)
