"""Produce and InitProducerId."""

from typing import Any

from distributedlog.model.ids import ZERO_UUID
from distributedlog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from distributedlog.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from distributedlog.records.checksum import crc32c
from distributedlog.records.compression import Codec
from distributedlog.records.layout import ATTRIBUTES_AT, CRC_AT, HEADER_STRUCT, BatchHeader
from distributedlog.records.record import Record, encode_batch
from tests.compat.differential.asking import Conversation, Topic
from tests.compat.differential.building import NO_TOPIC, batch_of, fetch, list_offsets, produce
from tests.compat.differential.registry import probe

FETCH_VERSION = 12
DAY_MS = 24 * 3600 * 1000


def _end(of: Conversation, topic: Topic) -> None:
    of.ask("where the log ends then", list_offsets(topic.name, [-1]), 7)


@probe(ProduceRequest)
def acks(of: Conversation, version: int) -> None:
    topic = of.topic()
    for acks in (-1, 1, 2, -2):
        of.ask(f"acks={acks}", produce(topic, batch_of(of), acks=acks), version)
    _end(of, topic)


@probe(ProduceRequest)
def acks_0(of: Conversation, version: int) -> None:
    topic = of.topic()
    of.send(produce(topic, batch_of(of), acks=0), version)
    of.ask("behind it", produce(topic, batch_of(of), acks=-1), version)
    of.send(produce(topic, batch_of(of), acks=0, partition=9), version)
    of.ask("behind one to a partition that is not there", produce(topic, batch_of(of), acks=-1), version)


@probe(ProduceRequest)
def read_back(of: Conversation, version: int) -> None:
    topic = of.topic()
    for codec in Codec:
        if codec != Codec.ZSTD or version >= 7:
            of.ask(codec.name.lower(), produce(topic, batch_of(of, codec=codec)), version)
    of.ask("read", fetch(topic), FETCH_VERSION)


@probe(ProduceRequest)
def zstd(of: Conversation, version: int) -> None:
    of.ask("zstd", produce(of.topic(), batch_of(of, codec=Codec.ZSTD)), version)


@probe(ProduceRequest)
def unknown_places(of: Conversation, version: int) -> None:
    topic = of.topic()
    nowhere = Topic(of.name("none"), NO_TOPIC)
    of.ask("partition that is not there", produce(topic, batch_of(of), partition=1), version)
    of.ask("partition -1", produce(topic, batch_of(of), partition=-1), version)
    of.ask("topic that is not there", produce(nowhere, batch_of(of)), version)
    of.ask("bad topic name", produce(Topic("a/b", ZERO_UUID), batch_of(of)), version)
    of.ask("empty topic name", produce(Topic("", ZERO_UUID), batch_of(of)), version)
    data = [PartitionProduceData(index=at, records=batch_of(of)) for at in (0, 1)]
    mixed = [TopicProduceData(name=topic.name, topic_id=topic.id, partition_data=data)]
    of.ask("one there and one not", produce(topic, None, topic_data=mixed), version)
    of.ask("no topics", produce(topic, None, topic_data=[]), version)
    _end(of, topic)


@probe(ProduceRequest)
def twice_in_one_request(of: Conversation, version: int) -> None:
    topic = of.topic()
    data = [PartitionProduceData(index=0, records=batch_of(of)) for _ in range(2)]
    twice = [TopicProduceData(name=topic.name, topic_id=topic.id, partition_data=data)]
    of.ask("a partition twice", produce(topic, None, topic_data=twice), version)
    _end(of, topic)


def _with(batch: bytes, **fields: Any) -> bytes:
    """The batch with other fields in its header, and a right CRC."""
    changed = bytearray(batch)
    header = BatchHeader(*HEADER_STRUCT.unpack_from(batch))._replace(**fields)
    HEADER_STRUCT.pack_into(changed, 0, *header)
    changed[CRC_AT:ATTRIBUTES_AT] = crc32c(changed[ATTRIBUTES_AT:]).to_bytes(4, "big")
    return bytes(changed)


