"""Exactly the records that were asked for come out of fetched bytes."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.client.fetcher import (
    Fetched,
    Fetcher,
    FetchError,
    FetchOptions,
    PreparedFetch,
    records_of,
    rows_of,
)
from distributedlog.client.offset_specs import Isolation
from distributedlog.client.view import ClusterView, PartitionView, TopicView
from distributedlog.model.errors import (
    BrokerError,
    ConfigError,
    CorruptBatchError,
    DlogError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
)
from distributedlog.model.ids import ZERO_UUID, TopicPartition, Uuid
from distributedlog.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from distributedlog.records.checksum import crc32c
from distributedlog.records.compression import Codec
from distributedlog.records.control import ControlType, EndMarker, encode_end_marker_batch
from distributedlog.records.layout import ATTRIBUTES_AT, CRC_AT, HEADER_BYTES
from distributedlog.records.record import Record, encode_batch

HERE, THERE = TopicPartition("t", 0), TopicPartition("t", 1)
ID = Uuid(bytes([7] * 16))
CHECKED_AT = 60
"""A byte of a batch's header that its sum covers: the last one of its count of records."""


def view(topic_id: Uuid = ID) -> ClusterView:
    partitions = (PartitionView(0, 1, 4), PartitionView(1, 1, 5))
    return ClusterView(topics={"t": TopicView("t", partitions, topic_id)})


def batch(base: int, *values: bytes, codec: Codec = Codec.NONE) -> bytes:
    return bytes(
        encode_batch([Record(value, timestamp_ms=1) for value in values], base_offset=base, codec=codec)
    )


def hurt_batch(base: int, *values: bytes) -> bytes:
    """One with a sum that is wrong."""
    hurt = bytearray(batch(base, *values))
    hurt[-1] ^= 1
    return bytes(hurt)


def told(partition: int, records: bytes | None, error_code: int = 0) -> PartitionData:
    return PartitionData(
        partition_index=partition,
        error_code=error_code,
        high_watermark=100,
        last_stable_offset=90,
        log_start_offset=0,
        aborted_transactions=None,
        records=records,
    )


def response(*partitions: PartitionData, error_code: int = 0) -> FetchResponse:
    topics = [FetchableTopicResponse(topic_id=ID, partitions=list(partitions))]
    return FetchResponse(error_code=error_code, responses=topics)


def fetcher(**positions: int) -> Fetcher:
    made = Fetcher()
    made.assign({TopicPartition("t", int(name[1:])): offset for name, offset in positions.items()})
    return made


def accepted(
    asking: Fetcher, prepared: PreparedFetch, answer: FetchResponse
) -> tuple[list[Fetched], list[FetchError]]:
    """What is opened at once, and what was refused, also when it was opened."""
    arrived, refused = asking.take(prepared, answer)
    fetched = []
    for each in arrived:
        try:
            fetched.append(asking.open(each))
        except DlogError as error:
            refused.append(FetchError(each.partition, error, is_final=True))
    return fetched, refused


def test_a_question_names_positions_epochs_and_limits() -> None:
    asking = Fetcher(FetchOptions(isolation=Isolation.READ_COMMITTED, partition_bytes_max=11))
    asking.assign({HERE: 3, THERE: 8})
    request = asking.prepare([HERE, THERE], view()).request
    assert request.isolation_level == 1
    (topic,) = request.topics
    assert (topic.topic, topic.topic_id) == ("t", ID)
    assert [
        (each.partition, each.fetch_offset, each.current_leader_epoch, each.partition_max_bytes)
        for each in topic.partitions
    ] == [(0, 3, 4, 11), (1, 8, 5, 11)]


def test_without_a_topic_id_the_last_version_with_names_is_asked_for() -> None:
    assert fetcher(p0=0).prepare([HERE], view(ZERO_UUID)).version_max == 12
    assert fetcher(p0=0).prepare([HERE], view()).version_max is None


def test_an_answer_moves_the_positions_on() -> None:
    asking = fetcher(p0=0, p1=5)
    prepared = asking.prepare([HERE, THERE], view())
    fetched, refused = accepted(asking, prepared, response(told(0, batch(0, b"a", b"b")), told(1, None)))
    assert refused == []
    assert [(each.partition, [r.value for r in each.records], each.next_offset) for each in fetched] == [
        (HERE, [b"a", b"b"], 2),
        (THERE, [], 5),
    ]
    assert asking.positions == {HERE: 2, THERE: 5}


