"""Any mix of everything that can happen to a log, against a plain list of batches."""

import os

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from distributedlog.model.config import LogConfig
from distributedlog.storage.append import Origin
from distributedlog.storage.compaction.log import commit_compaction, plan_compaction, run_compaction
from distributedlog.storage.log import PartitionLog
from distributedlog.storage.retention import enforce_retention
from distributedlog.storage.store import LogStore
from distributedlog.storage.syncs.rounds import SyncJob
from tests.simulation.disk import SimDisk
from tests.simulation.inodes import CrashMode
from tests.unit.storage.model import LogModel, Stored
from tests.unit.storage.support import (
    NOW_MS,
    PARTITION,
    append_data,
    batch_of,
    batches_in,
    marker_of,
    open_store,
    read_batches,
    with_small_segments,
)

SOAK = os.environ.get("DLOG_SOAK") == "1"
PRODUCERS = (7, 8, 9)
KEYS = [b"a", b"b", b"c", b"d"]
COUNTS = st.integers(1, 4)
PARTS = st.integers(0, 20).map(lambda twentieth: twentieth / 20)
TIMES = st.integers(-20, 20).map(lambda step: NOW_MS - 60_000 + step * 1000)
MODES: st.SearchStrategy[CrashMode] = st.sampled_from(("drop", "keep", "random"))


