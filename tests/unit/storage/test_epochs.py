import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.storage.epochs import EpochEntry, EpochHistory


def history(*entries: tuple[int, int]) -> EpochHistory:
    return EpochHistory(EpochEntry(*entry) for entry in entries)


def has_changed(epochs: EpochHistory) -> bool:
    return epochs.changed


def test_a_new_history_knows_nothing() -> None:
    empty = EpochHistory()
    assert empty.latest_epoch == -1
    assert empty.entries == []
    assert empty.epoch_for_offset(0) is None
    assert empty.end_offset_for(0, 10) == (-1, -1)
    assert not has_changed(empty)


def test_epochs_are_assigned_once() -> None:
    epochs = history((1, 10))
    epochs.assign(1, 10)
    epochs.assign(1, 15)
    assert not has_changed(epochs)
    epochs.assign(2, 20)
    assert has_changed(epochs)
    assert epochs.entries == [(1, 10), (2, 20)]
    assert epochs.latest_epoch == 2


def test_an_epoch_that_wrote_nothing_is_replaced_by_the_next_at_its_offset() -> None:
    epochs = history((1, 10), (2, 20))
    epochs.assign(3, 20)
    assert epochs.entries == [(1, 10), (3, 20)]


def test_entries_that_contradict_a_new_one_go() -> None:
    later_epochs = history((1, 10), (5, 20), (7, 30))
    later_epochs.assign(4, 40)
    assert later_epochs.entries == [(1, 10), (4, 40)]
    later_offsets = history((1, 10), (2, 20), (3, 30))
    later_offsets.assign(4, 15)
    assert later_offsets.entries == [(1, 10), (4, 15)]
    same_epoch_later = history((1, 10), (2, 20))
    same_epoch_later.assign(1, 15)
    assert same_epoch_later.entries == [(1, 15)]
    same_epoch_earlier = history((1, 10), (2, 20))
    same_epoch_earlier.assign(2, 5)
    assert same_epoch_earlier.entries == [(2, 5)]


def test_no_epoch_and_no_offset_cannot_be_assigned() -> None:
    with pytest.raises(ValueError, match="negative"):
        history().assign(-1, 0)
    with pytest.raises(ValueError, match="negative"):
        history().assign(0, -1)


@pytest.mark.parametrize(
    ("requested", "answer"),
    [
        (7, (7, 100)),  # the latest: the log's end
        (5, (5, 30)),  # ends where the next begins
        (6, (5, 30)),  # not there: the largest below
        (4, (2, 20)),
        (1, (1, 10)),  # before the first: its records are gone
        (0, (0, 10)),
        (8, (-1, -1)),  # from a future that we do not know
        (-1, (-1, -1)),
    ],
)
def test_the_end_of_an_epoch_is_told_as_kafka_tells_it(requested: int, answer: tuple[int, int]) -> None:
    assert history((2, 10), (5, 20), (7, 30)).end_offset_for(requested, 100) == answer


def test_an_offset_belongs_to_the_epoch_that_began_last_before_it() -> None:
    epochs = history((2, 10), (5, 20))
    assert [epochs.epoch_for_offset(offset) for offset in (9, 10, 19, 20, 1000)] == [None, 2, 2, 5, 5]


def test_cutting_the_end_forgets_epochs_that_begin_there_or_later() -> None:
    epochs = history((2, 10), (5, 20), (7, 30))
    epochs.truncate_from_end(31)
    assert not has_changed(epochs)
    epochs.truncate_from_end(20)
    assert has_changed(epochs)
    assert epochs.entries == [(2, 10)]
    epochs.truncate_from_end(0)
    assert epochs.entries == []


