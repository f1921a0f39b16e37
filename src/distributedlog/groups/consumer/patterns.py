"""Subscriptions by regular expression: which topics a pattern stands for.

The syntax is RE2's, as in Kafka, and so is the engine: it matches in time linear in the topic's name,
whatever the pattern, and within a bounded memory.  A pattern is matched with the whole of a name.  What RE2
cannot do (back references, looking around) is no pattern: INVALID_REGULAR_EXPRESSION.

A pattern is looked up again when topics came or went, once for all groups of the coordinator that have it,
and then only the new names are matched: the work of the first time is bounded by the cluster's number of
topics, that of later ones by what has changed.  Internal topics are never meant: who wants them names them.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from distributedlog.groups.consumer.topics import Topics
from distributedlog.groups.records import utf8_bytes
from distributedlog.model.errors import InvalidRegularExpressionError

if TYPE_CHECKING:
    import re2

PATTERN_BYTES_MAX: Final = 10_000
"""So that it fits the key of a record."""
PROGRAM_BYTES_MAX: Final = 1 << 18
"""Of a pattern as it is compiled, and of what matching it may use."""
CACHED_MAX: Final = 200
"""Patterns whose topics are remembered."""
PATTERNS_PER_GROUP_MAX: Final = 50
"""Different ones: all of them may have to be looked up in one turn."""
_SHOWN_LENGTH: Final = 100


class _Found(NamedTuple):
    matches: Callable[[str], object]
    names: frozenset[str]
    """Among which it was looked."""
    topics: frozenset[str]


class Patterns:
    """What patterns stand for.  SOFT STATE: a memory of what was found for the topics that there are."""

    def __init__(self) -> None:
        self._names_mark: object = None
        self._names: frozenset[str] = frozenset()
        self._found: dict[str, _Found] = {}

    def topics(self, pattern: str, topics: Topics) -> frozenset[str]:
        if topics.names_mark is not self._names_mark:
            self._names, self._names_mark = frozenset(topics.names()), topics.names_mark
        found = self._found.get(pattern)
        if found is None:
            if len(self._found) >= CACHED_MAX:
                self._found.clear()
            found = _Found(compiled(pattern).fullmatch, frozenset(), frozenset())
        if found.names is not self._names:
            new = frozenset(name for name in self._names - found.names if found.matches(name))
            kept = found.topics & self._names
            found = found._replace(names=self._names, topics=kept | new)
            self._found[pattern] = found
        return found.topics


def compiled(pattern: str) -> "re2._Regexp[str]":
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