class LogMachine(RuleBasedStateMachine):
    config: LogConfig

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0
        self.leader_epoch = 0
        self.model = LogModel()
        self.has_quarantine = False
        """Crashes have damaged what was not synced, and it was told."""
        self.running: SyncJob | None = None
        self.running_end = 0
        self.truncated_meanwhile = False

    @initialize(seed=st.integers(0, 1000))
    def begin(self, seed: int) -> None:
        self.disk = SimDisk(seed)
        self.disk.now_ms = NOW_MS
        self.store: LogStore = open_store(self.disk, self.config)
        self.log: PartitionLog = self.store.create_log("t")

    # --- appending -----------------------------------------------------------------------------

    def _values(self, count: int) -> tuple[list[bytes], list[bytes]]:
        numbers = range(self.numbers, self.numbers + count)
        self.numbers += count
        return [b"value-%010d" % number for number in numbers], [KEYS[number % 4] for number in numbers]

    def _append(self, data: bytearray, origin: Origin = Origin.CLIENT) -> None:
        result = append_data(self.log, data, leader_epoch=self.leader_epoch, origin=origin)
        assert result.base_offset == self.model.end_offset
        assert not result.is_duplicate
        self._appended(bytes(data))

    def _appended(self, data: bytes) -> None:
        for header, batch in batches_in(data):
            assert header.base_offset >= self.model.end_offset
            self.model.append(header, batch)
        assert self.log.end_offset == self.model.end_offset

    @rule(counts=st.lists(COUNTS, min_size=1, max_size=3), timestamp_ms=TIMES)
    def append(self, counts: list[int], timestamp_ms: int) -> None:
        data = bytearray()
        for count in counts:
            values, keys = self._values(count)
            data += batch_of(values, keys=keys, timestamp_ms=timestamp_ms)
        self._append(data)

    @rule(producer_id=st.sampled_from(PRODUCERS), count=COUNTS, bump=st.booleans(), timestamp_ms=TIMES)
    def append_as_producer(self, producer_id: int, count: int, bump: bool, timestamp_ms: int) -> None:
        known = self.model.producers().get(producer_id)
        if known is not None and known.transaction_first_offset is not None:
            return
        epoch = max(0, known.epoch) if known else 0
        sequence = known.next_sequence if known and known.epoch >= 0 else 0
        if bump:
            epoch, sequence = epoch + 1, 0
        values, keys = self._values(count)
        self._append(
            batch_of(
                values,
                keys=keys,
                timestamp_ms=timestamp_ms,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
            )
        )

    @rule(producer_id=st.sampled_from(PRODUCERS), count=COUNTS, timestamp_ms=TIMES)
    def append_to_a_transaction(self, producer_id: int, count: int, timestamp_ms: int) -> None:
        known = self.model.producers().get(producer_id)
        values, keys = self._values(count)
        self._append(
            batch_of(
                values,
                keys=keys,
                timestamp_ms=timestamp_ms,
                producer_id=producer_id,
                producer_epoch=max(0, known.epoch) if known else 0,
                base_sequence=known.next_sequence if known else 0,
                is_transactional=True,
            )
        )

    @rule(producer_id=st.sampled_from(PRODUCERS), commit=st.booleans(), timestamp_ms=TIMES)
    def end_a_transaction(self, producer_id: int, commit: bool, timestamp_ms: int) -> None:
        known = self.model.producers().get(producer_id)
        epoch = max(0, known.epoch) if known else 0
        marker = marker_of(producer_id, epoch, commit=commit, timestamp_ms=timestamp_ms)
        self._append(marker, Origin.COORDINATOR)

    @rule(producer_id=st.sampled_from(PRODUCERS), which=st.integers(0, 4))
    def send_again(self, producer_id: int, which: int) -> None:
        known = self.model.producers().get(producer_id)
        if known is None or which >= len(known.last_five):
            return
        sent = known.last_five[which]
        again = batch_of(
            [b"again"] * sent.records,
            keys=KEYS[: sent.records],
            producer_id=producer_id,
            producer_epoch=known.epoch,
            base_sequence=sent.first_sequence,
            is_transactional=known.transaction_first_offset is not None,
        )
        result = append_data(self.log, again, leader_epoch=self.leader_epoch)
        assert result.is_duplicate
        assert (result.base_offset, result.last_offset) == (sent.first_offset, sent.last_offset)
        assert self.log.end_offset == self.model.end_offset

    @rule(gap=st.integers(0, 5), count=COUNTS, timestamp_ms=TIMES)
    def append_as_follower(self, gap: int, count: int, timestamp_ms: int) -> None:
        values, keys = self._values(count)
        data = batch_of(
            values,
            keys=keys,
            timestamp_ms=timestamp_ms,
            base_offset=self.model.end_offset + gap,
            leader_epoch=self.leader_epoch,
        )
        self.log.append_as_follower(bytes(data), now_ms=NOW_MS)
        self._appended(bytes(data))

    @rule()
    def a_new_leader(self) -> None:
        self.leader_epoch += 1

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW_MS)

    # --- syncing -------------------------------------------------------------------------------

    def _synced(self, end_offset: int) -> None:
        self.model.synced_end = max(self.model.synced_end, end_offset)
        assert self.log.flushed_end_offset == self.model.synced_end

    @rule()
    def sync(self) -> None:
        self.log.sync()
        self._synced(self.model.end_offset)

    @precondition(lambda self: self.running is None)
    @rule()
    def begin_sync(self) -> None:
        self.running = self.log.begin_sync()
        self.running_end = self.model.end_offset
        self.truncated_meanwhile = False
        if self.running is None:
            self._synced(self.model.end_offset)

    @precondition(lambda self: self.running is not None)
    @rule()
    def finish_sync(self) -> None:
        assert self.running is not None
        self.running.run()
        self.log.end_sync(self.running, succeeded=True)
        self.running = None
        self._synced(0 if self.truncated_meanwhile else self.running_end)

    @rule()
    def commit_what_is_synced(self) -> None:
        self.log.advance_high_watermark(self.model.synced_end)

    @rule()
    def checkpoint(self) -> None:
        self.store.checkpoint()

    # --- shrinking -----------------------------------------------------------------------------

    @rule(part=PARTS)
    def truncate(self, part: float) -> None:
        lowest = self.log.high_watermark if self.config.compacts else self.model.start_offset
        offset = lowest + int(part * (self.model.end_offset - lowest) + 0.5)
        self.truncated_meanwhile |= offset < self.model.end_offset
        self.log.truncate_to(offset, NOW_MS)
        self.model.truncate(offset)
        self.check_all()

    @rule(part=PARTS)
    def trim(self, part: float) -> None:
        high_watermark = self.log.high_watermark
        offset = self.model.start_offset + int(part * (high_watermark - self.model.start_offset) + 0.5)
        self.log.advance_start_offset(offset, NOW_MS)
        self.store.checkpoint_starts()
        self.model.start_offset = max(self.model.start_offset, offset)
        assert self.log.start_offset == self.model.start_offset

    # --- reading -------------------------------------------------------------------------------

    @rule(part=PARTS, max_bytes=st.sampled_from((0, 1, 100, 500, 5000)), bounded=st.booleans())
    def read(self, part: float, max_bytes: int, bounded: bool) -> None:
        model = self.model
        offset = model.start_offset + int(part * (model.end_offset - model.start_offset) + 0.5)
        bound = self.log.last_stable_offset if bounded else model.end_offset
        result = self.log.read(offset, max_bytes, up_to=bound)
        expected = model.batches_from(offset, bound)
        if result.region is None:
            assert not expected
            return
        with result.region as region:
            data = region.read()
        found = batches_in(data)
        assert found
        assert [Stored(*batch) for batch in found] == expected[: len(found)]
        assert len(data) <= max(max_bytes, found[0][0].size)

    @rule(timestamp_ms=TIMES)
    def find_by_time(self, timestamp_ms: int) -> None:
        assert self.log.find_timestamp(timestamp_ms) == self.model.first_at_or_after(
            timestamp_ms, self.model.end_offset
        )
        assert self.log.find_max_timestamp() == self.model.newest()

    # --- leaving and coming back ---------------------------------------------------------------

    @rule()
    def close_and_open(self) -> None:
        self.running = None
        self.log.sync()
        self.model.synced_end = self.model.end_offset
        self.store.close()
        self._open_again()
        assert self.store.reports[PARTITION].was_clean
        assert self.store.reports[PARTITION].is_sound
        assert bool(self.store.reports[PARTITION].notes) == self.has_quarantine

    @rule(mode=MODES)
    def crash(self, mode: CrashMode) -> None:
        synced_end = self.model.synced_end
        self.running = None
        self.disk.crash(mode)
        self._open_again()
        report = self.store.reports[PARTITION]
        assert report.lost_synced_offsets == 0
        assert all(damage.offset >= synced_end for damage in report.damage)
        if report.damage:
            self.has_quarantine = True
            self.store.note_told(PARTITION)
        if mode != "random":
            assert report.is_sound

    def _open_again(self) -> None:
        find_end_before = self.model.end_offset
        self.store = open_store(self.disk, self.config)
        found = self.store.log("t")
        assert found is not None
        self.log = found
        self.model.crash(self.log.end_offset)
        if self.store.was_clean:
            assert self.model.end_offset == find_end_before
        self.log.advance_high_watermark(self.log.end_offset)
        self.check_all()

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.check_all()

    # --- everything ----------------------------------------------------------------------------

    def check_all(self) -> None:
        log, model = self.log, self.model
        assert (log.start_offset, log.end_offset) == (model.start_offset, model.end_offset)
        assert log.start_offset <= log.high_watermark <= log.end_offset
        assert log.flushed_end_offset == model.synced_end
        expected = model.visible()
        found: list[Stored] = []
        position = log.start_offset
        while batches := read_batches(log, position):
            found += [Stored(*batch) for batch in batches]
            position = found[-1].header.next_offset
        assert found == expected
        for batch in expected:
            batch.records()
            assert read_batches(log, max(batch.header.base_offset, log.start_offset), 1)[0][1] == batch.data
        self._check_producers()
        for batch in expected:
            offset = max(batch.header.base_offset, log.start_offset)
            assert log.epochs.epoch_for_offset(offset) == batch.header.leader_epoch
        if not model.is_compacted:
            aborted = log.find_aborted_transactions(log.start_offset, log.end_offset)
            assert [entry[:3] for entry in aborted] == model.aborted(log.start_offset, log.end_offset)

    def _check_producers(self) -> None:
        known = self.model.producers()
        assert {state.producer_id for state in self.log.producers} == set(known)
        for state in self.log.producers:
            expected = known[state.producer_id]
            assert state.epoch == expected.epoch
            assert [(batch.first_offset, batch.last_offset) for batch in state.batches] == [
                (sent.first_offset, sent.last_offset) for sent in expected.last_five
            ]
            first_offset = expected.transaction_first_offset
            assert state.transaction_first_offset == (-1 if first_offset is None else first_offset)
        undecided = [each.transaction_first_offset for each in known.values()]
        lowest = min((offset for offset in undecided if offset is not None), default=self.log.end_offset)
        assert self.log.last_stable_offset <= max(lowest, self.log.start_offset)


