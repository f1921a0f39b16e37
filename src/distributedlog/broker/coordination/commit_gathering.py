"""Commits that come close together are kept by one entry of the log.

    a commit by itself              begins at once, as every other request
    one within CLOSE_MS of another  waits for the end of this turn of the loop, and what follows is put with
                                    it; one entry is appended, and synced, for all of them
    any other request               begins after what was gathered: nobody is overtaken

When several were put together, more are likely to come: for CROWD_MS each waits for the others, also the
first of a turn.  When one has waited for nobody, the next does not wait.  So clients that wait for their
responses, and are few, are served as if there were no gathering; those that do not, or are many, pay for one
batch together.

Only commits of groups that are there are gathered, and only as many as surely fit an entry, by the most that
their offsets could take: so none is refused for being together.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from distributedlog.groups.config import GroupConfig
from distributedlog.groups.records import RECORD_OVERHEAD_BYTES
from distributedlog.groups.requests import CommitRequest, MergedCommitReply, MergedCommitRequest, Reply
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TOPIC_NAME_LENGTH_MAX
from distributedlog.ports.executor import Done, Outcome

CLOSE_MS: Final = 1
CROWD_MS: Final = 1_000
"""Longer than a slow disk takes for a sync: those who wait for it come back together."""
TOGETHER_MAX: Final = 64
NEVER_MS: Final = -1
UTF8_BYTES_PER_CHARACTER_MAX: Final = 4


class Gathered(NamedTuple):
    request: CommitRequest
    deadline_ms: int
    done: Done[Reply]


class CommitGathering:
    """The commits of one coordinator that wait for the end of a turn of the loop."""

    def __init__(self) -> None:
        self._gathered: list[Gathered] = []
        self._size = 0
        self._close_until_ms = NEVER_MS

    def __len__(self) -> int:
        return len(self._gathered)

    def note_arrival(self, now_ms: int) -> bool:
        """Notes that a commit has come, and returns whether it is likely to have company."""
        is_close = bool(self._gathered) or now_ms <= self._close_until_ms
        self._close_until_ms = max(self._close_until_ms, now_ms + CLOSE_MS)
        return is_close

    def add(self, request: CommitRequest, deadline_ms: int, done: Done[Reply], config: GroupConfig) -> bool:
        """Adds a commit; returns False where there is no room for it beside those that are here."""
        size = bound_size(request, config)
        if self._size + size > config.entry_bytes_max or len(self._gathered) >= TOGETHER_MAX:
            return False
        self._size += size
        self._gathered.append(Gathered(request, deadline_ms, done))
        return True

    def take(self, now_ms: int) -> list[Gathered]:
        gathered, self._gathered, self._size = self._gathered, [], 0
        if gathered:
            self._close_until_ms = now_ms + CROWD_MS if len(gathered) > 1 else NEVER_MS
        return gathered


def bound_size(request: CommitRequest, config: GroupConfig) -> int:
    """Returns at least as many bytes as its records take, without looking at each."""
    group_bytes = UTF8_BYTES_PER_CHARACTER_MAX * len(request.group_id)
    texts_bytes = group_bytes + TOPIC_NAME_LENGTH_MAX + config.offset_metadata_bytes_max
    return len(request.offsets) * (RECORD_OVERHEAD_BYTES + texts_bytes)


def merge_commits(gathered: list[Gathered]) -> MergedCommitRequest:
    return MergedCommitRequest(tuple([each.request for each in gathered]))


def complete_each(gathered: list[Gathered], map_error: Callable[[DlogError], DlogError]) -> Done[Reply]:
    """Returns a callback that completes each commit; `map_error` makes the error for the client."""

    def complete(outcome: Outcome[Reply]) -> None:
        if outcome.error is not None:
            for each in gathered:
                each.done(outcome)
            return
        merged = outcome.value()
        assert isinstance(merged, MergedCommitReply)
        for each, reply in zip(gathered, merged.replies, strict=True):
            each.done(Outcome(error=map_error(reply)) if isinstance(reply, DlogError) else Outcome(reply))

    return complete