def test_an_answer_to_where_a_partition_was_before_is_ignored() -> None:
    asking = fetcher(p0=0, p1=0)
    prepared = asking.prepare([HERE, THERE], view())
    asking.assign({HERE: 7})
    asking.drop(THERE)
    answer = response(told(0, batch(0, b"a")), told(1, batch(0, b"b")))
    assert accepted(asking, prepared, answer) == ([], [])
    assert asking.positions == {HERE: 7}


def test_partitions_that_nobody_asked_for_are_ignored() -> None:
    asking = fetcher(p0=0, p1=0)
    prepared = asking.prepare([HERE], view())
    assert accepted(asking, prepared, response(told(1, batch(0, b"b")), told(9, None))) == ([], [])


def test_a_refusal_leaves_the_position() -> None:
    asking = fetcher(p0=3)
    fetched, ((partition, error, is_final),) = accepted(
        asking, asking.prepare([HERE], view()), response(told(0, None, error_code=1))
    )
    assert (fetched, partition, is_final, asking.positions) == ([], HERE, False, {HERE: 3})
    assert isinstance(error, OffsetOutOfRangeError)


def test_an_answer_that_is_an_error_refuses_everything() -> None:
    asking = fetcher(p0=0, p1=0)
    fetched, refused = accepted(asking, asking.prepare([HERE, THERE], view()), response(error_code=103))
    assert fetched == []
    assert [each.partition for each in refused] == [HERE, THERE]
    assert all(isinstance(each.error, BrokerError) for each in refused)


def test_unsound_bytes_of_one_partition_do_not_cost_the_other() -> None:
    asking = fetcher(p0=0, p1=0)
    answer = response(told(0, hurt_batch(0, b"hurt")), told(1, batch(0, b"whole")))
    fetched, (refusal,) = accepted(asking, asking.prepare([HERE, THERE], view()), answer)
    assert [each.partition for each in fetched] == [THERE]
    assert refusal.is_final
    assert isinstance(refusal.error, CorruptBatchError)
    assert asking.positions == {HERE: 0, THERE: 1}


@pytest.mark.parametrize("makes_rows", [False, True])
def test_who_cannot_read_on_is_told_of_which_partition_where_and_what_to_do(makes_rows: bool) -> None:
    told_so = "^t-0 cannot be read at offset 5: the batch.*; seek behind that batch to go on without it$"
    asking = fetcher(p0=5)
    asking.makes_rows = makes_rows
    (arrived,), _ = asking.take(asking.prepare([HERE], view()), response(told(0, hurt_batch(5, b"a"))))
    with pytest.raises(CorruptBatchError, match=told_so):
        asking.open(arrived)
    _, (refusal,) = asking.take(asking.prepare([HERE], view()), response(told(0, batch(5, b"a")[:-1])))
    with pytest.raises(RecordTooLargeError, match=told_so):
        raise refusal.error


def test_what_is_before_an_unsound_batch_is_read() -> None:
    whole, hurt = batch(0, b"a", b"b"), hurt_batch(2, b"c")
    records, next_offset = records_of(whole + hurt, 0)
    assert ([record.value for record in records], next_offset) == ([b"a", b"b"], 2)
    rows, next_offset = rows_of(whole + hurt, 0)
    assert rows is not None
    assert (rows.column("value").to_pylist(), next_offset) == ([b"a", b"b"], 2)
    for read in (records_of, rows_of):
        with pytest.raises(CorruptBatchError):
            read(hurt, 2)


def undecodable_batch(base: int, *values: bytes) -> bytes:
    """Its checksum is right, and its first record claims more bytes than there are."""
    whole = bytearray(batch(base, *values))
    whole[HEADER_BYTES] = 0x7E
    whole[CRC_AT:ATTRIBUTES_AT] = crc32c(memoryview(whole)[ATTRIBUTES_AT:]).to_bytes(4, "big")
    return bytes(whole)


@pytest.mark.parametrize("read", [records_of, rows_of])
def test_what_is_before_records_that_cannot_be_decoded_is_read(
    read: Callable[[bytes, int], tuple[Any, int]],
) -> None:
    data = batch(0, b"a", b"b") + batch(2, b"c") + undecodable_batch(3, b"d") + batch(4, b"e")
    found, next_offset = read(data, 1)
    values = [each.value for each in found] if isinstance(found, list) else found["value"].to_pylist()
    assert (values, next_offset) == ([b"b", b"c"], 3)
    with pytest.raises(DlogError):
        read(data, 3)


