"""A Raft node's state on this project's own log engine.

    <directory>/raft-state     term, vote, incarnation, recovery point; written aside, synced, renamed
    <directory>/raft-snapshot  the newest snapshot; the same way
    <directory>/log/           a partition's log like any other: an entry is a batch with one record

    raft-state     version u16 | term i64 | vote i64 (-1 none) | incarnation i64 | recovery point i64 | crc32c
    raft-snapshot  version u16 | index i64 | term i64 | membership length u32 | membership | data | crc32c
    entry          offset = index - 1, leader epoch = term, value = payload,
                   key = null for a command, else the kind's name,
                   header "raft" = index i64 | term i64 | synced index i64

A batch's offset and leader epoch are not under its checksum; the header repeats them where they are, and a
batch that contradicts itself is damage.  `synced index` is how far the log was durable when the entry was
written.  It tells a torn write from a loss: damage with a sound entry behind it is a loss only if that entry
says that the damaged place had been synced.

The recovery point is a lower bound of what was synced, brought up whenever the state is saved; a log that
ends below it has lost something.  It is lowered, durably, before entries are removed on purpose.

A crash leaves, of each of the three, the old or the new; an installed snapshot whose old log is still
there is recognised when it is loaded, and the log is dropped then.
"""

from collections.abc import Sequence
from struct import Struct

from distributedlog.model.config import MIB, LogConfig
from distributedlog.model.errors import CorruptLogError, DlogError, MalformedMessageError
from distributedlog.ports.clock import Clock
from distributedlog.raft import TERM_MAX, Entry, EntryKind, HardState, Loaded, Recovered, Snapshot, codec
from distributedlog.records.checksum import crc32c
from distributedlog.records.layout import Header, Record
from distributedlog.records.record import decode_batch, encode_batch
from distributedlog.storage.files import Files, ManagedFile
from distributedlog.storage.log import PartitionLog
from distributedlog.storage.recovery import QUARANTINE, RecoveryReport, open_log
from distributedlog.storage.scan import SEARCH_WORK_BYTES, BadBatchError, find_valid_batch_behind, walk

STATE_FILE = "raft-state"
SNAPSHOT_FILE = "raft-snapshot"
LOG_DIRECTORY = "log"
ACCOUNTED_SUFFIX = ".known"
LOG_CONFIG = LogConfig(segment_bytes=16 * MIB, retention_ms=-1, file_delete_delay_ms=0)
HEADER_NAME = "raft"
QUARANTINED_BATCHES_MAX = 10_000
"""How many quarantined batches are looked at for whether something was lost; behind more than one write can
hold, it was."""

_VERSION = 1
_EVERYTHING = 2**63
_STATE = Struct(">Hqqqq")
_SNAPSHOT = Struct(">HqqI")
_HEADER = Struct(">qqq")
_CRC = Struct(">I")
_KEYS: dict[EntryKind, bytes | None] = {
    EntryKind.COMMAND: None,
    EntryKind.NOOP: b"noop",
    EntryKind.MEMBERSHIP: b"membership",
}
_KINDS = {key: kind for kind, key in _KEYS.items()}


