"""Fetch sessions: by example, and a client and a broker that talk at random and must agree."""

from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.broker.replicas.fetch_sessions import (
    CONSUMER_ID,
    EVICTION_MS,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchContext,
    FetchSessionCache,
    FetchSpec,
    PartitionSummary,
    SessionOutcome,
    SessionTraits,
    next_epoch,
)
from distributedlog.broker.replicas.idle_partitions import PartitionKey
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import Uuid
from tests.simulation.clock import SeededRandomness

A, B, C = ("a", 0), ("b", 0), ("c", 0)
WANTED = FetchSpec(0, 1000)
FOLLOWER = 7
QUIET = PartitionSummary(0, 10, 0)


def a_cache(slots: int = 10) -> FetchSessionCache:
    return FetchSessionCache(slots, randomness=SeededRandomness(1))


def begin(
    cache: FetchSessionCache,
    session_id: int,
    epoch: int,
    *keys: PartitionKey,
    forgotten: tuple[PartitionKey, ...] = (),
    now_ms: int = 0,
    is_follower: bool = False,
    uses_topic_ids: bool = False,
) -> FetchContext:
    return cache.begin(
        session_id,
        epoch,
        partitions=dict.fromkeys(keys, WANTED),
        forgotten=forgotten,
        traits=SessionTraits(uses_topic_ids, FOLLOWER if is_follower else CONSUMER_ID),
        now_ms=now_ms,
    )


def finish(
    context: FetchContext, answers: Mapping[PartitionKey, PartitionSummary] | None = None
) -> SessionOutcome:
    given_answers = answers or {}
    return context.finish([(key, given_answers.get(key, QUIET)) for key in context.partitions])


def open_session(
    cache: FetchSessionCache, *keys: PartitionKey, now_ms: int = 0, is_follower: bool = False
) -> int:
    return finish(
        begin(cache, NO_SESSION, INITIAL_EPOCH, *keys, now_ms=now_ms, is_follower=is_follower)
    ).session_id


def test_what_is_too_long_for_a_name_is_not_kept() -> None:
    cache = a_cache()
    endless = ("x" * 250, 0)
    assert open_session(cache, A, endless) == NO_SESSION
    session = open_session(cache, A, ("x" * 249, 0))
    assert session != NO_SESSION
    assert finish(begin(cache, session, 1, endless)).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(cache) == 0


def test_sessions_hold_a_bounded_number_of_partitions_in_all() -> None:
    cache = FetchSessionCache(10, randomness=SeededRandomness(1), partitions_max=3)
    first = open_session(cache, A, B)
    assert open_session(cache, A, B) == NO_SESSION
    second = open_session(cache, C)
    assert second != NO_SESSION
    grown = begin(cache, first, 1, A, B, C)
    assert finish(grown).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert finish(begin(cache, first, 2)).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert finish(begin(cache, second, 1)).error == ErrorCode.NONE, "who does not grow is left alone"
    assert open_session(cache, A, B) != NO_SESSION


def test_a_fetch_without_a_session_is_answered_whole_and_remembered_nowhere() -> None:
    cache = a_cache()
    outcome = finish(begin(cache, NO_SESSION, FINAL_EPOCH, A, B))
    assert outcome == SessionOutcome(ErrorCode.NONE, NO_SESSION, [A, B])
    assert len(cache) == 0


def test_a_session_is_told_only_what_is_new() -> None:
    cache = a_cache()
    session = open_session(cache, A, B)
    assert session > 0
    context = begin(cache, session, 1)
    assert list(context.partitions) == [A, B]
    assert finish(context).keys == []
    assert finish(begin(cache, session, 2), {A: PartitionSummary(0, 11, 0)}).keys == [A]
    assert finish(begin(cache, session, 3), {A: PartitionSummary(0, 11, 0)}).keys == []
    assert finish(
        begin(cache, session, 4), {A: PartitionSummary(0, 11, 0), B: PartitionSummary(0, 10, 5)}
    ).keys == [B]
    pressing = PartitionSummary(0, 11, 0, is_pressing=True)
    assert finish(begin(cache, session, 5), {A: pressing, B: PartitionSummary(0, 10, 5)}).keys == [A]