@pytest.mark.parametrize("read", [records_of, rows_of])
def test_records_that_cannot_be_decoded_behind_an_aborted_transaction_do_not_hold_the_position(
    read: Callable[..., tuple[Any, int]],
) -> None:
    aborted = encode_batch(
        [Record(b"x", timestamp_ms=1)],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    data = bytes(aborted) + undecodable_batch(1, b"d")
    found, next_offset = read(data, 0, [AbortedTransaction(producer_id=7, first_offset=0)])
    assert (list(found or ()), next_offset) == ([], 1)


@pytest.mark.parametrize("read", [records_of, rows_of])
def test_unsound_bytes_behind_what_was_not_asked_for_are_told(
    read: Callable[[bytes, int], tuple[Any, int]],
) -> None:
    with pytest.raises(CorruptBatchError):
        read(batch(0, b"a") + hurt_batch(1, b"b"), 1)


@pytest.mark.parametrize("makes_rows", [False, True])
def test_a_position_moves_before_anything_is_opened_and_back_to_what_is_unsound(makes_rows: bool) -> None:
    asking = fetcher(p0=0)
    asking.makes_rows = makes_rows
    data = batch(0, b"a", b"b") + hurt_batch(2, b"c") + batch(3, b"d")
    (arrived,), _ = asking.take(asking.prepare([HERE], view()), response(told(0, data)))
    assert asking.positions == {HERE: 4}
    early = asking.prepare([HERE], view())
    assert early.offsets == {HERE: 4}
    fetched = asking.open(arrived)
    assert (fetched.next_offset, asking.positions) == (2, {HERE: 2})
    assert asking.take(early, response(told(0, batch(4, b"e")))) == ([], [])
    (again,), _ = asking.take(
        asking.prepare([HERE], view()), response(told(0, data[len(batch(0, b"a", b"b")) :]))
    )
    with pytest.raises(CorruptBatchError):
        asking.open(again)
    assert asking.positions == {HERE: 2}


def test_what_was_sought_since_stays_where_it_is_though_what_came_is_unsound() -> None:
    asking = fetcher(p0=0)
    (arrived,), _ = asking.take(asking.prepare([HERE], view()), response(told(0, hurt_batch(0, b"a"))))
    asking.assign({HERE: 7})
    with pytest.raises(CorruptBatchError):
        asking.open(arrived)
    assert asking.positions == {HERE: 7}


def test_the_epochs_of_what_came_are_known_before_it_is_opened() -> None:
    asking = fetcher(p0=0)
    data = bytes(encode_batch([Record(b"a", timestamp_ms=1)], leader_epoch=3))
    asking.take(asking.prepare([HERE], view()), response(told(0, data)))
    assert asking.epochs.must_validate(HERE, 1, 4)
    assert asking.epochs.epoch_before(HERE, 1) == 3


def test_a_first_batch_that_is_cut_off_is_told_as_too_large() -> None:
    with pytest.raises(RecordTooLargeError, match="did not come whole"):
        records_of(batch(0, b"x" * 100)[:80], 0)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_that_begins_before_the_position_gives_only_its_rest(codec: Codec) -> None:
    data = batch(0, *[b"%d" % number * 9 for number in range(10)], codec=codec)
    records, next_offset = records_of(data, 7)
    assert [record.offset for record in records] == [7, 8, 9]
    assert next_offset == 10


def test_a_position_goes_to_the_end_of_a_batch_that_compaction_has_emptied() -> None:
    data = bytes(encode_batch([], base_offset=5, last_offset_delta=9))
    assert records_of(data, 5) == ([], 15)


def test_limits_without_sense_are_refused() -> None:
    with pytest.raises(ConfigError):
        FetchOptions(bytes_max=0)


@dataclass
class Story:
    """A log that transactions were written to, and what a reader of committed records must see of it."""

    data: bytes
    starts: list[int]
    """Positions in bytes at which batches begin, and the end."""
    all_values: list[tuple[int, bytes]]
    committed: list[tuple[int, bytes]]
    aborted: list[tuple[AbortedTransaction, int]]
    """The aborted transactions, and the offsets of their markers."""
    end: int


@st.composite
def stories(draw: st.DrawFn) -> Story:
    data, starts, end = b"", [0], 0
    every: list[tuple[int, bytes]] = []
    open_transactions: dict[int, tuple[int, list[tuple[int, bytes]]]] = {}
    committed: list[tuple[int, bytes]] = []
    aborted: list[tuple[AbortedTransaction, int]] = []

    def put(piece: bytes, count: int) -> None:
        nonlocal data, end
        data += piece
        end += count
        starts.append(len(data))

    def finish(producer: int, kind: ControlType) -> None:
        first, values = open_transactions.pop(producer)
        if kind is ControlType.COMMIT:
            committed.extend(values)
        else:
            aborted.append((AbortedTransaction(producer_id=producer, first_offset=first), end))
        put(
            bytes(
                encode_end_marker_batch(
                    EndMarker(kind, 0),
                    producer_id=producer,
                    producer_epoch=0,
                    timestamp_ms=1,
                    base_offset=end,
                )
            ),
            1,
        )

    for number in range(draw(st.integers(1, 20))):
        producer = draw(st.integers(0, 3))
        kind = draw(st.sampled_from(["write", "write", "commit", "abort"]))
        if kind == "write":
            values = [(end + each, b"%d.%d" % (number, each)) for each in range(draw(st.integers(1, 3)))]
            every += values
            if producer:
                open_transactions.setdefault(producer, (end, []))[1].extend(values)
            else:
                committed += values
            records = [Record(value, timestamp_ms=1) for _, value in values]
            put(
                bytes(
                    encode_batch(
                        records,
                        base_offset=end,
                        producer_id=producer,
                        producer_epoch=0,
                        base_sequence=0,
                        is_transactional=producer > 0,
                    )
                ),
                len(values),
            )
        elif producer in open_transactions:
            finish(producer, ControlType.COMMIT if kind == "commit" else ControlType.ABORT)
    for producer in list(open_transactions):
        finish(producer, ControlType.COMMIT)
    return Story(data, starts, every, sorted(committed), aborted, end)


@settings(max_examples=100, deadline=None)
@given(stories(), st.data())
def test_read_in_any_pieces_a_log_gives_every_record_that_counts_once(
    story: Story, data: st.DataObject
) -> None:
    """A broker sends from the batch of the offset on, cut anywhere, and tells what was aborted."""
    for isolation, expected in ((0, story.all_values), (1, story.committed)):
        seen: list[tuple[int, bytes]] = []
        offset = 0
        while offset < story.end:
            first = max(at for at in story.starts[:-1] if base_of(story, at) <= offset)
            whole = story.starts[story.starts.index(first) + 1]
            window = story.data[first : data.draw(st.integers(whole, len(story.data)))]
            aborted = [each for each, marker in story.aborted if isolation and marker >= offset]
            records, following = records_of(window, offset, aborted)
            assert following > offset
            seen += [(record.offset, record.value or b"") for record in records]
            offset = following
        assert seen == expected


@settings(max_examples=100, deadline=None)
@given(stories(), st.booleans(), st.booleans(), st.data())
def test_asked_for_before_the_last_is_opened_a_log_gives_every_record_that_counts_once(
    story: Story, committed_only: bool, makes_rows: bool, data: st.DataObject
) -> None:
    """Pieces come hurt now and then; what was asked for from behind those is for nobody."""
    asking = Fetcher(FetchOptions(isolation=Isolation(committed_only)))
    asking.makes_rows = makes_rows
    asking.assign({HERE: 0})
    seen: list[tuple[int, bytes]] = []
    hurts = data.draw(st.integers(0, 3))
    prepared = asking.prepare([HERE], view())
    while asking.positions[HERE] < story.end:
        offset = prepared.offsets[HERE]
        first = max(at for at in story.starts[:-1] if base_of(story, at) <= offset)
        whole = story.starts[story.starts.index(first) + 1]
        window = bytearray(story.data[first : data.draw(st.integers(whole, len(story.data)))])
        if hurts and data.draw(st.booleans()):
            hurts -= 1
            places = [at - first for at in story.starts if 0 <= at - first < len(window) - CHECKED_AT]
            window[data.draw(st.sampled_from(places)) + CHECKED_AT] ^= 1
        told_of = told(0, bytes(window))
        told_of.aborted_transactions = [each for each, marker in story.aborted if marker >= offset]
        arrived, _ = asking.take(prepared, response(told_of))
        prepared = asking.prepare([HERE], view())
        for each in arrived:
            with contextlib.suppress(CorruptBatchError):
                fetched = asking.open(each)
                seen += values_of(fetched)
        if asking.positions[HERE] != prepared.offsets[HERE]:
            prepared = asking.prepare([HERE], view())
    assert seen == (story.committed if committed_only else story.all_values)


def values_of(fetched: Fetched) -> list[tuple[int, bytes]]:
    if fetched.rows is None:
        return [(record.offset, record.value or b"") for record in fetched.records]
    return list(zip(fetched.rows["offset"].to_pylist(), fetched.rows["value"].to_pylist(), strict=True))


def base_of(story: Story, at: int) -> int:
    return int.from_bytes(story.data[at : at + 8], "big")
