"""Any history of a log: sound once it is closed, and judged as recovery judges it after a crash."""

import dataclasses
import os

from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.storage.compaction.log import commit_compaction, plan_compaction, run_compaction
from distributedlog.storage.retention import enforce_retention
from distributedlog.storage.verification.findings import Severity
from tests.simulation.disk import SimDisk
from tests.unit.storage.support import (
    DIRECTORY,
    NOW_MS,
    PARTITION,
    SMALL,
    append_data,
    batch_of,
    commit_all,
    open_store,
    value_of,
)
from tests.unit.storage.verification.test_directory import end, severities, verify

IS_SOAK = os.environ.get("DLOG_SOAK") == "1"
CONFIG = dataclasses.replace(SMALL, cleanup_policy=("compact", "delete"), retention_bytes=4096)


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, int]]:
    kinds = st.sampled_from(
        [
            "append",
            "begin",
            "commit",
            "abort",
            "roll",
            "epoch",
            "truncate",
            "trim",
            "reopen",
            "compact",
            "retain",
        ]
    )
    return draw(st.lists(st.tuples(kinds, st.integers(0, 3)), min_size=1, max_size=40))


class _Run:
    """Plays a history on a store; producers are 0 to 3, each with one transaction at a time."""

    def __init__(self) -> None:
        self.disk = SimDisk(3)
        self.store = open_store(self.disk, CONFIG)
        self.log = self.store.create_log("t", 0)
        self.epoch = 0
        self.sequences = [0, 0, 0, 0]

    def play(self, kind: str, who: int) -> None:
        log = self.log
        if kind == "append":
            values = [value_of(number) for number in range(who + 1)]
            append_data(log, batch_of(values, keys=[b"key-%d" % who] * len(values)), leader_epoch=self.epoch)
        elif kind == "begin":
            batch = batch_of(
                [value_of(who)],
                keys=[b"key-%d" % who],
                producer_id=who,
                producer_epoch=0,
                base_sequence=self.sequences[who],
                is_transactional=True,
            )
            append_data(log, batch, leader_epoch=self.epoch)
            self.sequences[who] += 1
        elif kind in ("commit", "abort"):
            end(log, who, commit=kind == "commit", leader_epoch=self.epoch)
        elif kind == "roll":
            log.roll(NOW_MS)
        elif kind == "epoch":
            self.epoch += 1
        elif kind == "trim":
            commit_all(log)
            log.advance_start_offset(
                log.start_offset + (log.end_offset - log.start_offset) * who // 4, NOW_MS
            )
            self.store.checkpoint_starts()
        elif kind == "truncate":
            log.truncate_to(max(log.start_offset, log.end_offset - who), NOW_MS)
            self._recount()
        elif kind == "compact":
            self._compact()
        elif kind == "retain":
            commit_all(log)
            enforce_retention(log, NOW_MS)
            self._recount()
        else:
            self.store.close()
            self.reopen()

    def reopen(self) -> None:
        self.store = open_store(self.disk, CONFIG)
        self.log = self.store.logs[PARTITION]
        self._recount()

    def _compact(self) -> None:
        commit_all(self.log)
        first_dirty = self.store.first_dirty_offsets.get(PARTITION, 0)
        plan = plan_compaction(self.log, first_dirty, NOW_MS, force=True)
        if plan is not None:
            result = run_compaction(plan, self.disk)
            if commit_compaction(self.log, result, NOW_MS):
                self.store.first_dirty_offsets[PARTITION] = result.first_dirty_offset

    def _recount(self) -> None:
        for who in range(4):
            state = self.log.producers.get(who)
            self.sequences[who] = state.next_sequence if state is not None else 0

    def crash(self, mode: str) -> None:
        self.disk.crash(mode)  # type: ignore[arg-type]


@given(histories())
@settings(max_examples=300 if IS_SOAK else 40, deadline=None)
def test_whatever_was_done_to_a_log_it_is_sound_once_it_is_closed(history: list[tuple[str, int]]) -> None:
    run = _Run()
    for kind, who in history:
        run.play(kind, who)
    run.store.close()
    assert [finding for finding in verify(run.disk) if finding.severity is not Severity.NOTE] == []


@given(histories(), st.sampled_from(["drop", "keep", "random"]))
@settings(max_examples=300 if IS_SOAK else 40, deadline=None)
def test_after_a_crash_it_is_judged_as_recovery_judges_it_and_opening_repairs_it(
    history: list[tuple[str, int]], mode: str
) -> None:
    """A disk that keeps a later write and loses an earlier one leaves what looks like damage, to both."""
    run = _Run()
    for kind, who in history:
        run.play(kind, who)
    run.crash(mode)
    if not run.disk.is_directory(DIRECTORY):
        return
    is_damaged = Severity.DAMAGE in severities(verify(run.disk))
    assert not is_damaged or mode == "random"
    run.reopen()
    assert is_damaged == (not run.store.reports[PARTITION].is_sound)
    run.store.close()
    assert severities(verify(run.disk)) <= {Severity.NOTE}
