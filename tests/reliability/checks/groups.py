"""A partition belongs to one member of a generation."""

from collections import defaultdict
from collections.abc import Iterator

from tests.reliability.history import History, Place


def two_owners(history: History) -> Iterator[str]:
    """A partition belonged to two members of one generation."""
    members: dict[tuple[str, int, Place], set[str]] = defaultdict(set)
    for owned in history.owned:
        members[owned.group, owned.generation, owned.place].add(owned.member)
    for (group, generation, place), found in members.items():
        if len(found) > 1:
            yield f"{place} in generation {generation} of {group}: {', '.join(sorted(found))}"
