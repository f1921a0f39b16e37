"""The second half of a verification: does everything that follows from the batches agree with them?

The batches of a log, in order, determine who its producers are, which transactions were aborted, and which
leader wrote what.  `Replay` is given every batch and compares with what the files say:

| file                      | must be                                                                     |
|---------------------------|-----------------------------------------------------------------------------|
| `{offset}.snapshot`       | sound by its CRC, and the producers as replayed up to that offset           |
| `{base}.txnindex`         | the transactions whose abort markers stand in that segment                  |
| `leader-epoch-checkpoint` | for each batch the epoch that the batch carries                             |

Not every difference is wrong.  A snapshot may lack producers that expired; compaction removes batches that
were there when a snapshot was taken, so that once there is a gap between offsets only what is certain is
compared.  Where the log does not begin at 0 the first sound snapshot is where the replay begins.

Damage in the log ends the replay: what follows from bytes that are gone cannot be said.
"""

from collections.abc import Iterator
from typing import NamedTuple

from distributedlog.model.errors import CorruptLogError, DlogError, StorageError
from distributedlog.records.control import read_end_marker
from distributedlog.records.layout import INT64_MAX, BatchHeader
from distributedlog.storage.checkpoints import LEADER_EPOCH_FILE, decode_epochs
from distributedlog.storage.epochs import NO_EPOCH, EpochHistory
from distributedlog.storage.files import Files
from distributedlog.storage.producer_history import apply_batch
from distributedlog.storage.producers import NO_COORDINATOR_EPOCH, ProducerState, ProducerStates
from distributedlog.storage.scan import LocatedBatch
from distributedlog.storage.segment import SNAPSHOT_SUFFIX, file_name
from distributedlog.storage.txn_index import AbortedTransaction, TransactionIndex
from distributedlog.storage.verification.findings import Circumstances, Finding, Severity, Totals


class _AbortMarker(NamedTuple):
    producer_id: int
    offset: int


