"""Two trees to their differences, and the differences to those that are intended and those that are not.

A difference is at a path of fields and keys, `topics/orders/partitions/0/error_code`.  What only one of the
brokers has is one difference, however much is below it.

An intended difference names where it may occur (a pattern for the question, one for the path) and what the
two brokers answer there.  In patterns `*` stands for one part between slashes, or for some of its letters,
and `**` for any number of parts.  An entry that is met nowhere is reported: the list says what is so now.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

from tests.compat.differential.trees import Tree


class _Mark:
    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


ABSENT: Final = _Mark("absent")
"""The other broker has this part of the answer, this one does not."""
ANY: Final = _Mark("any")
"""Whatever it is; in expectations only."""


class Question(NamedTuple):
    """What was asked: `Fetch/sessions/wrong epoch` in version 12."""

    name: str
    version: int


class Difference(NamedTuple):
    question: Question
    path: str
    kafka: Tree
    ours: Tree


class Match(NamedTuple):
    """Where one intended difference occurs, and what the brokers answer there."""

    question: str
    path: str
    kafka: Tree = ANY
    ours: Tree = ANY
    since: int = 0
    until: int = 32767

    def covers(self, difference: Difference) -> bool:
        question, path, kafka, ours = difference
        return (
            self.since <= question.version <= self.until
            and _is_like(self.question, question.name)
            and _is_like(self.path, path)
            and _is_expected(self.kafka, kafka)
            and _is_expected(self.ours, ours)
        )


class Intended(NamedTuple):
    """A difference that is meant: under which heading it is told to users, why, and where it shows."""

    topic: str
    reason: str
    matches: Sequence[Match]


class Verdict(NamedTuple):
    intended: list[tuple[Difference, Intended]]
    unexpected: list[Difference]
    unused: list[tuple[Intended, Match]]

    @property
    def is_good(self) -> bool:
        return not self.unexpected and not self.unused


def find_differences(question: Question, kafka: Tree, ours: Tree) -> list[Difference]:
    return [
        Difference(question, "/".join(path), theirs, mine) for path, theirs, mine in _walk((), kafka, ours)
    ]


def _walk(path: tuple[str, ...], kafka: Tree, ours: Tree) -> Iterator[tuple[tuple[str, ...], Tree, Tree]]:
    kafka, ours = _keyed_alike(kafka, ours)
    if isinstance(kafka, Mapping) and isinstance(ours, Mapping):
        for key in dict.fromkeys([*kafka, *ours]):
            yield from _walk((*path, key), kafka.get(key, ABSENT), ours.get(key, ABSENT))
    elif kafka != ours or type(kafka) is not type(ours):
        yield path, kafka, ours


def _keyed_alike(kafka: Tree, ours: Tree) -> tuple[Tree, Tree]:
    """Lists of structs by their position; an empty array is one of those with keys if the other is."""
    if isinstance(kafka, list) and isinstance(ours, list):
        if all(isinstance(each, Mapping) for each in [*kafka, *ours]):
            return _by_position(kafka), _by_position(ours)
    elif kafka == [] and isinstance(ours, Mapping):
        return {}, ours
    elif ours == [] and isinstance(kafka, Mapping):
        return kafka, {}
    return kafka, ours


def _by_position(values: list[Tree]) -> dict[str, Tree]:
    return {str(index): each for index, each in enumerate(values)}


def judge(differences: Iterable[Difference], intended: Sequence[Intended]) -> Verdict:
    """The first entry that covers a difference explains it; every entry that covers one is used."""
    explained: list[tuple[Difference, Intended]] = []
    unexpected: list[Difference] = []
    used: set[int] = set()
    entries = [(entry, match) for entry in intended for match in entry.matches]
    for difference in differences:
        covering = [at for at, (_, match) in enumerate(entries) if match.covers(difference)]
        used.update(covering)
        if covering:
            explained.append((difference, entries[covering[0]][0]))
        else:
            unexpected.append(difference)
    unused = [each for at, each in enumerate(entries) if at not in used]
    return Verdict(explained, unexpected, unused)


def _is_expected(expected: Tree, value: Tree) -> bool:
    return expected is ANY or (type(expected) is type(value) and bool(expected == value))


def _is_like(pattern: str, text: str) -> bool:
    return _compiled(pattern).fullmatch(text) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = (
        ".*" if part == "**" else "[^/]*" if part == "*" else re.escape(part)
        for part in re.split(r"(\*\*|\*)", pattern)
    )
    return re.compile("".join(parts), re.DOTALL)