def test_cutting_the_start_keeps_the_epoch_that_covers_it() -> None:
    epochs = history((2, 10), (5, 20), (7, 30))
    epochs.truncate_from_start(10)
    epochs.truncate_from_start(3)
    assert not has_changed(epochs)
    epochs.truncate_from_start(25)
    assert has_changed(epochs)
    assert epochs.entries == [(5, 25), (7, 30)]
    epochs.truncate_from_start(30)
    assert epochs.entries == [(7, 30)]
    epochs.truncate_from_start(99)
    assert epochs.entries == [(7, 99)]


def test_clearing_is_a_change_only_if_there_was_something() -> None:
    epochs = history()
    epochs.clear()
    assert not has_changed(epochs)
    epochs = history((1, 1))
    epochs.clear()
    assert has_changed(epochs)
    assert epochs.entries == []


# --- against a plain list ----------------------------------------------------------------------

Entries = list[tuple[int, int]]

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("assign"), st.integers(0, 5), st.integers(0, 15)),
        st.tuples(st.just("cut end"), st.integers(0, 15), st.just(0)),
        st.tuples(st.just("cut start"), st.integers(0, 15), st.just(0)),
    ),
    max_size=25,
)


def naive_step(entries: Entries, step: str, one: int, two: int) -> Entries:
    if step == "assign":
        if entries and entries[-1][0] == one and entries[-1][1] <= two:
            return entries
        return [entry for entry in entries if entry[0] < one and entry[1] < two] + [(one, two)]
    if step == "cut end":
        return [entry for entry in entries if entry[1] < one]
    covering = [entry for entry in entries if entry[1] <= one]
    moved = [(covering[-1][0], one)] if covering else []
    return moved + [entry for entry in entries if entry[1] > one]


def naive_end(entries: Entries, requested: int, log_end: int) -> tuple[int, int]:
    higher = [entry for entry in entries if entry[0] > requested]
    floor = [entry for entry in entries if entry[0] <= requested]
    if requested < 0 or (not higher and (not floor or floor[-1][0] != requested)):
        return (-1, -1)
    return (floor[-1][0] if floor else requested, higher[0][1] if higher else log_end)


@settings(max_examples=100, deadline=None)
@given(STEPS)
def test_a_history_is_what_a_plain_list_would_be(steps: list[tuple[str, int, int]]) -> None:
    epochs, entries = EpochHistory(), list[tuple[int, int]]()
    for step, one, two in steps:
        before = entries
        entries = naive_step(entries, step, one, two)
        epochs.changed = False
        if step == "assign":
            epochs.assign(one, two)
        elif step == "cut end":
            epochs.truncate_from_end(one)
        else:
            epochs.truncate_from_start(one)
        assert epochs.entries == entries
        assert epochs.changed == (entries != before)
        assert entries == sorted(set(entries))
        assert len({start for _, start in entries}) == len(entries)
    for number in range(-1, 20):
        assert epochs.end_offset_for(number, 50) == naive_end(entries, number, 50)
        covering = [epoch for epoch, start in entries if start <= number]
        assert epochs.epoch_for_offset(number) == (covering[-1] if covering else None)
    assert EpochHistory(epochs.entries).entries == epochs.entries


def test_a_batch_takes_back_what_a_file_said_otherwise_of_its_offset_and_behind_it() -> None:
    epochs = EpochHistory([EpochEntry(1, 0), EpochEntry(4, 10), EpochEntry(6, 20)])
    epochs.note(1, 0)
    epochs.note(4, 12)
    assert not epochs.changed, "compaction may have removed the first batches of an epoch"
    epochs.note(4, 20)
    assert epochs.entries == [(1, 0), (4, 10)]
    epochs.note(5, 25)
    assert epochs.entries == [(1, 0), (4, 10), (5, 25)]
    assert epochs.changed_from == 20
    epochs.note(5, 22)
    assert epochs.entries == [(1, 0), (4, 10), (5, 22)], "an epoch may begin earlier than a file says"
    epochs.note(1, 30)
    assert epochs.entries == [(1, 0)], "batches of a compacted log need not begin where what was cut did"
    epochs.mark_written()
    assert not epochs.changed
