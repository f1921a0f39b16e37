"""A Raft node's storage on the disk port: what a crash does to it is what the simulated disk does.

    hard       two slots of 64 bytes, written in turn: sequence i64 | term i64 | vote i64 (-1 none)
               | incarnation i64 | crc u32.  The sound slot with the higher sequence is the state.
    log        frames: length u32 | crc u32 | first index i64 | count u32 | entries.  One append is one
               frame and one write, so a torn write damages the last frame only.
    snapshot   crc u32 | index i64 | term i64 | membership length u32 | membership | data;
               written under another name, synced, renamed, directory synced.

A bad frame at the end is a torn tail and is cut.  A bad frame with a sound one behind it, a hard state
with no sound slot, or a directory that was never formatted means that something synced was lost.
"""

import zlib
from collections.abc import Callable, Sequence
from struct import Struct

from distributedlog.ports.disk import Disk, File
from distributedlog.raft import Entry, HardState, Loaded, Recovered, Snapshot, codec

DIRECTORY = "/raft"
_SLOT = Struct(">qqqq")
_SLOT_BYTES = 64
_FRAME = Struct(">II")
_FRAME_BODY = Struct(">qI")
_SNAPSHOT = Struct(">qqI")
_CRC = Struct(">I")
_ENTRY_BYTES_MAX = 1 << 24


class DiskRaftStorage:
    """`observe` is told what is durable: ("append", entries) or ("vote", (term, vote)); and what soon may be
    so no more: ("truncate", index) or ("reset", index)."""

    def __init__(self, disk: Disk, observe: Callable[[str, object], None]) -> None:
        self._disk = disk
        self._observe = observe
        self._sequence = 0
        self._frames: list[tuple[int, int, int]] = []  # first index, entries, position
        self._entries: list[Entry] = []
        self._end = 0
        self._pending: list[Entry] = []
        self._log: File | None = None
        self._hard: File | None = None

    def format(self) -> None:
        """Makes an empty storage of the first incarnation."""
        self._disk.make_directory(DIRECTORY)
        self._log = self._disk.open(f"{DIRECTORY}/log", create=True)
        self.save_hard_state(HardState())
        self._disk.sync_directory(DIRECTORY)
        self._disk.sync_directory("/")

    # --- loading -------------------------------------------------------------------------------

    def load(self) -> Loaded:
        if not self._disk.exists(f"{DIRECTORY}/hard"):
            self.format()
            return Loaded(Recovered(), lost=True)
        hard_state = self._load_hard_state()
        snapshot, snapshot_lost = self._load_snapshot()
        log_lost = self._load_log()
        lost = hard_state is None or snapshot_lost or log_lost
        start = snapshot.index + 1 if snapshot is not None else 1
        if self._entries and self._entries[0].index > start:
            self.reset_log(start)
            lost = True
        recovered = Recovered(hard_state or HardState(), snapshot, tuple(self._entries))
        if snapshot is not None and not _continues(recovered.entries, snapshot):
            self.reset_log(snapshot.index + 1)  # the crash came before the log was dropped
            recovered = recovered._replace(entries=())
        return Loaded(recovered, lost)

    def _load_hard_state(self) -> HardState | None:
        self._hard = self._disk.open(f"{DIRECTORY}/hard", write=True)
        found: HardState | None = None
        for slot in range(2):
            data = self._hard.read_at(slot * _SLOT_BYTES, _SLOT.size + _CRC.size)
            if len(data) < _SLOT.size + _CRC.size:
                continue
            body = data[: _SLOT.size]
            if _CRC.unpack_from(data, _SLOT.size)[0] != zlib.crc32(body):
                continue
            sequence, term, vote, incarnation = _SLOT.unpack(body)
            if sequence > self._sequence:
                self._sequence = sequence
                found = HardState(term, None if vote < 0 else vote, incarnation)
        return found

    def _load_snapshot(self) -> tuple[Snapshot | None, bool]:
        path = f"{DIRECTORY}/snapshot"
        if not self._disk.exists(path):
            return None, False
        file = self._disk.open(path)
        data = file.read_at(0, file.size())
        file.close()
        if len(data) < _CRC.size + _SNAPSHOT.size or _CRC.unpack_from(data)[0] != zlib.crc32(
            data[_CRC.size :]
        ):
            self._disk.remove(path)
            return None, True
        index, term, length = _SNAPSHOT.unpack_from(data, _CRC.size)
        start = _CRC.size + _SNAPSHOT.size
        membership = codec.decode_membership(data[start : start + length])
        return Snapshot(index, term, membership, data[start + length :]), False

    def _load_log(self) -> bool:
        """Reads the sound frames; whether one was lost that had been synced."""
        self._log = self._disk.open(f"{DIRECTORY}/log", write=True, create=True)
        data = self._log.read_at(0, self._log.size())
        position, lost = 0, False
        while position < len(data):
            end = self._load_frame(data, position)
            if end is None:
                lost = self._sound_frame_behind(data, position)
                break
            position = end
        if position < len(data):
            self._log.truncate(position)
            self._log.sync()
        self._end = position
        return lost

    def _load_frame(self, data: bytes, position: int) -> int | None:
        body = _frame_body(data, position)
        if body is None:
            return None
        first, count = _FRAME_BODY.unpack_from(body)
        if self._entries and first != self._entries[-1].index + 1:
            return None
        self._frames.append((first, count, position))
        self._entries.extend(_decode_entries(body, first, count))
        return position + _FRAME.size + len(body)

    @staticmethod
    def _sound_frame_behind(data: bytes, position: int) -> bool:
        return any(_frame_body(data, later) is not None for later in range(position + 1, len(data)))

    # --- saving --------------------------------------------------------------------------------

    def save_hard_state(self, hard_state: HardState) -> None:
        if self._hard is None:
            self._hard = self._disk.open(f"{DIRECTORY}/hard", create=True)
        self._sequence += 1
        vote = -1 if hard_state.vote is None else hard_state.vote
        body = _SLOT.pack(self._sequence, hard_state.term, vote, hard_state.incarnation)
        self._hard.write_at(self._sequence % 2 * _SLOT_BYTES, body + _CRC.pack(zlib.crc32(body)))
        self._hard.sync()
        self._observe("vote", (hard_state.term, hard_state.vote))

    def save_snapshot(self, snapshot: Snapshot) -> None:
        membership = codec.encode_membership(snapshot.membership)
        body = _SNAPSHOT.pack(snapshot.index, snapshot.term, len(membership)) + membership + snapshot.data
        self._replace("snapshot", _CRC.pack(zlib.crc32(body)) + body)

    def _replace(self, name: str, data: bytes) -> None:
        file = self._disk.open(f"{DIRECTORY}/{name}.new", create=True)
        file.truncate(0)
        file.write_at(0, data)
        file.sync()
        file.close()
        self._disk.rename(f"{DIRECTORY}/{name}.new", f"{DIRECTORY}/{name}")
        self._disk.sync_directory(DIRECTORY)

    def reset_log(self, next_index: int) -> None:
        self._observe("reset", next_index)
        self._cut(0)
        self._frames.clear()
        self._entries.clear()

    def truncate_from(self, index: int) -> None:
        self._observe("truncate", index)
        kept = [entry for entry in self._entries if entry.index < index]
        while self._frames and self._frames[-1][0] >= index:
            _, _, position = self._frames.pop()
            self._cut(position)
        if self._frames and self._frames[-1][0] + self._frames[-1][1] > index:
            self._rewrite(kept)  # the cut goes through a frame, whose beginning must not be lost
        self._entries = kept

    def _cut(self, size: int) -> None:
        assert self._log is not None
        self._log.truncate(size)
        self._log.sync()
        self._end = size

    def append(self, entries: Sequence[Entry]) -> None:
        assert self._log is not None
        assert not self._entries or entries[0].index == self._entries[-1].index + 1, "a gap in the log"
        frame = _encode_frame(entries)
        self._log.write_at(self._end, frame)
        self._frames.append((entries[0].index, len(entries), self._end))
        self._end += len(frame)
        self._entries.extend(entries)
        self._pending.extend(entries)

    def sync(self) -> None:
        assert self._log is not None
        self._log.sync()
        self._observe("append", self._pending)
        self._pending = []

    def trim_before(self, index: int) -> None:
        if self._entries and self._entries[0].index < index:
            self._rewrite([entry for entry in self._entries if entry.index >= index])

    def _rewrite(self, entries: list[Entry]) -> None:
        """Puts a new file with these entries in the log's place."""
        assert self._log is not None
        data = _encode_frame(entries) if entries else b""
        self._replace("log", data)
        self._log.close()
        self._log = self._disk.open(f"{DIRECTORY}/log", write=True)
        self._frames = [(entries[0].index, len(entries), 0)] if entries else []
        self._entries = entries
        self._end = len(data)