def test_an_error_is_told_each_time_and_so_is_that_it_is_over() -> None:
    cache = a_cache()
    session = open_session(cache, A)
    wrong = PartitionSummary(0, -1, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert finish(begin(cache, session, 1), {A: wrong}).keys == [A]
    assert finish(begin(cache, session, 2), {A: wrong}).keys == [A]
    assert finish(begin(cache, session, 3)).keys == [A]
    assert finish(begin(cache, session, 4)).keys == []
    wrong_yet_known = PartitionSummary(0, 10, 0, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert finish(begin(cache, session, 5), {A: wrong_yet_known}).keys == [A]
    assert finish(begin(cache, session, 6)).keys == [A], "nothing but the error has changed"


def test_partitions_are_added_changed_and_forgotten() -> None:
    cache = a_cache()
    session = open_session(cache, A, B)
    context = cache.begin(
        session,
        1,
        partitions={B: FetchSpec(77, 5), C: WANTED},
        forgotten=[A],
        traits=SessionTraits(uses_topic_ids=False),
        now_ms=0,
    )
    assert context.partitions == {B: FetchSpec(77, 5), C: WANTED}
    assert finish(context).keys == [C]


def test_who_returned_records_is_read_last_the_next_time() -> None:
    cache = a_cache()
    session = open_session(cache, A, B, C)
    finish(begin(cache, session, 1), {A: PartitionSummary(100, 10, 0)})
    assert list(begin(cache, session, 2).partitions) == [B, C, A]


def test_a_wrong_epoch_or_id_or_kind_of_name_makes_the_client_start_over() -> None:
    cache = a_cache()
    session = open_session(cache, A)
    assert begin(cache, session + 1, 1).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert begin(cache, session, 2).error == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    by_id = begin(cache, session, 1, uses_topic_ids=True)
    assert by_id.error == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert finish(by_id) == SessionOutcome(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, NO_SESSION, [])
    assert begin(cache, session, 1).error == ErrorCode.NONE
    assert begin(cache, session, 1).error == ErrorCode.INVALID_FETCH_SESSION_EPOCH, "a request sent twice"


def test_a_session_of_topic_ids_has_them_for_keys() -> None:
    cache = a_cache()
    key = (Uuid(b"a" * 16), 3)
    outcome = finish(begin(cache, NO_SESSION, INITIAL_EPOCH, key, uses_topic_ids=True))
    context = begin(cache, outcome.session_id, 1, uses_topic_ids=True)
    assert list(context.partitions) == [key]


def test_an_answer_that_was_overtaken_by_the_next_request_is_an_error() -> None:
    cache = a_cache()
    session = open_session(cache, A)
    slow = begin(cache, session, 1)
    begin(cache, session, 2)
    assert finish(slow).error == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_full_fetch_ends_the_old_session() -> None:
    cache = a_cache()
    session = open_session(cache, A)
    fresh = finish(begin(cache, session, INITIAL_EPOCH, A, B)).session_id
    assert fresh not in (NO_SESSION, session)
    assert cache.get(session) is None
    finish(begin(cache, fresh, FINAL_EPOCH, A))
    assert len(cache) == 0


def test_a_session_that_forgets_all_its_partitions_is_over() -> None:
    cache = a_cache()
    session = open_session(cache, A)
    outcome = finish(begin(cache, session, 1, forgotten=(A,)))
    assert outcome == SessionOutcome(ErrorCode.NONE, NO_SESSION, [])
    assert len(cache) == 0


def test_epochs_begin_again_after_the_largest() -> None:
    assert next_epoch(INITIAL_EPOCH) == 1
    assert next_epoch(2**31 - 1) == 1
    assert next_epoch(FINAL_EPOCH) == FINAL_EPOCH


# --- who has a slot ----------------------------------------------------------------------------


def test_without_a_free_slot_a_client_goes_on_without_a_session() -> None:
    cache = a_cache(slots=1)
    assert open_session(cache, A) > 0
    outcome = finish(begin(cache, NO_SESSION, INITIAL_EPOCH, A, B))
    assert outcome == SessionOutcome(ErrorCode.NONE, NO_SESSION, [A, B])
    assert open_session(a_cache(slots=0), A) == NO_SESSION


def test_an_unused_session_makes_room() -> None:
    cache = a_cache(slots=2)
    old, used = open_session(cache, A), open_session(cache, B)
    finish(begin(cache, used, 1, now_ms=EVICTION_MS))
    assert open_session(cache, C, now_ms=EVICTION_MS) == NO_SESSION
    assert open_session(cache, C, now_ms=EVICTION_MS + 1) > 0
    assert cache.get(old) is None
    assert cache.get(used) is not None
    assert cache.evictions == 1


def test_a_larger_session_takes_the_place_of_a_smaller_one_that_has_been_there_a_while() -> None:
    cache = a_cache(slots=1)
    session = open_session(cache, A, B)
    later = EVICTION_MS + 1
    assert open_session(cache, A, B, C, now_ms=later // 2) == NO_SESSION, "it is too young"
    finish(begin(cache, session, 1, now_ms=later))
    assert open_session(cache, A, now_ms=later + 1) == NO_SESSION, "it is smaller"
    assert open_session(cache, A, B, C, now_ms=later + 1) > 0
    assert cache.get(session) is None


def test_a_followers_session_takes_the_place_of_a_consumers_and_not_the_reverse() -> None:
    cache = a_cache(slots=1)
    consumer = open_session(cache, A, B, C)
    follower = open_session(cache, A, is_follower=True)
    assert follower > 0
    assert cache.get(consumer) is None
    assert open_session(cache, A, B, C) == NO_SESSION
    assert open_session(cache, A, B, C, is_follower=True) == NO_SESSION, "nor a young follower's"


def test_sessions_are_counted_with_their_partitions() -> None:
    cache = a_cache()
    open_session(cache, A, B)
    open_session(cache, A)
    assert (len(cache), cache.partition_count) == (2, 3)


# --- a client and a broker ---------------------------------------------------------------------

KEYS: list[PartitionKey] = [("t", number) for number in range(4)]
STEP = st.tuples(
    st.dictionaries(st.sampled_from(KEYS), st.integers(0, 5), max_size=3),
    st.sets(st.sampled_from(KEYS), max_size=2),
    st.dictionaries(st.sampled_from(KEYS), st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=4),
    st.sampled_from(("next", "next", "next", "restart", "lost answer", "broker restarts")),
)


@settings(max_examples=100)
@given(st.lists(STEP, max_size=25))
def test_a_client_with_a_session_knows_what_one_without_would_know(
    steps: list[tuple[dict[PartitionKey, int], set[PartitionKey], dict[PartitionKey, tuple[int, int]], str]],
) -> None:
    cache = a_cache()
    session, epoch = NO_SESSION, INITIAL_EPOCH
    reads: dict[PartitionKey, FetchSpec] = {}
    truth: dict[PartitionKey, int] = {}
    known: dict[PartitionKey, int] = {}
    for positions, gone, came, event in steps:
        if event == "broker restarts":
            cache = a_cache()
        if event == "restart":
            epoch = INITIAL_EPOCH
        added = {key: FetchSpec(offset, 100) for key, offset in positions.items() if key not in gone}
        dropped = [key for key in gone if key in reads]
        reads = {key: wanted for key, wanted in {**reads, **added}.items() if key not in gone}
        is_full = epoch == INITIAL_EPOCH
        context = cache.begin(
            session,
            epoch,
            partitions=reads if is_full else added,
            forgotten=[] if is_full else dropped,
            traits=SessionTraits(uses_topic_ids=False),
            now_ms=0,
        )
        truth |= {key: mark for key, (_, mark) in came.items()}
        answers = {
            key: PartitionSummary(came.get(key, (0, 0))[0], truth.get(key, 0), 0)
            for key in context.partitions
        }
        outcome = context.finish(answers.items())
        if context.error == ErrorCode.NONE:
            assert dict(context.partitions) == reads
        if event == "lost answer":
            continue
        if outcome.error != ErrorCode.NONE:
            session, epoch = NO_SESSION, INITIAL_EPOCH
            continue
        if is_full:
            known = {}
        known = {key: mark for key, mark in known.items() if key in reads}
        known |= {key: answers[key].high_watermark for key in outcome.keys}
        assert known == {key: truth.get(key, 0) for key in reads}
        assert all(key in outcome.keys for key, answer in answers.items() if answer.records_bytes)
        session = outcome.session_id
        epoch = INITIAL_EPOCH if session == NO_SESSION else next_epoch(epoch)