@probe(ProduceRequest)
def bad_batches(of: Conversation, version: int) -> None:
    topic = of.topic()
    good = batch_of(of)
    wrong_crc = bytearray(good)
    wrong_crc[CRC_AT] ^= 1
    old = bytearray(good)
    old[16] = 1
    unknown = bytearray(good)
    unknown[16] = 3
    questions = [
        ("no bytes", b""),
        ("wrong crc", bytes(wrong_crc)),
        ("magic 1", bytes(old)),
        ("magic 3", bytes(unknown)),
        ("cut short", good[:-1]),
        ("cut in the header", good[:60]),
        ("a few bytes", good[:5]),
        ("ones", b"\xff" * 100),
        ("two batches", good + good),
        ("no records", _with(good, record_count=0)),
        ("one record too many claimed", _with(good, record_count=4)),
        ("one record too few claimed", _with(good, record_count=2)),
        ("negative record count", _with(good, record_count=-1)),
        ("last offset delta too large", _with(good, last_offset_delta=9)),
        ("last offset delta too small", _with(good, last_offset_delta=1)),
        ("negative last offset delta", _with(good, last_offset_delta=-1)),
        ("codec 5", _with(good, attributes=5)),
        ("codec 7", _with(good, attributes=7)),
        ("gzip that is none", _with(good, attributes=1)),
        ("unused attribute bit", _with(good, attributes=0x100)),
        ("log append time claimed", _with(good, attributes=8)),
        ("delete horizon claimed", _with(good, attributes=0x40)),
        ("max timestamp not of the records", _with(good, max_timestamp=7)),
        ("leader epoch 77", _with(good, leader_epoch=77)),
        ("control batch", batch_of(of, is_control=True)),
        ("transactional bit without a transaction", batch_of(of, is_transactional=True)),
        ("sequence without a producer", _with(good, base_sequence=5)),
    ]
    for label, batch in questions:
        of.ask(label, produce(topic, batch), version)
    _end(of, topic)
    of.ask("read", fetch(topic), FETCH_VERSION)


@probe(ProduceRequest)
def odd_batches(of: Conversation, version: int) -> None:
    """Batches that only one of the brokers may take, each in a topic of its own."""
    good = batch_of(of)
    for label, batch in (
        ("a byte behind", good + b"\0"),
        ("base offset 100", _with(good, base_offset=100)),
    ):
        topic = of.topic()
        of.ask(label, produce(topic, batch), version)
        of.ask(f"{label}, read", fetch(topic), FETCH_VERSION)


@probe(ProduceRequest, since=13)
def null_records(of: Conversation, version: int) -> None:
    of.ask("null", produce(of.topic(), None), version)


@probe(ProduceRequest)
def sizes(of: Conversation, version: int) -> None:
    topic = of.topic(configs={"max.message.bytes": "1000"})
    small = bytes(encode_batch([Record(value=b"x" * 900, key=b"k", timestamp_ms=of.started_ms)]))
    large = bytes(encode_batch([Record(value=b"x" * 1000, key=b"k", timestamp_ms=of.started_ms)]))
    of.ask("within max.message.bytes", produce(topic, small), version)
    of.ask("beyond max.message.bytes", produce(topic, large), version)
    of.ask("second of two beyond", produce(topic, small + large), version)
    narrow = of.topic(configs={"segment.bytes": "1048576", "max.message.bytes": "3000000"})
    huge = bytes(encode_batch([Record(value=b"x" * 1_100_000, key=b"k", timestamp_ms=of.started_ms)]))
    of.ask("beyond segment.bytes", produce(narrow, huge), version)


@probe(ProduceRequest)
def compacted(of: Conversation, version: int) -> None:
    topic = of.topic(configs={"cleanup.policy": "compact"})
    of.ask("with keys", produce(topic, batch_of(of)), version)
    of.ask("without keys", produce(topic, batch_of(of, key=None)), version)
    mixed = [
        Record(value=b"1", key=b"k", timestamp_ms=of.started_ms),
        Record(value=b"2", key=None, timestamp_ms=of.started_ms),
        Record(value=b"3", key=None, timestamp_ms=of.started_ms),
    ]
    of.ask("some without keys", produce(topic, bytes(encode_batch(mixed))), version)
    of.ask("some without keys, gzip", produce(topic, bytes(encode_batch(mixed, codec=Codec.GZIP))), version)
    _end(of, topic)


@probe(ProduceRequest)
def timestamps(of: Conversation, version: int) -> None:
    def at(timestamp_ms: int) -> bytes:
        return bytes(encode_batch([Record(value=b"v", key=b"k", timestamp_ms=timestamp_ms)]))

    topic = of.topic(
        configs={
            "message.timestamp.before.max.ms": str(DAY_MS),
            "message.timestamp.after.max.ms": str(DAY_MS),
        }
    )
    of.ask("now", produce(topic, at(of.started_ms)), version)
    of.ask("too old", produce(topic, at(of.started_ms - 2 * DAY_MS)), version)
    of.ask("too new", produce(topic, at(of.started_ms + 2 * DAY_MS)), version)
    of.ask("none", produce(topic, at(-1)), version)
    plain = of.topic(configs={"retention.ms": "-1"})
    of.ask("none, no limits", produce(plain, at(-1)), version)
    of.ask("zero, no limits", produce(plain, at(0)), version)
    of.ask("in two days, no limits", produce(plain, at(of.started_ms + 2 * DAY_MS)), version)


