"""Lag is what a reader is still given: under transactions, after compaction, from within a batch."""

from collections.abc import Callable
from typing import NamedTuple, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.client.addresses import parse_bootstrap
from distributedlog.client.admin.group_lag import Lag, count_records, first_timestamp, measure_lag
from distributedlog.client.fetcher import records_of
from distributedlog.client.metadata import Cluster
from distributedlog.client.offset_specs import Isolation
from distributedlog.model.errors import RecordTooLargeError
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.messages.fetch import AbortedTransaction, FetchRequest, FetchResponse
from distributedlog.protocol.schema import Message
from distributedlog.records.control import ControlType, EndMarker, encode_end_marker_batch
from distributedlog.records.record import Record, encode_batch
from tests.unit.client.ledger import Ledger
from tests.unit.client.stage import QUICK, run

PLACE = TopicPartition("t", 0)


class Story(NamedTuple):
    """What stands in a log, and which of its transactions were aborted."""

    batches: list[bytearray]
    aborted: list[AbortedTransaction]
    end: int


def plain(offset: int, count: int, kept: list[int] | None = None, producer: int | None = None) -> bytearray:
    """`count` offsets, of whose records compaction has left those that are `kept`."""
    left = list(range(count)) if kept is None else kept
    return encode_batch(
        [Record(b"v", offset=offset + at, timestamp_ms=1) for at in left],
        base_offset=offset,
        preserve_offsets=True,
        last_offset_delta=count - 1,
        producer_id=-1 if producer is None else producer,
        producer_epoch=-1 if producer is None else 0,
        is_transactional=producer is not None,
    )


@st.composite
def stories(draw: st.DrawFn) -> Story:
    """Batches one after the other, of up to two producers with transactions; some compacted, some aborted."""
    batches: list[bytearray] = []
    aborted: list[AbortedTransaction] = []
    open_since: dict[int, int] = {}
    offset = draw(st.integers(0, 3))
    for _ in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(["data", "compacted", "in transaction", "commit", "abort"]))
        if kind in ("commit", "abort"):
            if not open_since:
                continue
            producer = draw(st.sampled_from(sorted(open_since)))
            first = open_since.pop(producer)
            if kind == "abort":
                aborted.append(AbortedTransaction(producer_id=producer, first_offset=first))
            marker = EndMarker(ControlType.ABORT if kind == "abort" else ControlType.COMMIT, 0)
            batches.append(
                encode_end_marker_batch(
                    marker, producer_id=producer, producer_epoch=0, timestamp_ms=1, base_offset=offset
                )
            )
            offset += 1
            continue
        count = draw(st.integers(1, 5))
        if kind == "data":
            batches.append(plain(offset, count))
        elif kind == "compacted":
            kept = draw(st.lists(st.integers(0, count - 1), unique=True, min_size=1).map(sorted))
            batches.append(plain(offset, count, kept))
        else:
            producer = draw(st.sampled_from([7, 8]))
            open_since.setdefault(producer, offset)
            batches.append(plain(offset, count, producer=producer))
        offset += count + draw(st.sampled_from([0, 0, 3]))  # a batch that compaction has removed
    return Story(batches, aborted, offset)


@settings(max_examples=100, deadline=None)
@given(stories(), st.integers(0, 40), st.booleans())
def test_what_is_counted_is_what_a_reader_is_given(story: Story, offset: int, committed_only: bool) -> None:
    data = b"".join(story.batches)
    aborted = story.aborted if committed_only else []
    records, next_offset = records_of(data, offset, aborted)
    assert count_records(data, offset, aborted) == (len(records), next_offset)


def test_what_was_written_after_the_end_was_asked_for_does_not_count() -> None:
    assert count_records(plain(0, 3) + plain(3, 4), 1, (), 3) == (2, 3)


def test_a_batch_that_did_not_come_whole_is_an_error_if_it_is_the_first_and_else_left_for_later() -> None:
    whole, cut = plain(0, 3), bytes(plain(3, 3))[:-1]
    assert count_records(whole + cut, 0) == (3, 3)
    with pytest.raises(RecordTooLargeError):
        count_records(cut, 3)


