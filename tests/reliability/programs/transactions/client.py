"""What is asked of a kind of client: a transactional producer, a reader, and what they raise.

Each call either does what it says or raises one of the kind's errors; none waits for ever.  What is to be
tried again is tried again in here, as that client's manual has it.
"""

import os
from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

from tests.reliability.history import Place, Seen
from tests.reliability.programs.calm import IS_CALM

CALL_SECONDS = 30.0
POLL_SECONDS = 0.1
RECORDS_MAX = 50
IS_CARELESS = os.environ.get("DLOG_LOAD_CARELESS") == "1"
ISOLATION: Literal["read_uncommitted", "read_committed"] = (
    "read_uncommitted" if IS_CARELESS else "read_committed"
)
TIMEOUT_MS = 600_000 if IS_CARELESS else 60_000 if IS_CALM else 10_000
"""How long a transaction may be open: about as long as faults last, so that some are aborted for it; where
there are none, long enough for any machine."""


class Writer(Protocol):
    """A producer that has taken its transactional id over."""

    def begin(self) -> None: ...

    def send(self, place: Place, value: str) -> None: ...

    def send_offset(self, group: str, place: Place, offset: int) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def leave(self) -> None:
        """Goes as it is, whatever is open."""
        ...


class Reader(Protocol):
    def seek(self, place: Place, offset: int) -> None:
        """Reads this partition from now on, and no other."""
        ...

    def poll(self) -> list[Seen]: ...

    def committed(self, place: Place) -> int:
        """The group's committed offset; 0 if there is none."""
        ...


class Kind(NamedTuple):
    errors: tuple[type[BaseException], ...]
    is_fenced: Callable[[BaseException], bool]
    """Whether an error says that this producer may not go on: another has its transactional id, say."""
    write: Callable[[str, str], Writer]
    """BOOTSTRAP TRANSACTIONAL_ID: takes the id over."""
    read: Callable[[str, str], Reader]
    """BOOTSTRAP GROUP."""