def _continues(entries: Sequence[Entry], snapshot: Snapshot) -> bool:
    if not entries or entries[0].index == snapshot.index + 1:
        return True
    position = snapshot.index - entries[0].index
    return position < len(entries) and entries[position].term == snapshot.term


def _encode_frame(entries: Sequence[Entry]) -> bytes:
    encoded = [codec.encode_entry(entry) for entry in entries]
    body = b"".join([_FRAME_BODY.pack(entries[0].index, len(entries)), *encoded])
    return _FRAME.pack(len(body), zlib.crc32(body)) + body


def _frame_body(data: bytes, position: int) -> bytes | None:
    """The body of the sound frame at `position`, or None."""
    start = position + _FRAME.size
    if start + _FRAME_BODY.size > len(data):
        return None
    length, crc = _FRAME.unpack_from(data, position)
    if length < _FRAME_BODY.size or start + length > len(data):
        return None
    body = data[start : start + length]
    return body if zlib.crc32(body) == crc else None


def _decode_entries(body: bytes, first: int, count: int) -> list[Entry]:
    entries, position = [], _FRAME_BODY.size
    for index in range(first, first + count):
        entry, position = codec.decode_entry(body, position, index, _ENTRY_BYTES_MAX)
        entries.append(entry)
    return entries


def first_frame_of_several(disk: Disk) -> tuple[str, int, int] | None:
    """Where the body of the log's first frame lies, if there is another behind it: damage that shows."""
    if not disk.exists(f"{DIRECTORY}/log"):
        return None
    file = disk.open(f"{DIRECTORY}/log")
    data = file.read_at(0, file.size())
    file.close()
    body = _frame_body(data, 0)
    if body is None or _frame_body(data, _FRAME.size + len(body)) is None:
        return None
    return f"{DIRECTORY}/log", _FRAME.size, _FRAME.size + len(body)
