"""The log in memory against the plainest model of one: a list, and what of it the disk has."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from distributedlog.raft import Entry, EntryKind
from distributedlog.raft.log import RaftLog


def entry(index: int, term: int, payload: bytes = b"x") -> Entry:
    return Entry(index, term, EntryKind.COMMAND, payload)


class LogModel(RuleBasedStateMachine):
    """`disk` is what the storage would hold if it did what it was told, when it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.log = RaftLog(0, 0, ())
        self.terms = [0]  # by index; the base stands for all before it
        self.base = 0
        self.disk: dict[int, int] = {}
        self.writing: tuple[int | None, tuple[Entry, ...]] | None = None
        self.term = 1

    @rule(count=st.integers(1, 4), later=st.booleans())
    def append(self, count: int, later: bool) -> None:
        self.term += later
        for _ in range(count):
            self.log.append(entry(len(self.terms), self.term))
            self.terms.append(self.term)

    @precondition(lambda self: len(self.terms) - 1 > self.base)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(self.base + 1, len(self.terms) - 1))
        self.log.truncate_from(index)
        del self.terms[index:]

    @precondition(lambda self: self.writing is None and self.log.has_unstored)
    @rule()
    def begin_write(self) -> None:
        self.writing = self.log.take_unstored()

    @precondition(lambda self: self.writing is not None)
    @rule()
    def end_write(self) -> None:
        assert self.writing is not None
        truncate_from, entries = self.writing
        if truncate_from is not None:
            self.disk = {index: term for index, term in self.disk.items() if index < truncate_from}
        assert not entries or entries[0].index == max(self.disk, default=self.base) + 1, "a hole on the disk"
        self.disk.update((written.index, written.term) for written in entries)
        self.writing = None
        self.log.stored()

    @precondition(lambda self: self.log.stable_index > self.base)
    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        self.base = data.draw(st.integers(self.base, self.log.stable_index))
        self.log.trim_to(self.base)

    @invariant()
    def agrees_with_the_model(self) -> None:
        assert self.log.last_index == len(self.terms) - 1
        assert self.log.last_term == self.terms[-1]
        for index in range(self.base, len(self.terms)):
            assert self.log.term_at(index) == self.terms[index]
        assert self.log.term_at(len(self.terms)) is None
        assert self.base == 0 or self.log.term_at(self.base - 1) is None

    @invariant()
    def what_is_called_stable_is_on_the_disk(self) -> None:
        assert self.log.stable_index <= self.log.last_index
        for index in range(self.base + 1, self.log.stable_index + 1):
            assert self.disk.get(index) == self.terms[index]


TestLogModel = LogModel.TestCase
TestLogModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_slice_holds_at_least_one_entry_and_else_what_fits() -> None:
    log = RaftLog(0, 0, [entry(i, 1, bytes(10)) for i in range(1, 6)])
    assert [e.index for e in log.slice(2, 100, 25)] == [2, 3]
    assert [e.index for e in log.slice(2, 100, 1)] == [2]
    assert [e.index for e in log.slice(2, 3, 1000)] == [2, 3, 4]
    assert log.slice(6, 100, 1000) == ()


def test_the_last_place_of_agreement_is_found_by_term() -> None:
    log = RaftLog(3, 1, [entry(4, 1), entry(5, 2), entry(6, 4), entry(7, 4)])
    assert log.last_agreeing(7, 4) == (7, 4)
    assert log.last_agreeing(100, 3) == (5, 2)
    assert log.last_agreeing(6, 1) == (4, 1)
    assert log.last_agreeing(6, 0) == (2, 0), "even what was trimmed is of a later term: not here"


def test_nothing_is_stable_after_a_reset_until_a_later_write_is_done() -> None:
    log = RaftLog(0, 0, ())
    log.append(entry(1, 1))
    log.take_unstored()
    log.reset(10, 3)
    log.stored()  # the write that was under way when the snapshot came
    assert log.stable_index == 0
    log.append(entry(11, 3))
    assert log.take_unstored() == (None, (entry(11, 3),))
    log.stored()
    assert log.stable_index == 11
