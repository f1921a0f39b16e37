"""Which incarnations of a broker have run in its directory: who has its lock knows that they are dead.

    incarnations        line 1: the version, 0
                        line 2: the identity of the directory's lock under which they ran (`ports/disk.Lock`)
                        then:   one incarnation a line, the newest last

A broker that holds the lock writes its own incarnation into it before it first asks to be registered.  So
whatever registration the controller has from this directory, its incarnation stands here, also if the reply
never came.  The next process tells the controller those that it finds, its *predecessors*, and need not wait
until their session is over (decision 30).

They count only under the same lock: the same file, on the same running system.  A copy of the directory has
another lock file, which proves nothing about who holds the first; a volume that is mounted elsewhere, and a
machine that was started again, have another system.  There nothing is told, and the broker waits.

What a crash does: the file is old or new.  A file that is damaged, too long or of another version is as none,
and one that cannot be written is left as it was: it only saves time.
"""

import logging
from collections.abc import Sequence
from typing import Final

from distributedlog.model.errors import InvalidNameError, StorageError
from distributedlog.model.ids import Uuid
from distributedlog.storage.files import Files

_log = logging.getLogger(__name__)

INCARNATIONS_FILE: Final = "incarnations"
INCARNATIONS_MAX: Final = 16
"""How many are kept: as many processes may end before one of them is registered."""
_BYTES_MAX: Final = 4_096
_VERSION: Final = "0"


def encode_incarnations(lock_identity: str, incarnations: Sequence[Uuid]) -> bytes:
    kept = incarnations[-INCARNATIONS_MAX:]
    return "\n".join([_VERSION, lock_identity, *map(str, kept), ""]).encode("ascii")


def find_predecessors(data: bytes | None, lock_identity: str | None) -> tuple[Uuid, ...]:
    """Returns the incarnations that are dead because this process holds the lock of that identity."""
    if data is None or lock_identity is None or len(data) > _BYTES_MAX:
        return ()
    try:
        version, identity, *lines = data.decode("ascii").split("\n")
        found = tuple(Uuid.parse(line) for line in lines if line)
    except (ValueError, InvalidNameError):
        return ()
    if version != _VERSION or identity != lock_identity:
        return ()
    return found[-INCARNATIONS_MAX:]


def note_incarnation(
    files: Files, directory: str, lock_identity: str | None, incarnation: Uuid
) -> tuple[Uuid, ...]:
    """Writes down that this incarnation runs here; returns its predecessors.  The caller holds the lock."""
    if lock_identity is None:
        return ()
    path = f"{directory}/{INCARNATIONS_FILE}"
    predecessors: tuple[Uuid, ...] = ()
    try:
        predecessors = find_predecessors(files.read_small(path), lock_identity)
        files.write_atomically(path, encode_incarnations(lock_identity, (*predecessors, incarnation)))
    except StorageError as error:
        _log.warning("the next start of this broker waits for the session of this one: %s", error)
    return predecessors