# --- asking brokers ----------------------------------------------------------------------------


def asked(
    ledger: Ledger,
    position: int | None,
    *,
    bytes_max: int = 1_000_000,
    isolation: Isolation = Isolation.READ_COMMITTED,
    change: Callable[[FetchRequest, FetchResponse], Message] | None = None,
) -> Lag:
    broker = ledger.broker()
    if change is not None:
        fetch, changed = ledger.fetch, change
        broker.answers[ApiKey.FETCH] = lambda request, version: changed(request, fetch(request, version))
    with broker.running():

        async def ask() -> Lag:
            async with Cluster(parse_bootstrap(broker.bootstrap), QUICK) as cluster:
                found = await measure_lag(
                    cluster, {PLACE: position}, isolation=isolation, counted_bytes_max=bytes_max
                )
                return found[PLACE]

        return run(ask())


def ledger_of(*batches: bytearray, start: int = 0) -> Ledger:
    return Ledger({"t": 1}, logs={PLACE: list(batches)}, start_offsets={PLACE: start})


@pytest.mark.parametrize(
    ("position", "records"),
    [(None, None), (0, 6), (2, 6), (5, 4), (10, 1), (11, 0), (50, 0)],
    ids=[
        "nowhere",
        "before the start",
        "at the start",
        "within a batch",
        "in the last",
        "at the end",
        "beyond",
    ],
)
def test_where_a_group_stands_decides_what_is_left(position: int | None, records: int | None) -> None:
    # 2 and 3 | 5 and 6 of what was 4 to 7 | 9 of what was 8 and 9 | 10
    ledger = ledger_of(plain(2, 2), plain(4, 4, [1, 2]), plain(8, 2, [1]), plain(10, 1), start=2)
    found = asked(ledger, position)
    assert found == Lag(PLACE, position, 2, 11, records, oldest_ms=1 if records else None)


def test_markers_and_aborted_records_are_not_left_to_read() -> None:
    marker = EndMarker(ControlType.ABORT, 0)
    ending = encode_end_marker_batch(marker, producer_id=7, producer_epoch=0, timestamp_ms=1, base_offset=5)
    ledger = ledger_of(plain(0, 2), plain(2, 3, producer=7), ending, plain(6, 1))

    def tell(request: FetchRequest, response: FetchResponse) -> Message:
        if request.isolation_level == Isolation.READ_COMMITTED:
            for topic in response.responses:
                topic.partitions[0].aborted_transactions = [AbortedTransaction(producer_id=7, first_offset=2)]
        return response

    assert asked(ledger, 0, change=tell).records == 3
    uncommitted = asked(ledger, 0, change=tell, isolation=Isolation.READ_UNCOMMITTED)
    assert uncommitted.records == 6


def test_what_is_too_much_to_look_at_is_taken_for_a_record_each_offset() -> None:
    batches = [plain(at * 10, 10, [0]) for at in range(5)]

    def one_at_a_time(request: FetchRequest, response: FetchResponse) -> Message:
        told = response.responses[0].partitions[0]
        told.records = bytes(cast(bytes, told.records or b""))[: len(batches[0])]
        return response

    enough = 2 * len(batches[0])
    bounded = asked(ledger_of(*batches), 0, change=one_at_a_time, bytes_max=enough)
    assert (bounded.records, bounded.is_exact) == (2 + 30, False)
    whole = asked(ledger_of(*batches), 0, change=one_at_a_time)
    assert (whole.records, whole.is_exact) == (5, True)
    unseen = asked(ledger_of(*batches), 7, bytes_max=0)
    assert (unseen.records, unseen.is_exact) == (43, False)


