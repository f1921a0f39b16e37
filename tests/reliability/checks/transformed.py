"""What transformers have written is the function of what they have read: one record for each."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from tests.reliability.history import History, Place


def not_transformed(
    history: History, committed: Mapping[Place, int], output: str, made_of: Callable[[str], str]
) -> Iterator[str]:
    """Something was not made of a record of the input, made twice, or made before the group had passed it.

    Both topics are those of the final read; `made_of` says what a record of the output was made of.
    """
    made: dict[str, list[str]] = defaultdict(list)
    for place, records in history.final.items():
        for seen in records if place.topic == output else ():
            made[made_of(seen.value)].append(f"{place} at {seen.offset}: {seen.value}")
    for place, end in committed.items():
        for seen in history.final[place]:
            if seen.offset < end and not made.get(seen.value):
                yield f"{place} at {seen.offset}: {seen.value} is passed, and nothing is made of it"
            elif seen.offset < end:
                made[seen.value].pop(0)
    for value, left in made.items():
        if left:
            yield f"{value} is not passed, or made more than once: {', '.join(left)}"