class Replay:
    """State over all segments of one log; `begin_segment`, `note` for each batch, `end_segment`, `finish`."""

    def __init__(
        self, files: Files, directory: str, bases: list[int], circumstances: Circumstances, totals: Totals
    ) -> None:
        self._files = files
        self._directory = directory
        self._view = circumstances
        self._totals = totals
        self._first_base = bases[0]
        # From where opening the log would read it anew, and believe nothing that was derived from it before.
        self._reread_from = INT64_MAX if self._view.was_clean else min(self._view.recovery_point, bases[-1])
        self.has_gaps = False
        """Offsets are missing between batches or within them, as compaction leaves it."""
        self._is_broken = False
        self._states: ProducerStates | None = ProducerStates() if bases[0] == 0 else None
        self._aborted: list[AbortedTransaction] = []
        self._markers: set[_AbortMarker] = set()
        self._writers: set[int] = set()
        """Producers of which a transactional record was seen since their last marker."""
        self._states_known_from_start = True
        self._snapshots = self._find_snapshots()
        self._epochs: EpochHistory | None = None
        self._epochs_disagree = False
        # The epoch of the last batch, and the offsets between which the checkpoint agrees with it.
        self._epoch, self._epoch_from, self._epoch_until = NO_EPOCH, 0, 0

    def _find_snapshots(self) -> list[int]:
        return sorted(
            int(name.removesuffix(SNAPSHOT_SUFFIX))
            for name in self._files.names(self._directory)
            if name.endswith(SNAPSHOT_SUFFIX) and name.removesuffix(SNAPSHOT_SUFFIX).isdecimal()
        )

    def stop(self) -> None:
        """The log is damaged here: snapshots and transactions behind it are no longer compared."""
        self._is_broken = True

    def _finding(self, severity: Severity, path: str, message: str, offset: int | None = None) -> Finding:
        return Finding(severity, path, message, None, offset)

    # --- the walk ------------------------------------------------------------------------------

    def begin(self) -> Iterator[Finding]:
        yield from self._load_epochs()
        while self._snapshots and self._snapshots[0] < self._first_base:
            path = self._snapshot_path(self._snapshots.pop(0))
            yield self._finding(Severity.NOTE, path, "is of a segment that is no longer there")

    def begin_segment(self) -> None:
        self._aborted = []
        self._markers = set()
        self._states_known_from_start = self._states is not None

    def is_due(self, header: BatchHeader) -> bool:
        """Returns whether a batch can contradict anything: most have no producer, and the epoch of the one
        before."""
        return (
            header.producer_id >= 0
            or not self._epoch_from <= header.base_offset < self._epoch_until
            or header.leader_epoch != self._epoch
            or (bool(self._snapshots) and self._snapshots[0] <= header.base_offset)
        )

    def note(self, batch: LocatedBatch) -> Iterator[Finding]:
        header = batch.header
        if self._snapshots and self._snapshots[0] <= header.base_offset:
            yield from self._reach(header.base_offset)
        yield from self._check_epoch(batch)
        if header.producer_id < 0 or self._is_broken:
            return
        try:
            self._apply(batch)
        except DlogError as error:
            self.stop()
            yield Finding(
                Severity.DAMAGE, self._directory, f"a control batch ends no transaction: {error}",
                batch.position, header.base_offset,
            )  # fmt: skip

    def _apply(self, batch: LocatedBatch) -> None:
        header = batch.header
        if header.is_control and header.record_count == 1:
            marker = read_end_marker(batch.window, batch.at, header)
            if not marker.is_commit:
                self._markers.add(_AbortMarker(header.producer_id, header.base_offset))
        elif header.is_control:
            return  # emptied by compaction: it only keeps the producer's place
        elif header.is_transactional and header.record_count:
            self._writers.add(header.producer_id)
        if self._states is None:
            return
        aborted = apply_batch(self._states, batch)
        # Compaction may leave only empty batches of an aborted transaction: no reader need be told of it.
        if aborted is not None and header.producer_id in self._writers:
            self._aborted.append(aborted)
        if header.is_control:
            self._writers.discard(header.producer_id)

    def finish(self, end_offset: int) -> Iterator[Finding]:
        """Checks, after the last batch, what speaks of the log's end or of more than there is."""
        yield from self._reach(end_offset)
        for offset in self._snapshots:
            if not self._is_broken:
                yield self._finding(
                    Severity.NOTE if self._view.is_live else Severity.REPAIRABLE,
                    self._snapshot_path(offset),
                    f"is of offset {offset}, and the log ends at {end_offset}; opening the log removes it",
                    offset,
                )
        yield from self._check_epochs_end(end_offset)

    # --- snapshots -----------------------------------------------------------------------------

    def _snapshot_path(self, offset: int) -> str:
        return f"{self._directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"

    def _reach(self, offset: int) -> Iterator[Finding]:
        """Everything below `offset` was replayed: compares the snapshots up to there."""
        while self._snapshots and self._snapshots[0] <= offset:
            yield from self._check_snapshot(self._snapshots.pop(0))

    def _check_snapshot(self, offset: int) -> Iterator[Finding]:
        path = self._snapshot_path(offset)
        try:
            data = self._files.read_small(path)
            if data is None:
                return  # a live log removed it meanwhile
            stored = ProducerStates.decode_snapshot(data)
        except (CorruptLogError, StorageError) as error:
            yield self._finding(
                Severity.REPAIRABLE, path, f"{error}; it is made again from the log when needed", offset
            )
            return
        self._totals.snapshots += 1
        self._totals.bytes += len(data)
        if self._is_broken:
            return
        if self._states is None:
            self._states = stored
            self._writers |= {state.producer_id for state in stored if state.has_open_transaction}
            return
        difference = None if self.has_gaps else _difference(stored, self._states, self._first_base)
        if difference is None:
            return
        if offset > self._reread_from:
            yield self._finding(
                Severity.REPAIRABLE, path, f"{difference}; opening the log removes it", offset
            )
        else:
            yield self._finding(
                Severity.DAMAGE, path, f"{difference}; remove it, and it is made from the log", offset
            )

    # --- transactions --------------------------------------------------------------------------

    def end_segment(self, index: TransactionIndex, end_offset: int) -> Iterator[Finding]:
        """Compares a segment's transaction index with the markers that were seen in the segment."""
        try:
            stored = index.entries()
        except (CorruptLogError, StorageError) as error:
            yield self._finding(Severity.REPAIRABLE, index.path, f"{error}; it can be rebuilt from the log")
            return
        self._totals.index_entries += len(stored)
        if self._is_broken:
            return
        problem = self._txn_index_problem(stored)
        if problem is not None:
            is_unwritten = self._view.is_live and len(stored) < len(self._aborted)
            yield self._finding(
                Severity.NOTE if is_unwritten else Severity.REPAIRABLE, index.path, problem, index.base_offset
            )

    def _txn_index_problem(self, stored: list[AbortedTransaction]) -> str | None:
        for entry in stored:
            if _AbortMarker(entry.producer_id, entry.last_offset) not in self._markers:
                return (
                    f"names an aborted transaction of producer {entry.producer_id} up to offset "
                    f"{entry.last_offset}, where no abort marker stands"
                )
        if not self._states_known_from_start:
            return None
        known = {(entry.producer_id, entry.last_offset): entry for entry in stored}
        for aborted in self._aborted:
            found = known.get((aborted.producer_id, aborted.last_offset))
            if found is None:
                return (
                    f"lacks the aborted transaction of producer {aborted.producer_id}, offsets "
                    f"{aborted.first_offset} to {aborted.last_offset}"
                )
            if found != aborted and not self.has_gaps:
                return f"says {_spell(found)}; the log says {_spell(aborted)}"
        if len(stored) > len(self._aborted) and not self.has_gaps:
            return f"has {len(stored)} entries; the log has {len(self._aborted)} aborted transactions here"
        return None

    # --- epochs --------------------------------------------------------------------------------

    def _load_epochs(self) -> Iterator[Finding]:
        path = f"{self._directory}/{LEADER_EPOCH_FILE}"
        try:
            data = self._files.read_small(path)
            if data is None:
                return
            entries = decode_epochs(data)
        except (CorruptLogError, StorageError) as error:
            yield self._finding(Severity.REPAIRABLE, path, f"{error}; opening the log makes it anew")
            return
        self._totals.bytes += len(data)
        history = EpochHistory(entries)
        if history.entries != entries:
            yield self._finding(Severity.DAMAGE, path, "epochs or their start offsets do not rise")
            return
        self._epochs = history

    def _check_epoch(self, batch: LocatedBatch) -> Iterator[Finding]:
        header = batch.header
        self._epoch, self._epoch_from, self._epoch_until = header.leader_epoch, header.base_offset, INT64_MAX
        if self._epochs is None or self._epochs_disagree or header.leader_epoch < 0:
            return
        stored = self._epochs.epoch_for_offset(header.base_offset)
        if stored == header.leader_epoch or (stored is None and self._is_below_start(header.base_offset)):
            if stored is None:
                self._epoch_until = header.base_offset
            else:
                self._epoch_until = self._epochs.end_offset_for(stored, INT64_MAX).end_offset
            return
        self._epochs_disagree = True
        is_stale = header.base_offset >= self._reread_from
        yield self._finding(
            Severity.REPAIRABLE if is_stale else Severity.DAMAGE,
            f"{self._directory}/{LEADER_EPOCH_FILE}",
            f"says epoch {'none' if stored is None else stored} for offset {header.base_offset}; "
            f"the batch there carries {header.leader_epoch}"
            + ("" if is_stale else "; remove the file, and opening the log makes it anew"),
            header.base_offset,
        )

    def _is_below_start(self, offset: int) -> bool:
        return self._view.start_offset is None or offset < self._view.start_offset

    def _check_epochs_end(self, end_offset: int) -> Iterator[Finding]:
        if self._epochs is None or self._is_broken or not self._epochs.entries:
            return
        epoch, start_offset = self._epochs.entries[-1]
        if start_offset > max(end_offset, self._view.start_offset or 0):
            yield self._finding(
                Severity.REPAIRABLE,
                f"{self._directory}/{LEADER_EPOCH_FILE}",
                f"lets epoch {epoch} begin at offset {start_offset}, and the log ends at {end_offset}; "
                "opening the log forgets it",
                start_offset,
            )


