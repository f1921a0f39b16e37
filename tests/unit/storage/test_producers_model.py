"""Producer state against a naive model that keeps everything and searches it."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from distributedlog.model.errors import (
    DlogError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
)
from distributedlog.records.control import ControlType, EndMarker
from distributedlog.records.layout import TRANSACTIONAL_BIT, BatchHeader
from distributedlog.storage.append import Origin
from distributedlog.storage.producers import ProducerStates
from tests.unit.storage.test_producers import (
    CLIENT,
    COORDINATOR,
    REPLICATION,
    SEQUENCE_MAX,
    batch,
    end,
    marker_batch,
)

# --- against a naive model ---------------------------------------------------------------------


class NaiveProducers:
    """Remembers every batch and looks through all of them for each answer."""

    def __init__(self) -> None:
        self.log: list[tuple[BatchHeader, EndMarker | None]] = []

    def of(self, producer_id: int) -> list[tuple[BatchHeader, EndMarker | None]]:
        return [entry for entry in self.log if entry[0].producer_id == producer_id]

    def verdict(self, header: BatchHeader, origin: Origin) -> BatchHeader | type[DlogError] | None:
        known = self.of(header.producer_id)
        if origin is REPLICATION or not known:
            return None
        epoch = known[-1][0].producer_epoch
        if header.producer_epoch < epoch:
            return InvalidProducerEpochError
        if origin is CLIENT:
            run = self.current_run(header.producer_id)
            if header.producer_epoch > epoch:
                if header.base_sequence != 0:
                    return OutOfOrderSequenceError
            elif header.base_sequence != ((run[-1].last_sequence + 1) % 2**31 if run else 0):
                same = [one for one in run[-5:] if one[11:13] == header[11:13]]
                return same[0] if same else OutOfOrderSequenceError
        if self.open_since(header.producer_id) is not None and not header.is_transactional:
            return InvalidTransactionStateError
        return None

    def current_run(self, producer_id: int) -> list[BatchHeader]:
        """The data batches since the epoch last changed."""
        run: list[BatchHeader] = []
        epoch = None
        for header, marker in self.of(producer_id):
            if header.producer_epoch != epoch:
                run, epoch = [], header.producer_epoch
            if marker is None:
                run.append(header)
        return run

    def open_since(self, producer_id: int) -> int | None:
        since = None
        for header, marker in self.of(producer_id):
            if marker is not None:
                since = None
            elif since is None and header.is_transactional:
                since = header.base_offset
        return since

    def undecided(self) -> int | None:
        ids = {header.producer_id for header, _ in self.log}
        return min((since for since in map(self.open_since, ids) if since is not None), default=None)

    def unstable(self, high_watermark: int) -> int | None:
        """Yields every transaction that a marker ended at or above the high watermark, or none did."""
        began: dict[int, int] = {}
        unstable = []
        for header, marker in self.log:
            if marker is None and header.is_transactional:
                began.setdefault(header.producer_id, header.base_offset)
            elif marker is not None and header.producer_id in began:
                first = began.pop(header.producer_id)
                unstable += [first] if header.base_offset >= high_watermark else []
        return min([*unstable, *began.values()], default=None)


class ProducersMachine(RuleBasedStateMachine):
    """Sends, repeats, marks, restarts and truncates; the naive model must give the same answers."""

    def __init__(self) -> None:
        super().__init__()
        self.states = ProducerStates()
        self.naive = NaiveProducers()
        self.end_offset = 0
        self.high_watermark = 0

    @rule(
        producer_id=st.integers(1, 3),
        epoch_step=st.sampled_from([0, 0, 0, 0, 0, 1, -1]),
        sequence_step=st.sampled_from([0, 0, 0, 0, 0, 1, -1, -2, -5, None]),
        count=st.integers(1, 3),
        is_transactional=st.booleans(),
        origin=st.sampled_from([CLIENT, CLIENT, CLIENT, COORDINATOR, REPLICATION]),
        first=st.sampled_from([0, SEQUENCE_MAX - 2]),
    )
    def send(
        self,
        producer_id: int,
        epoch_step: int,
        sequence_step: int | None,
        count: int,
        is_transactional: bool,
        origin: Origin,
        first: int,
    ) -> None:
        state = self.states.get(producer_id)
        epoch = max(0, (state.epoch if state else 0) + epoch_step)
        sequence = 0
        if sequence_step is not None:
            sequence = ((state.next_sequence if state else first) + sequence_step) % 2**31
        bits = TRANSACTIONAL_BIT if is_transactional else 0
        self.offer(
            batch(self.end_offset, sequence, count, producer_id=producer_id, epoch=epoch, attributes=bits),
            origin,
        )

    @rule(back=st.integers(1, 7), origin=st.just(CLIENT))
    def send_again(self, back: int, origin: Origin) -> None:
        sent = [header for header, marker in self.naive.log if marker is None]
        if len(sent) >= back:
            self.offer(sent[-back]._replace(base_offset=self.end_offset), origin)

    def offer(self, header: BatchHeader, origin: Origin) -> None:
        expected = self.naive.verdict(header, origin)
        if isinstance(expected, type):
            with pytest.raises(expected):
                self.states.check(header, origin=origin)
            return
        answer = self.states.check(header, origin=origin)
        if expected is not None:
            assert answer is not None
            assert answer[:4] == (
                expected.base_sequence,
                expected.last_sequence,
                expected.base_offset,
                expected.last_offset,
            )
            return
        assert answer is None
        self.states.append(header)
        self.naive.log.append((header, None))
        self.end_offset = header.next_offset

    @rule(
        producer_id=st.integers(1, 3),
        epoch_step=st.integers(0, 1),
        kind=st.sampled_from(ControlType),
        gap=st.booleans(),
    )
    def mark(self, producer_id: int, epoch_step: int, kind: ControlType, gap: bool) -> None:
        state = self.states.get(producer_id)
        epoch = (state.epoch if state else 0) + epoch_step
        self.end_offset += gap
        header, marker = marker_batch(self.end_offset, producer_id=producer_id, epoch=epoch), end(kind)
        self.states.check_marker(header, marker, origin=COORDINATOR)
        since = self.naive.open_since(producer_id)
        completed = self.states.append_marker(header, marker)
        self.naive.log.append((header, marker))
        self.end_offset += 1
        if since is None:
            assert completed is None
        else:
            assert completed == (producer_id, since, header.base_offset, kind is ControlType.ABORT)
            undecided = self.naive.undecided()
            stable = self.end_offset if undecided is None else undecided
            assert self.states.last_stable_offset(completed) == stable

    @rule(step=st.integers(0, 5))
    def replicate(self, step: int) -> None:
        self.high_watermark = min(self.end_offset, self.high_watermark + step)
        self.states.advance_high_watermark(self.high_watermark)

    @rule()
    def restart_after_all_is_replicated(self) -> None:
        self.high_watermark = self.end_offset
        data = self.states.encode_snapshot()
        self.states = ProducerStates.decode_snapshot(data)
        assert self.states.encode_snapshot() == data

    @rule(keep=st.floats(0.5, 1))
    def truncate_and_replay(self, keep: float) -> None:
        del self.naive.log[int(len(self.naive.log) * keep) :]
        self.states.clear()
        for header, marker in self.naive.log:
            if marker is None:
                self.states.append(header)
            else:
                self.states.append_marker(header, marker)
        self.end_offset = self.naive.log[-1][0].next_offset if self.naive.log else 0
        self.high_watermark = min(self.high_watermark, self.end_offset)
        self.states.advance_high_watermark(self.high_watermark)

    @invariant()
    def transactions_agree(self) -> None:
        assert self.states.first_undecided_offset == self.naive.undecided()
        assert self.states.first_unstable_offset == self.naive.unstable(self.high_watermark)


TestProducersAgainstNaiveModel = ProducersMachine.TestCase
TestProducersAgainstNaiveModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
