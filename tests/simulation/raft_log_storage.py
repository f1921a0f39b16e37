"""The real storage of a Raft node, on a simulated disk, telling an observer what is durable."""

from collections.abc import Callable, Sequence

from distributedlog.data_directory.raft_storage import LOG_DIRECTORY, LogRaftStorage
from distributedlog.ports.clock import Clock
from distributedlog.raft import Entry, HardState
from distributedlog.records.batch import HEADER_BYTES, scan
from distributedlog.records.record import decode_batch
from distributedlog.storage.files import Files
from tests.simulation.disk import SimDisk
from tests.simulation.raft_storage import DIRECTORY


class ObservedLogStorage(LogRaftStorage):
    def __init__(self, disk: SimDisk, clock: Clock, observe: Callable[[str, object], None]) -> None:
        super().__init__(Files(disk), DIRECTORY, clock)
        self._observe = observe
        self._pending: list[Entry] = []

    def save_hard_state(self, hard_state: HardState) -> None:
        super().save_hard_state(hard_state)
        self._observe("vote", (hard_state.term, hard_state.vote))

    def append(self, entries: Sequence[Entry]) -> None:
        super().append(entries)
        self._pending.extend(entries)

    def sync(self) -> None:
        super().sync()
        self._observe("append", self._pending)
        self._pending = []

    def truncate_from(self, index: int) -> None:
        self._observe("truncate", index)
        super().truncate_from(index)

    def reset_log(self, next_index: int) -> None:
        self._observe("reset", next_index)
        super().reset_log(next_index)


def first_batch_of_several(disk: SimDisk) -> tuple[str, int, int] | None:
    """The file and place of the oldest entry's payload, if a later entry says that it was synced."""
    directory = f"{DIRECTORY}/{LOG_DIRECTORY}"
    if not disk.is_directory(directory):
        return None
    name = next((name for name in disk.list_directory(directory) if name.endswith(".log")), None)
    if name is None:
        return None
    file = disk.open(f"{directory}/{name}")
    content = file.read_at(0, file.size())
    file.close()
    headers = scan(content).headers
    if len(headers) < 2:
        return None
    later = decode_batch(content, headers[0].size)[0].headers[0].value
    assert later is not None
    if int.from_bytes(later[-8:], "big") <= headers[0].base_offset:
        return None
    return f"{directory}/{name}", HEADER_BYTES, headers[0].size
