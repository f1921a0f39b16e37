"""Log matching: two logs with the same entry at an index are the same up to there.

An (index, term) pair names one entry, and that entry one predecessor, in every log there ever was; from
that the property follows by induction.
"""

from collections.abc import Sequence

from distributedlog.raft import Entry, RaftNode
from tests.simulation.checkers import Checker, View


class LogMatching(Checker):
    name = "log matching"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._entries: dict[tuple[int, int], Entry] = {}
        self._term_before: dict[tuple[int, int], int] = {}
        self._seen: dict[int, tuple[int, int]] = {}

    def on_stored(self, node_id: int, entries: Sequence[Entry]) -> None:
        for entry in entries:
            known = self._entries.setdefault((entry.index, entry.term), entry)
            if known != entry:
                self.fail(f"node {node_id} stored another entry {entry.index} of term {entry.term}")

    def on_log(self, node: RaftNode) -> None:
        """Checks what is new at the log's end, and its link to what was there."""
        log = node.core.log
        end = (log.last_index, log.last_term)
        if self._seen.get(node.core.node_id) == end:
            return
        self._seen[node.core.node_id] = end
        for index in range(log.last_index, log.base_index, -1):
            term, before = log.term_at(index), log.term_at(index - 1)
            assert term is not None
            assert before is not None
            known = self._term_before.get((index, term))
            if known is None:
                self._term_before[index, term] = before
            elif known != before:
                self.fail(
                    f"entry {index} of term {term} follows term {known} and, on {node.core.node_id}, {before}"
                )
            else:
                return  # from here down this pair was checked before