def test_a_partition_that_found_an_answer_full_is_asked_for_again() -> None:
    places = [TopicPartition("t", at) for at in range(3)]
    ledger = Ledger({"t": 3}, logs={place: [plain(0, 4)] for place in places})
    broker, fetch = ledger.broker(), ledger.fetch

    def only_the_first(request: FetchRequest, version: int) -> Message:
        response = fetch(request, version)
        for told in response.responses[0].partitions[1:]:
            told.records = b""
        return response

    broker.answers[ApiKey.FETCH] = only_the_first
    with broker.running():

        async def ask() -> dict[TopicPartition, Lag]:
            async with Cluster(parse_bootstrap(broker.bootstrap), QUICK) as cluster:
                return await measure_lag(cluster, dict.fromkeys(places, 1))

        assert [each.records for each in run(ask()).values()] == [3, 3, 3]


def test_offsets_at_the_end_that_compaction_has_emptied_are_no_records() -> None:
    ledger = ledger_of(plain(0, 2))
    ledger.end = lambda partition: 9  # type: ignore[method-assign]
    assert asked(ledger, 0).records == 2


def test_a_leader_that_moved_is_looked_for_again() -> None:
    refusals = [6, 0]

    def moved(request: FetchRequest, response: FetchResponse) -> Message:
        told = response.responses[0].partitions[0]
        told.error_code = refusals.pop(0)
        if told.error_code:
            told.records = None
        return response

    assert asked(ledger_of(plain(0, 4)), 1, change=moved).records == 3
    assert refusals == []


def test_what_came_hurt_is_counted_once_it_comes_whole() -> None:
    hurts = [True, False]

    def hurt(_request: FetchRequest, response: FetchResponse) -> Message:
        told = response.responses[0].partitions[0]
        data = bytearray(cast(bytes, told.records))
        if hurts.pop(0):
            data[-1] ^= 1
        told.records = bytes(data)
        return response

    assert asked(ledger_of(plain(0, 4)), 1, change=hurt).records == 3
    assert hurts == []


# --- how long it has been waiting --------------------------------------------------------------


def timed(offset: int, *timestamps_ms: int, producer: int | None = None) -> bytearray:
    return encode_batch(
        [Record(b"v", offset=offset + at, timestamp_ms=when) for at, when in enumerate(timestamps_ms)],
        base_offset=offset,
        preserve_offsets=True,
        producer_id=-1 if producer is None else producer,
        producer_epoch=-1 if producer is None else 0,
        is_transactional=producer is not None,
    )


def test_the_first_record_that_is_left_says_how_long_it_waits() -> None:
    ledger = ledger_of(timed(0, 1_000, 2_000, 3_000), timed(3, 9_000))
    assert [asked(ledger, at).oldest_ms for at in (0, 1, 2, 3, 4)] == [1_000, 2_000, 3_000, 9_000, None]
    assert asked(ledger, 1, bytes_max=1).oldest_ms == 2_000, "one look is enough"
    assert asked(ledger, 1, bytes_max=0).oldest_ms is None, "none is not"


def test_of_aborted_records_nobody_waits() -> None:
    data = timed(0, 1_000, producer=7) + timed(1, 5_000)
    aborted = [AbortedTransaction(producer_id=7, first_offset=0)]
    assert first_timestamp(data, 0, aborted) == 5_000
    assert first_timestamp(data, 0) == 1_000
    assert first_timestamp(data, 2) == -1
    assert first_timestamp(b"", 0) == -1


def test_seconds_are_known_or_nothing_is_left_or_unknown() -> None:
    assert Lag(PLACE, 0, 0, 5, 5, oldest_ms=4_000).seconds_at(9_500) == 5.5
    assert Lag(PLACE, 0, 0, 5, 5, oldest_ms=4_000).seconds_at(3_000) == 0.0, "a clock that is ahead"
    assert Lag(PLACE, 5, 0, 5, 0).seconds_at(9_500) == 0.0
    assert Lag(PLACE, 0, 0, 5, 5, is_exact=False).seconds_at(9_500) is None
    assert Lag(PLACE, None, 0, 5, None).seconds_at(9_500) is None
