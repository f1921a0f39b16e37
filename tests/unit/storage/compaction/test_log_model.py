"""Random histories, compacted at random times and cut off at random steps, against what was written."""

import os
from contextlib import suppress
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.records.record import Record
from tests.simulation.disk import PowerCut
from tests.simulation.inodes import CrashMode
from tests.unit.storage.compaction.keyed_log import DIRECTORY, KeyedLog
from tests.unit.storage.compaction.keyed_log import settings as log_settings

EXAMPLES = 10_000 if os.environ.get("DLOG_SOAK") == "1" else 100
KEYS = [b"a", b"b", b"c", b"d", b"k" * 40]
PRODUCERS = [1, 2, 3]
DAY_MS = 86_400_000


@dataclass
class Written:
    """A record that was written, and whose it is: None, or the transaction that decides."""

    offset: int
    key: bytes
    value: bytes | None
    transaction: tuple[int, int] | None


@dataclass
class Model:
    """The history itself: nothing is ever removed from it."""

    written: list[Written] = field(default_factory=list)
    open: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Producer → its open transaction, named by its first offset."""
    committed: set[tuple[int, int]] = field(default_factory=set)

    def visible(self, end_offset: int) -> list[Written]:
        return [
            one
            for one in self.written
            if one.offset < end_offset and (one.transaction is None or one.transaction in self.committed)
        ]

    def table(self, end_offset: int) -> dict[bytes, bytes]:
        newest = {one.key: one.value for one in self.visible(end_offset)}
        return {key: value for key, value in newest.items() if value is not None}

    def last_stable_offset(self, end_offset: int) -> int:
        return min([first for _, first in self.open.values()], default=end_offset)


pairs = st.lists(
    st.tuples(st.sampled_from(KEYS), st.sampled_from([None, b"", b"short", b"x" * 150])),
    min_size=1,
    max_size=4,
)
modes = st.sampled_from(["drop", "keep", "random"])
steps = st.one_of(
    st.tuples(st.just("put"), pairs),
    st.tuples(st.just("put"), pairs),
    st.tuples(st.just("put_as"), st.tuples(st.sampled_from(PRODUCERS), pairs)),
    st.tuples(st.just("put_as"), st.tuples(st.sampled_from(PRODUCERS), pairs)),
    st.tuples(st.sampled_from(["commit", "abort"]), st.sampled_from(PRODUCERS)),
    st.tuples(st.just("roll"), st.none()),
    st.tuples(st.just("advance"), st.sampled_from([1, 500, 1000, 5000])),
    st.tuples(st.just("compact"), st.sampled_from([1, 3, 1000])),
    st.tuples(st.just("roll_and_compact"), st.sampled_from([1, 3, 1000])),
    st.tuples(st.just("roll_and_compact"), st.just(1000)),
    st.tuples(st.just("expire"), st.none()),
    st.tuples(st.just("reopen"), st.tuples(modes, st.booleans())),
    st.tuples(st.just("crash"), st.tuples(st.integers(0, 60), modes)),
)


class Story:
    """The log and the model, doing the same."""

    def __init__(self) -> None:
        self.keyed = KeyedLog(log_settings(segment_bytes=1024))
        self.model = Model()
        self.epochs = dict.fromkeys(PRODUCERS, 0)
        self.active: set[int] = set()
        self.values = 0

    def _numbered(self, pairs: list[tuple[bytes, bytes | None]]) -> list[tuple[bytes, bytes | None]]:
        """No two values are the same, so that none can stand in for another."""
        self.values += 1
        return [(key, value if value is None else b"%d-%s" % (self.values, value)) for key, value in pairs]

    def put(self, pairs: list[tuple[bytes, bytes | None]]) -> None:
        pairs = self._numbered(pairs)
        offset = self.keyed.put(*pairs)
        for delta, (key, value) in enumerate(pairs):
            self.model.written.append(Written(offset + delta, key, value, None))

    def put_as(self, argument: tuple[int, list[tuple[bytes, bytes | None]]]) -> None:
        producer_id, pairs = argument
        pairs = self._numbered(pairs)
        offset = self.keyed.put_as(producer_id, *pairs, epoch=self.epochs[producer_id])
        self.active.add(producer_id)
        transaction = self.model.open.setdefault(producer_id, (producer_id, offset))
        for delta, (key, value) in enumerate(pairs):
            self.model.written.append(Written(offset + delta, key, value, transaction))

    def commit(self, producer_id: int) -> None:
        self.keyed.commit(producer_id, epoch=self.epochs[producer_id])
        transaction = self.model.open.pop(producer_id, None)
        if transaction is not None:
            self.model.committed.add(transaction)

    def abort(self, producer_id: int) -> None:
        self.keyed.abort(producer_id, epoch=self.epochs[producer_id])
        self.model.open.pop(producer_id, None)

    def roll(self, _: None) -> None:
        self.keyed.roll()

    def advance(self, duration_ms: int) -> None:
        self.keyed.advance(duration_ms)

    def compact(self, keys_max: int) -> None:
        if self.keyed.compact(keys_max=keys_max) is not None:
            self.check_clean()
        self.keyed.log.remove_deleted_files(self.keyed.now_ms)

    def roll_and_compact(self, keys_max: int) -> None:
        self.roll(None)
        self.compact(keys_max)

    def expire(self, _: None) -> None:
        """Producers without an open transaction are forgotten; such a one begins a new epoch."""
        for now_ms in (self.keyed.now_ms, self.keyed.now_ms + 1):
            self.keyed.log.producers.expire(now_ms, 1)
        for producer_id in PRODUCERS:
            if producer_id not in self.model.open:
                self.active.discard(producer_id)
                self.epochs[producer_id] += 1
                self.keyed.sequences[producer_id] = 0

    def reopen(self, argument: tuple[CrashMode, bool]) -> None:
        mode, without_snapshots = argument
        if without_snapshots:
            for name in self.keyed.names(".snapshot"):
                self.keyed.disk.remove(f"{DIRECTORY}/{name}")
        self.keyed.reopen(mode)
        assert self.keyed.report.is_sound

    def crash(self, argument: tuple[int, CrashMode]) -> None:
        """The power goes somewhere in a compaction."""
        operations, mode = argument
        self.roll(None)
        self.keyed.disk.fail_after(operations)
        with suppress(PowerCut):
            self.keyed.compact()
        self.keyed.reopen(mode)
        assert self.keyed.report.is_sound

    # --- what must hold ------------------------------------------------------------------------

    def check(self) -> None:
        log, model = self.keyed.log, self.model
        end_offset = log.last_stable_offset
        assert end_offset == model.last_stable_offset(log.end_offset)
        found = self.keyed.records()
        assert self.keyed.table() == model.table(end_offset)
        history = {one.offset: one for one in model.visible(end_offset)}
        for record in found:
            one = history[record.offset]
            assert (record.key, record.value) == (one.key, one.value)
        assert [record.offset for record in found] == sorted({record.offset for record in found})
        self.check_segments()

    def check_segments(self) -> None:
        """Each ends where the next begins."""
        log = self.keyed.log
        for segment, following in zip(log.segments.sealed, log.segments.all()[1:], strict=True):
            batches = list(log.walk(segment.base_offset, following.base_offset))
            assert batches[-1].header.next_offset == following.base_offset

    def check_producers(self) -> None:
        """What is known of a producer that is not forgotten comes from the log, also without a snapshot."""
        for producer_id in self.active:
            state = self.keyed.log.producers.get(producer_id)
            assert state is not None
            assert state.next_sequence == self.keyed.sequences[producer_id]

    def check_clean(self) -> None:
        """No key stands twice in what is clean, and nothing that was aborted stands there at all."""
        clean: list[Record] = [
            record for record in self.keyed.records() if record.offset < self.keyed.first_dirty_offset
        ]
        keys = [record.key for record in clean]
        assert len(keys) == len(set(keys))


@given(st.lists(steps, min_size=5, max_size=40))
@settings(max_examples=EXAMPLES, deadline=None)
def test_a_reader_knows_the_same_with_and_without_compaction(story: list[tuple[str, object]]) -> None:
    told = Story()
    for name, argument in story:
        getattr(told, name)(argument)
        told.check()
    for _ in range(3):  # until tombstones and markers go
        told.advance(DAY_MS)
        told.put([(KEYS[0], b"")])
        told.roll_and_compact(1000)
    told.reopen(("drop", True))
    told.check()
    told.check_producers()