class PlainMachine(LogMachine):
    config = with_small_segments(retention_bytes=2500, segment_index_bytes=60)

    @rule()
    def apply_retention(self) -> None:
        before = self.model.start_offset
        gone = enforce_retention(self.log, NOW_MS)
        self.log.remove_deleted_files(NOW_MS)
        assert (self.log.start_offset > before) <= bool(gone)
        assert self.log.start_offset <= self.log.high_watermark
        if self.log.start_offset > before:
            assert self.log.size_bytes >= self.config.retention_bytes
        self.model.start_offset = self.log.start_offset


class CompactedMachine(LogMachine):
    """Truncated only above the high watermark, as always in earnest: below it, batches may have been removed
    that the list still has."""

    config = with_small_segments(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)

    @rule()
    def compact(self) -> None:
        first_dirty = self.store.first_dirty_offsets.get(PARTITION, 0)
        plan = plan_compaction(self.log, first_dirty, NOW_MS)
        if plan is None:
            return
        result = run_compaction(plan, self.disk)
        assert commit_compaction(self.log, result, NOW_MS)
        self.store.first_dirty_offsets[PARTITION] = result.first_dirty_offset
        self._take_what_is_left()

    def _take_what_is_left(self) -> None:
        """Only records may be missing, and of each key the newest committed one may not."""
        model = self.model
        before = {record for batch in model.content for record in batch.records()}
        table = model.committed_table()
        left = [
            Stored(batch.header, bytes(batch.data))
            for batch in self.log.walk(self.log.segments.first.base_offset, self.log.end_offset)
        ]
        assert {record for batch in left for record in batch.records()} <= before
        model.content = left
        model.is_compacted = True
        assert model.committed_table() == table
        self.check_all()


@pytest.mark.parametrize("machine", [PlainMachine, CompactedMachine])
def test_a_log_is_what_a_list_of_batches_would_be(machine: type[LogMachine]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=2000 if SOAK else 100,
            stateful_step_count=60 if SOAK else 30,
            deadline=None,
        ),
    )
