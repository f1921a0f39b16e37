"""Subscriptions by regular expression: which topics a pattern stands for.

The syntax is RE2's, as in Kafka, and so is the engine: it matches in time linear in the topic's name,
whatever the pattern, and within a bounded memory.  A pattern is matched with the whole of a name.  What RE2
cannot do (back references, looking around) is no pattern: INVALID_REGULAR_EXPRESSION.

A pattern is looked up again when topics came or went, once for all groups of the coordinator that have it,
and then only the new names are matched.  A turn matches TURN_MATCHES_MAX names and no more, whatever patterns
its group has: what takes longer is left to a `Resolution`, which goes on in turns of its own, between which
others are served.  No heartbeat waits for it: until it is done a pattern stands for what it stood for before,
and a new one for nothing, so that a member has the topics that it names and nothing else yet.

Internal topics are never meant: who wants them names them.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from distributedlog.groups.consumer.topics import Topics
from distributedlog.groups.records import utf8_bytes
from distributedlog.model.errors import InvalidRegularExpressionError

if TYPE_CHECKING:
    import re2

PATTERN_BYTES_MAX: Final = 10_000
"""The bytes of a pattern, so that it fits the key of a record."""
PROGRAM_BYTES_MAX: Final = 1 << 18
"""The bytes of a pattern as it is compiled, and of what matching it may use."""
CACHED_MAX: Final = 200
"""Patterns whose topics are remembered."""
PATTERNS_PER_GROUP_MAX: Final = 50
"""The different patterns of one group."""
TURN_MATCHES_MAX: Final = 1_000
"""The names that are matched in one turn, which takes a few milliseconds at worst."""
COPIES_PER_MATCH: Final = 16
"""How many names are copied in the time in which one is matched, at least."""
_SHOWN_LENGTH: Final = 100


class _Found(NamedTuple):
    matches: Callable[[str], object]
    names: frozenset[str]
    """The names among which it was looked."""
    topics: frozenset[str]


class Patterns:
    """What patterns stand for.  SOFT STATE: a memory of what was found for the topics that there are."""

    def __init__(self) -> None:
        self._names_mark: object = None
        self._names: frozenset[str] = frozenset()
        self._names_before: frozenset[str] = frozenset()
        self._added: frozenset[str] = frozenset()
        self._found: dict[str, _Found] = {}

    def look_at(self, topics: Topics) -> frozenset[str]:
        """Takes note of the names that there are now, and returns them."""
        if topics.names_mark is not self._names_mark:
            self._names_before = self._names
            self._names, self._names_mark = frozenset(topics.names()), topics.names_mark
            self._added = self._names - self._names_before
        return self._names

    def find(self, pattern: str, topics: Topics, matches_max: int) -> tuple[frozenset[str] | None, int]:
        """Returns what the pattern stands for, and how many matches that took; None if it takes more than
        `matches_max`."""
        names = self.look_at(topics)
        found = self._found.get(pattern)
        if found is None:
            if len(names) > matches_max:
                return None, 0
            found = _Found(compile_pattern(pattern).fullmatch, frozenset(), frozenset())
            new, cost = names, 0
        elif found.names is names:
            return found.topics, 0
        elif found.names is self._names_before:
            new, cost = self._added, len(found.topics) // COPIES_PER_MATCH
        else:
            cost = (len(found.topics) + len(names)) // COPIES_PER_MATCH
            if cost > matches_max:
                return None, 0
            new = names - found.names
        cost += len(new)
        if cost > matches_max:
            return None, 0
        matching = (found.topics & names) | {name for name in new if found.matches(name)}
        self.remember(pattern, _Found(found.matches, names, matching))
        return matching, cost

    def remember(self, pattern: str, found: _Found) -> None:
        if len(self._found) >= CACHED_MAX:
            self._found.clear()
        self._found[pattern] = found


class Resolution:
    """What the patterns of one group stand for among all names, worked out step by step."""

    def __init__(self, group_id: str, wanted: Iterable[str], topics: Topics, patterns: Patterns) -> None:
        self.group_id = group_id
        self.version = topics.version
        self.found: dict[str, frozenset[str]] = {}
        self._names = patterns.look_at(topics)
        self._in_order = tuple(self._names)
        self._patterns = patterns
        self._left = list(wanted)
        self._position = 0
        self._matching: set[str] = set()
        self._matches: Callable[[str], object] | None = None

    def advance(self, matches_max: int) -> bool:
        """Matches so many names, and returns whether all is done."""
        while self._left and matches_max > 0:
            if self._matches is None:
                self._matches = compile_pattern(self._left[-1]).fullmatch
            end = self._position + matches_max
            names = self._in_order[self._position : end]
            self._matching.update(name for name in names if self._matches(name))
            matches_max -= max(len(names), 1)
            self._position += len(names)
            if self._position == len(self._in_order):
                self._end_pattern(self._matches)
        return not self._left

    def _end_pattern(self, matches: Callable[[str], object]) -> None:
        pattern, topics = self._left.pop(), frozenset(self._matching)
        self.found[pattern] = topics
        self._patterns.remember(pattern, _Found(matches, self._names, topics))
        self._position, self._matching, self._matches = 0, set(), None


def compile_pattern(pattern: str) -> "re2._Regexp[str]":
    """Raises for what is no pattern."""
    if utf8_bytes(pattern) > PATTERN_BYTES_MAX:
        raise InvalidRegularExpressionError(f"a pattern has at most {PATTERN_BYTES_MAX} bytes")
    # Most coordinators never meet a pattern.
    import re2

    options: Any = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = PROGRAM_BYTES_MAX
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode("utf-8", "replace")
        raise InvalidRegularExpressionError(
            f"{pattern[:_SHOWN_LENGTH]!r} is no regular expression of RE2: {reason}"
        ) from error