@probe(ProduceRequest)
def log_append_time(of: Conversation, version: int) -> None:
    topic = of.topic(configs={"message.timestamp.type": "LogAppendTime"})
    answer = of.call(produce(topic, batch_of(of)), version, ProduceResponse)
    stamped = answer.responses[0].partition_responses[0]
    assert stamped.log_append_time_ms >= of.started_ms
    for codec in (Codec.GZIP, Codec.LZ4):
        of.call(produce(topic, batch_of(of, codec=codec)), version, ProduceResponse)
    of.ask("read", fetch(topic), FETCH_VERSION)


@probe(ProduceRequest)
def recompressed(of: Conversation, version: int) -> None:
    for wanted in ("gzip", "uncompressed", "zstd"):
        topic = of.topic(configs={"compression.type": wanted})
        of.ask(f"to {wanted}", produce(topic, batch_of(of)), version)
        of.ask(f"snappy to {wanted}", produce(topic, batch_of(of, codec=Codec.SNAPPY)), version)
        of.ask(f"read {wanted}", fetch(topic), FETCH_VERSION)


@probe(ProduceRequest)
def transactions(of: Conversation, version: int) -> None:
    topic = of.topic()
    transactional = batch_of(of, producer_id=4711, producer_epoch=0, base_sequence=0, is_transactional=True)
    request = produce(topic, transactional, transactional_id=of.name("tx"))
    of.ask("of a transaction that never began", request, version)
    of.ask("transactional id, plain batch", produce(topic, batch_of(of), transactional_id="x"), version)
    of.ask("transactional batch, no id", produce(topic, transactional), version)
    _end(of, topic)


def _producer(of: Conversation) -> int:
    asked = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    return of.call(asked, 1, InitProducerIdResponse).producer_id


@probe(ProduceRequest)
def idempotence(of: Conversation, version: int) -> None:
    topic = of.topic()
    producer = _producer(of)

    def send(label: str, sequence: int, epoch: int = 0, count: int = 1, who: int = producer) -> None:
        batch = batch_of(of, count, producer_id=who, producer_epoch=epoch, base_sequence=sequence)
        of.ask(label, produce(topic, batch), version)

    send("first", 0)
    send("next", 1, count=2)
    send("again", 1, count=2)
    send("the first again", 0)
    send("a gap", 7)
    send("part of one before", 1)
    send("another count", 1, count=3)
    send("five more 1", 3)
    send("five more 2", 4)
    send("five more 3", 5)
    send("five more 4", 6)
    send("five more 5", 7)
    send("long ago", 0)
    send("next epoch, not from zero", 5, epoch=1)
    send("next epoch", 0, epoch=1)
    send("epoch before", 8)
    send("epoch two ahead", 0, epoch=3)
    send("unknown producer, from zero", 0, who=999_999)
    send("another unknown producer, not from zero", 5, who=999_998)
    send("negative epoch", 0, epoch=-1, who=999_997)
    send("negative sequence", -1, who=999_996)
    good = batch_of(of, producer_id=producer, producer_epoch=3, base_sequence=1)
    other = batch_of(of, producer_id=producer, producer_epoch=3, base_sequence=4)
    of.ask("two batches of a producer at once", produce(topic, good + other), version)
    _end(of, topic)


@probe(InitProducerIdRequest)
def new_ids(of: Conversation, version: int) -> None:
    def ask(label: str, transactional_id: str | None = None, **more: Any) -> None:
        fields = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000, **more}
        of.ask(label, InitProducerIdRequest(**fields), version)

    ask("a new one")
    ask("a second one")
    ask("no timeout", transaction_timeout_ms=0)
    ask("negative timeout", transaction_timeout_ms=-1)
    ask("empty transactional id", "")


@probe(InitProducerIdRequest)
def transactional(of: Conversation, version: int) -> None:
    def ask(label: str, timeout_ms: int) -> None:
        request = InitProducerIdRequest(transactional_id=of.name("tx"), transaction_timeout_ms=timeout_ms)
        of.ask(label, request, version)

    ask("timeout 0", 0)
    ask("timeout too large", 2**31 - 1)


@probe(InitProducerIdRequest, since=3)
def next_epoch(of: Conversation, version: int) -> None:
    def ask(label: str, producer_id: int, epoch: int) -> None:
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=1000, producer_id=producer_id, producer_epoch=epoch
        )
        of.ask(label, request, version)

    ask("of an id, without a transactional id", 5, 0)
    ask("an epoch without an id", -1, 0)
    ask("an id without an epoch", 5, -1)
    ask("an id below -1", -7, 0)
