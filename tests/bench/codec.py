"""The record codec against aiokafka's, which is written in Cython, and records to Arrow.

Batches are of about 16 KiB: 150 records with values of 100 bytes.  aiokafka is driven as its own producer and
consumer drive it: one `append` for a record, and a walk over the batch after its checksum was checked.
Times are this process's CPU time: the aims are for one core, whoever else uses the machine.
"""

import random
import time
from collections.abc import Callable

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from distributedlog.records import kernel
from distributedlog.records.arrow import decode_to_arrow
from distributedlog.records.arrow_write import encode_from_arrow
from distributedlog.records.batch import scan
from distributedlog.records.record import Record, decode_batch, encode_batch
from tests.bench.figures import Figure, at_least, at_most, medians
from tests.bench.harness import Bench

NOW_MS = 1_700_000_000_000
RECORDS_PER_BATCH = 150
BATCHES = 40
ROUNDS = 15
ARROW_ROWS = 150_000


def some_records(with_key: bool) -> list[Record]:
    draw = random.Random(7).randbytes
    return [
        Record(draw(100), b"key-%05d" % index if with_key else None, (), NOW_MS + index)
        for index in range(RECORDS_PER_BATCH)
    ]


def aiokafka_encode(records: list[Record]) -> bytearray:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=1 << 20,
    )  # fmt: skip
    for index, record in enumerate(records):
        builder.append(index, record.timestamp_ms, record.key, record.value, [])
    built: bytearray = builder.build()
    return built


def aiokafka_decode(batch: bytes) -> list[object]:
    reader = DefaultRecordBatch(batch)
    if not reader.validate_crc():
        raise ValueError("the bench's own batch is damaged")
    return list(reader)


def timed(work: Callable[[], object], times: int = BATCHES) -> Callable[[], float]:
    def run() -> float:
        started = time.process_time()
        for _ in range(times):
            work()
        return time.process_time() - started

    return run


def against_aiokafka(with_key: bool) -> list[Figure]:
    records = some_records(with_key)
    batch = bytes(encode_batch(records))
    encode, decode, their_encode, their_decode = (
        seconds / (BATCHES * RECORDS_PER_BATCH)
        for seconds in medians(
            ROUNDS,
            timed(lambda: encode_batch(records)),
            timed(lambda: decode_batch(batch)),
            timed(lambda: aiokafka_encode(records)),
            timed(lambda: aiokafka_decode(batch)),
        )
    )
    kind = "key and value" if with_key else "value only"
    return [
        at_most(f"encode, {kind}: our time / aiokafka's", encode / their_encode, "x", 1.2),
        at_most(f"decode, {kind}: our time / aiokafka's", decode / their_decode, "x", 1.2),
        Figure(f"encode, {kind}", encode * 1e9, "ns a record"),
        Figure(f"decode, {kind}", decode * 1e9, "ns a record"),
    ]


def arrow_rates() -> list[Figure]:
    records = some_records(with_key=False)
    count = ARROW_ROWS // RECORDS_PER_BATCH
    log = b"".join(encode_batch(records, base_offset=index * RECORDS_PER_BATCH) for index in range(count))
    rows = decode_to_arrow(log)
    decode, encode, walk = medians(
        ROUNDS,
        timed(lambda: decode_to_arrow(log), 1),
        timed(lambda: encode_from_arrow(rows, batch_bytes_max=16384), 1),
        timed(lambda: scan(log), 1),
    )
    return [
        at_least("decode to Arrow, 100-byte values", ARROW_ROWS / decode / 1e6, "million records/s", 5),
        Figure("encode from Arrow, 100-byte values", ARROW_ROWS / encode / 1e6, "million records/s"),
        Figure("scan with checksums, 16 KiB batches", len(log) / walk / 1e9, "GB/s"),
    ]


def run(bench: Bench) -> None:
    bench.case("codec, value only", lambda: judged(against_aiokafka(with_key=False)))
    bench.case("codec, key and value", lambda: judged(against_aiokafka(with_key=True)))
    bench.case("codec, Arrow", lambda: judged(arrow_rates()))


def judged(figures: list[Figure]) -> list[Figure]:
    """The aims are those of the compiled kernel."""
    if kernel.FORM == "compiled":
        return figures
    return [
        Figure(figure.name, figure.value, figure.unit, figure.aim + " compiled", None) for figure in figures
    ]