class LogRaftStorage:
    """One owner, one call at a time; calls block."""

    def __init__(self, files: Files, directory: str, clock: Clock, config: LogConfig = LOG_CONFIG) -> None:
        self._files = files
        self._directory = directory
        self._clock = clock
        self._config = config
        self._hard_state = HardState()
        self._recovery_point = 0
        self._synced_index = 0
        self._unsynced: tuple[Entry, ...] = ()
        """Appended last, and not synced for want of room."""
        self._opened: PartitionLog | None = None
        self._cut_at: int | None = None
        self.report: RecoveryReport | None = None
        """What loading found and did, for the operator."""

    def format(self, incarnation: int = 0) -> None:
        """Makes an empty storage of this incarnation, for one of a new cluster's first members."""
        self._files.make_directory(self._directory)
        self._hard_state = self._hard_state._replace(incarnation=incarnation)
        self._save_state()

    # --- loading -------------------------------------------------------------------------------

    def load(self) -> Loaded:
        if not self._files.is_directory(self._directory):
            self._files.make_directory(self._directory)
        state_lost = not self._load_state()
        snapshot, snapshot_lost = self._load_snapshot()
        log_directory = f"{self._directory}/{LOG_DIRECTORY}"
        self._files.refuse_link(log_directory)
        log, self.report = open_log(
            self._files,
            log_directory,
            self._config,
            now_ms=self._clock.wall_ms(),
            recovery_point=self._recovery_point,
        )
        self._opened = log
        log_lost = self._discard_torn(self.report, log.end_offset)
        entries, self._cut_at = self._load_entries(log)
        entries_lost = self._cut_at is not None
        self._synced_index = log.end_offset if self._cut_at is None else self._cut_at
        entries, gap = self._fit(entries, snapshot)
        lost = state_lost or snapshot_lost or log_lost or entries_lost or gap
        return Loaded(Recovered(self._hard_state, snapshot, tuple(entries)), lost)

    def _load_state(self) -> bool:
        body = self._read(STATE_FILE)
        if body is None or len(body) != _STATE.size:
            return False
        version, term, vote, incarnation, recovery_point = _STATE.unpack(body)
        if version != _VERSION:
            raise CorruptLogError(f"{self._directory}/{STATE_FILE} is of the unknown version {version}")
        if not 0 <= term <= TERM_MAX:
            raise CorruptLogError(
                f"{self._directory}/{STATE_FILE} says that it is term {term}, which no node can have begun: "
                "restore the directory from a copy, or remove the voter and add it again"
            )
        self._hard_state = HardState(term, None if vote < 0 else vote, incarnation)
        self._recovery_point = recovery_point
        return True

    def _load_snapshot(self) -> tuple[Snapshot | None, bool]:
        if not self._files.exists(f"{self._directory}/{SNAPSHOT_FILE}"):
            return None, False
        body = self._read(SNAPSHOT_FILE)
        if body is None or len(body) < _SNAPSHOT.size:
            return None, True
        version, index, term, length = _SNAPSHOT.unpack_from(body)
        if version != _VERSION:
            raise CorruptLogError(f"{self._directory}/{SNAPSHOT_FILE} is of the unknown version {version}")
        start = _SNAPSHOT.size
        try:
            membership = codec.decode_membership(body[start : start + length])
        except MalformedMessageError:
            return None, True
        return Snapshot(index, term, membership, body[start + length :]), False

    def _read(self, name: str) -> bytes | None:
        """The body of a small file, without its checksum; None if it is missing or damaged."""
        data = self._files.read_small(f"{self._directory}/{name}")
        if data is None or len(data) < _CRC.size:
            return None
        body = data[: -_CRC.size]
        return body if _CRC.unpack(data[-_CRC.size :])[0] == crc32c(body) else None

    def _discard_torn(self, report: RecoveryReport, end_offset: int) -> bool:
        """Removes what is quarantined if it was only torn, which is no loss; returns whether something that
        was synced is lost.

        All that is quarantined is asked, not only what this opening put there: one that was interrupted
        after that has told nobody.
        """
        suspects = self._unaccounted()
        if any(self._says_synced(path, end_offset) for path in suspects):
            return True
        for path in suspects:
            self._files.remove(path)
        return report.lost_synced_offsets > 0

    def _unaccounted(self) -> list[str]:
        """Returns the quarantined files that no incarnation was given up for yet."""
        home = f"{self._directory}/{LOG_DIRECTORY}/{QUARANTINE}"
        if not self._files.is_directory(home):
            return []
        return [f"{home}/{name}" for name in self._files.names(home) if not name.endswith(ACCOUNTED_SUFFIX)]

    def _says_synced(self, path: str, offset: int) -> bool:
        managed = self._files.manage(path, writable=False)
        try:
            size, position = managed.size(), -1
            for _ in range(QUARANTINED_BATCHES_MAX):
                found = find_valid_batch_behind(managed, position, size, work_bytes_max=SEARCH_WORK_BYTES)
                if found is None:
                    return False
                if _synced_index_at(managed, found, size) > offset:
                    return True
                position = found
            return True
        finally:
            managed.close()

    def _load_entries(self, log: PartitionLog) -> tuple[list[Entry], int | None]:
        """Every entry up to the first that contradicts itself, and its offset.

        It is not removed here: the loss must be durable first, in a new incarnation (`save_hard_state`).
        """
        entries: list[Entry] = []
        for batch in log.walk(log.start_offset, log.end_offset):
            try:
                entry = _decode(decode_batch(batch.data)[0])
            except DlogError:
                entry = None
            expected = entries[-1].index + 1 if entries else log.start_offset + 1
            offset, epoch = batch.header.base_offset, batch.header.leader_epoch
            if entry is None or (entry.index, entry.term) != (offset + 1, epoch) or entry.index != expected:
                return entries, offset
            entries.append(entry)
        return entries, None

    def _fit(self, entries: list[Entry], snapshot: Snapshot | None) -> tuple[list[Entry], bool]:
        """Drops a log that does not belong to the snapshot; whether entries are missing between the two."""
        index = snapshot.index if snapshot is not None else 0
        if not entries:
            if self._log.end_offset != index:
                self.reset_log(index + 1)
            return entries, False
        if entries[0].index > index + 1:
            self.reset_log(index + 1)
            return [], True
        position = index - entries[0].index
        agrees = position < 0 or (
            position < len(entries) and snapshot is not None and entries[position].term == snapshot.term
        )
        if not agrees:
            self.reset_log(index + 1)
            return [], False
        return entries, False

    # --- saving --------------------------------------------------------------------------------

    @property
    def _log(self) -> PartitionLog:
        if self._opened is None:
            raise CorruptLogError(f"{self._directory} was not loaded")
        return self._opened

    def save_hard_state(self, hard_state: HardState) -> None:
        gave_up = hard_state.incarnation != self._hard_state.incarnation
        self._hard_state = hard_state
        self._recovery_point = self._synced_index
        self._save_state()
        if gave_up:
            self._account_for_loss()

    def _account_for_loss(self) -> None:
        """The loss is durable now; what it left behind is cleared away.  Interrupted, it is found again."""
        for path in self._unaccounted():
            self._files.rename(path, path + ACCOUNTED_SUFFIX)
        if self._cut_at is not None and self._opened is not None:
            self._opened.truncate_to(self._cut_at, self._clock.wall_ms())
            self._cut_at = None

    def _save_state(self) -> None:
        state = self._hard_state
        vote = -1 if state.vote is None else state.vote
        body = _STATE.pack(_VERSION, state.term, vote, state.incarnation, self._recovery_point)
        self._write(STATE_FILE, body)

    def _lower_recovery_point(self, offset: int) -> None:
        if offset < self._recovery_point:
            self._recovery_point = offset
            self._save_state()

    def save_snapshot(self, snapshot: Snapshot) -> None:
        membership = codec.encode_membership(snapshot.membership)
        fixed = _SNAPSHOT.pack(_VERSION, snapshot.index, snapshot.term, len(membership))
        self._write(SNAPSHOT_FILE, fixed + membership + snapshot.data)

    def _write(self, name: str, body: bytes) -> None:
        self._files.write_atomically(f"{self._directory}/{name}", body + _CRC.pack(crc32c(body)))

    def reset_log(self, next_index: int) -> None:
        self._lower_recovery_point(0)
        self._log.restart_at(next_index - 1, self._clock.wall_ms())
        self._synced_index = next_index - 1

    def truncate_from(self, index: int) -> None:
        self._lower_recovery_point(index - 1)
        self._synced_index = min(self._synced_index, index - 1)
        self._log.truncate_to(index - 1, self._clock.wall_ms())

    def append(self, entries: Sequence[Entry]) -> None:
        if tuple(entries) == self._unsynced:
            return
        batches = b"".join(_encode(entry, self._synced_index) for entry in entries)
        self._log.append_as_follower(batches, now_ms=self._clock.wall_ms())
        self._unsynced = tuple(entries)

    def sync(self) -> None:
        self._log.write_epochs()  # once a term: the recovery point may follow at once
        self._log.sync()
        self._unsynced = ()
        self._synced_index = self._log.end_offset

    def trim_before(self, index: int) -> None:
        """Removes whole segments; what is left below `index` does no harm."""
        now_ms = self._clock.wall_ms()
        if self._log.delete_segments_below(index - 1, now_ms):
            self._log.remove_deleted_files(now_ms)

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()


