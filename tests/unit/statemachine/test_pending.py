"""What is held of open transactions, against what a reader of the whole log would say."""

from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from distributedlog.statemachine import PendingTransactions, Producer, TransactionEnd

Put = tuple[str, int]


def pending() -> PendingTransactions[Put]:
    return PendingTransactions(lambda record: record[0])


def committed(producer: Producer) -> TransactionEnd:
    return TransactionEnd(producer, is_commit=True)


FIRST, SECOND = Producer(1, 0), Producer(2, 0)


def test_records_come_out_with_their_commit_and_not_with_their_abort() -> None:
    held = pending()
    held.hold([("a", 1)], FIRST)
    held.hold([("b", 2)], SECOND)
    held.hold([("c", 3)], FIRST)
    assert sorted(held.records()) == [("a", 1), ("b", 2), ("c", 3)]
    assert held.end(TransactionEnd(SECOND, is_commit=False)) == ()
    assert held.end(committed(FIRST)) == [("a", 1), ("c", 3)]
    assert len(held) == 0


def test_a_marker_of_a_producer_that_holds_nothing_does_nothing() -> None:
    held = pending()
    held.hold([("a", 1)], FIRST)
    assert held.end(committed(SECOND)) == ()
    assert held.end(committed(FIRST)) == [("a", 1)]
    assert held.end(committed(FIRST)) == (), "nor does one that comes twice"


def test_a_higher_epoch_ends_what_a_lower_one_began_and_a_lower_one_ends_nothing_of_a_higher() -> None:
    held = pending()
    held.hold([("a", 1)], Producer(1, 4))
    assert held.end(committed(Producer(1, 3))) == ()
    assert list(held.records()) == [("a", 1)]
    assert held.end(committed(Producer(1, 5))) == [("a", 1)]


def test_of_one_key_the_last_of_a_transaction_counts_and_stands_last() -> None:
    held = pending()
    held.hold([("a", 1), ("b", 1), ("a", 2)], FIRST)
    assert held.end(committed(FIRST)) == [("b", 1), ("a", 2)]


def test_what_was_written_later_is_not_replaced_by_what_is_committed_later() -> None:
    held = pending()
    held.hold([("a", 1), ("b", 1)], FIRST)
    held.supersede([("a", 7)])
    held.hold([("b", 2)], SECOND)
    assert held.end(committed(SECOND)) == [("b", 2)]
    assert held.end(committed(FIRST)) == []


KEYS = st.sampled_from("ab")
PRODUCERS = st.integers(1, 2)
ENTRIES = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS),
        st.tuples(st.just("held"), KEYS, PRODUCERS),
        st.tuples(st.just("end"), PRODUCERS, st.booleans()),
    ),
    max_size=12,
)


@given(ENTRIES)
def test_the_state_is_what_compaction_would_leave(entries: list[tuple[Any, ...]]) -> None:
    """Checks the last record of each key in the log that is committed: whoever reads the rest later must
    agree."""
    is_committed, fate = {}, dict.fromkeys((1, 2), False)
    for offset, (kind, *what) in reversed(list(enumerate(entries))):
        if kind == "end":
            fate[what[0]] = what[1]
        is_committed[offset] = kind == "put" or (kind == "held" and fate[what[1]])
    held, state, kept = pending(), {}, {}
    for offset, (kind, *what) in enumerate(entries):
        if kind == "put":
            held.supersede([(what[0], offset)])
            state[what[0]] = offset
        elif kind == "held":
            held.hold([(what[0], offset)], Producer(what[1], 0))
        else:
            state.update(held.end(TransactionEnd(Producer(what[0], 0), is_commit=what[1])))
        if is_committed[offset]:
            kept[what[0]] = offset
    assert state == kept
