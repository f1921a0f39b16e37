"""The epochs of what was read: which one a position is of, and what a leader's answer says of it."""

from hypothesis import given
from hypothesis import strategies as st

from distributedlog.client.positions.epochs import (
    NO_EPOCH,
    RUNS_MAX,
    EpochBook,
    LeaderEpochs,
    Truncation,
    truncation_of,
)


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 1)), max_size=RUNS_MAX))
def test_each_offset_is_of_the_epoch_of_the_record_before_it(steps: list[tuple[int, int]]) -> None:
    epochs: list[int] = []
    found, epoch = LeaderEpochs(), 0
    for records, rise in steps:
        epoch += rise
        found.add(len(epochs), epoch)
        epochs += [epoch] * records
    assert found.before(0) == NO_EPOCH
    assert [found.before(offset + 1) for offset in range(len(epochs))] == epochs


def test_what_is_read_again_replaces_what_was_read() -> None:
    found = LeaderEpochs()
    for first, epoch in ((0, 1), (10, 2), (5, 3)):
        found.add(first, epoch)
    assert [found.before(offset) for offset in (5, 6, 20)] == [1, 3, 3]
    for number in range(100):
        found.add(20 + number, 4 + number)
    assert found.before(5) == NO_EPOCH, "only so many are remembered"


def test_what_the_answer_says() -> None:
    assert truncation_of(10, 3, 10) is None
    assert truncation_of(10, 3, 12) is None
    assert truncation_of(10, 2, 7) == Truncation(7, 2)
    assert truncation_of(10, -1, -1) == Truncation(None)


def test_a_position_is_held_against_each_new_leader_once() -> None:
    book = EpochBook()
    book.moved("p", 10)
    assert not book.must_validate("p", 10, 4), "nothing is known of what is before it"
    book.read("p", 10, 4)
    assert not book.must_validate("p", 12, 4)
    assert book.must_validate("p", 12, 6)
    book.validated("p", 6)
    assert not book.must_validate("p", 12, 6)
    assert book.must_validate("p", 12, 7)
    assert not book.must_validate("p", 12, NO_EPOCH), "the broker tells no epochs"
    book.moved("p", 12, 5)
    assert book.epoch_before("p", 12) == 5
    assert book.must_validate("p", 12, 7), "a committed position is held against the log, too"
    assert not EpochBook().must_validate("q", 1, 3)
    book.moved("p", 12, 7)
    assert not book.must_validate("p", 12, 7), "the leader has written it itself"