def _synced_index_at(file: ManagedFile, position: int, size: int) -> int:
    """Returns what the batch at `position` says was synced before it; all, if it is no entry."""
    try:
        batch = next(walk(file, position, size))
        return _header_of(decode_batch(batch.data)[0])[2]
    except (DlogError, BadBatchError, IndexError):
        return _EVERYTHING


def _encode(entry: Entry, synced_index: int) -> bytes:
    header = Header(HEADER_NAME, _HEADER.pack(entry.index, entry.term, synced_index))
    record = Record(entry.payload, _KEYS[entry.kind], (header,))
    return bytes(encode_batch([record], base_offset=entry.index - 1, leader_epoch=entry.term))


def _decode(record: Record) -> Entry:
    index, term, _ = _header_of(record)
    kind = _KINDS.get(record.key)
    if kind is None or record.value is None:
        raise CorruptLogError(f"the record at {record.offset} is no Raft entry")
    return Entry(index, term, kind, bytes(record.value))


def _header_of(record: Record) -> tuple[int, int, int]:
    """Returns index, term and synced index."""
    for header in record.headers:
        if header.key == HEADER_NAME and header.value is not None and len(header.value) == _HEADER.size:
            index, term, synced_index = _HEADER.unpack(header.value)
            return index, term, synced_index
    raise CorruptLogError(f"the record at {record.offset} is no Raft entry")
