"""What a leader knows of one follower.

| mode      | sends                                        | leaves it when                                  |
|-----------|----------------------------------------------|-------------------------------------------------|
| PROBE     | one append, then waits                       | accepted -> REPLICATE; trimmed away -> SNAPSHOT |
| REPLICATE | appends ahead, up to the window              | refused or silent -> PROBE                      |
| SNAPSHOT  | one chunk, then waits                        | the follower has the snapshot -> REPLICATE      |

Invariant: match_index < next_index.  `match_index` never falls for one incarnation; it is what the
follower said is on its disk.
"""

from collections import deque
from enum import Enum

from distributedlog.raft.messages import Snapshot


class Mode(Enum):
    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


class Progress:
    __slots__ = (
        "_inflight",
        "_inflight_max",
        "acked_round",
        "caught_up_ms",
        "chunk_offset",
        "commit_sent",
        "heard_ms",
        "incarnation",
        "match_index",
        "mode",
        "moved_ms",
        "next_index",
        "probe_sent",
        "snapshot",
    )

    def __init__(self, next_index: int, inflight_max: int, now_ms: int) -> None:
        self.match_index = 0
        self.next_index = next_index
        self.mode = Mode.PROBE
        self.probe_sent = False
        self.incarnation: int | None = None
        """Unknown until the follower has answered."""
        self.heard_ms = now_ms
        self.moved_ms = now_ms
        """The time at which the follower last got further, or was first given something to do."""
        self.caught_up_ms: int | None = None
        """The time at which it was last heard to have all that the leader had: only reported, nothing follows
        from it."""
        self.acked_round = 0
        self.commit_sent = 0
        """The commit index it was last told; heartbeats tell it again, should that have been lost."""
        self.snapshot: Snapshot | None = None
        self.chunk_offset = 0
        self._inflight: deque[int] = deque()
        self._inflight_max = inflight_max

    @property
    def may_append(self) -> bool:
        if self.mode is Mode.REPLICATE:
            return len(self._inflight) < self._inflight_max
        return self.mode is Mode.PROBE and not self.probe_sent

    def sent(self, last_index: int, now_ms: int) -> None:
        """An append that ends at `last_index` is on its way."""
        if self.mode is Mode.PROBE:
            self.probe_sent = True
            self.moved_ms = now_ms
            return
        if not self._inflight:
            self.moved_ms = now_ms
        self._inflight.append(last_index)
        self.next_index = last_index + 1

    def accepted(self, match_index: int, now_ms: int) -> bool:
        """Returns whether the follower got further."""
        while self._inflight and self._inflight[0] <= match_index:
            self._inflight.popleft()
        if self.mode is Mode.SNAPSHOT:
            if self.snapshot is not None and match_index >= self.snapshot.index:
                self._enter(Mode.REPLICATE)
        elif self.mode is Mode.PROBE:
            self._enter(Mode.REPLICATE)
            self.next_index = match_index + 1
        advanced = match_index > self.match_index
        if advanced:
            self.match_index = match_index
            self.moved_ms = now_ms
        self.next_index = max(self.next_index, self.match_index + 1)
        return advanced

    def rejected(self, prev_index: int, retry_from: int) -> bool:
        """Moves back to where the logs may agree; False if the answer is to a question of the past."""
        if self.mode is Mode.SNAPSHOT or prev_index <= self.match_index:
            return False
        if self.mode is Mode.PROBE and prev_index != self.next_index - 1:
            return False
        self.probe_from(max(retry_from, self.match_index + 1))
        return True

    def probe_from(self, next_index: int) -> None:
        self._enter(Mode.PROBE)
        self.next_index = next_index

    def begin_snapshot(self, snapshot: Snapshot, now_ms: int) -> None:
        self._enter(Mode.SNAPSHOT)
        self.snapshot = snapshot
        self.chunk_offset = 0
        self.moved_ms = now_ms

    def forget(self, next_index: int) -> None:
        """The follower is not the one it was: what it had said counts no more."""
        self.match_index = 0
        self.acked_round = 0
        self.commit_sent = 0
        self.probe_from(next_index)

    def _enter(self, mode: Mode) -> None:
        self.mode = mode
        self.probe_sent = False
        self.snapshot = None
        self._inflight.clear()