# --- comparing ---------------------------------------------------------------------------------


def _difference(stored: ProducerStates, replayed: ProducerStates, first_base: int) -> str | None:
    """The first thing in which a snapshot contradicts the log; None if it does not."""
    for state in stored:
        known = replayed.get(state.producer_id)
        if known is None:
            if state.last_offset >= first_base:
                return f"names producer {state.producer_id}, of which the log has nothing"
            continue
        contradiction = _contradiction(state, known)
        if contradiction is not None:
            return f"producer {state.producer_id}: {contradiction}"
    for known in replayed:
        if known.has_open_transaction and stored.get(known.producer_id) is None:
            return f"lacks producer {known.producer_id}, which has an open transaction"
    return None


def _contradiction(stored: ProducerState, replayed: ProducerState) -> str | None:
    pairs = [
        ("epoch", stored.epoch, replayed.epoch),
        ("open transaction", stored.transaction_first_offset, replayed.transaction_first_offset),
    ]
    if stored.batches and replayed.batches:
        pairs += [
            ("last sequence", stored.batches[-1].last_sequence, replayed.batches[-1].last_sequence),
            ("last offset", stored.last_offset, replayed.last_offset),
        ]
    if NO_COORDINATOR_EPOCH not in (stored.coordinator_epoch, replayed.coordinator_epoch):
        pairs.append(("coordinator epoch", stored.coordinator_epoch, replayed.coordinator_epoch))
    for what, left, right in pairs:
        if left != right:
            return f"the snapshot says {what} {left}; the log says {right}"
    return None


def _spell(entry: AbortedTransaction) -> str:
    return (
        f"producer {entry.producer_id} aborted {entry.first_offset} to {entry.last_offset} "
        f"with {entry.last_stable_offset} stable"
    )
