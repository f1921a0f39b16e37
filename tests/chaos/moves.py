"""The moves of partitions that were asked for, and what must have become of them when all is healed.

    move stuck       a move has not ended long after all is healed
    move went wrong  a partition has replicas that nobody asked for

A request without an answer may be carried out, also much later.  So every target that was ever asked for is
allowed, beside the replicas that were there at first; and of internal topics more behind it, up to as many as
at first, since the controller lets those grow that have few.  When all that has ended each partition is moved
back, under its clients: that has to be taken, to end, and to leave exactly those replicas.
"""

import time
from collections.abc import Iterable, Mapping, Sequence

from distributedlog.client.admin.blocking import BlockingAdmin
from distributedlog.client.options import ClientOptions
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition
from distributedlog.model.internal_topics import INTERNAL_TOPICS
from tests.reliability.checker import Finding

Replicas = tuple[int, ...]
LOOK_SECONDS = 0.2


class Moves:
    def __init__(self, bootstrap: str, asking: ClientOptions) -> None:
        self._bootstrap = bootstrap
        self._asking = asking
        self._allowed: dict[TopicPartition, list[Replicas]] = {}
        """The replicas that were there at first, and all that were asked for since."""

    def find_present(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Returns the partitions of these topics, as far as somebody says what there is."""
        try:
            with BlockingAdmin(self._bootstrap, self._asking) as admin:
                found = [each for each in admin.list_topics(with_internal=True) if each.name in set(topics)]
        except (DlogError, OSError):
            return []
        for topic in found:
            for each in topic.partitions:
                self._allowed.setdefault(TopicPartition(topic.name, each.index), [tuple(each.replicas)])
        return sorted(TopicPartition(topic.name, each.index) for topic in found for each in topic.partitions)

    def wanted_count(self, name: TopicPartition) -> int:
        return len(self._allowed[name][0])

    def move(self, name: TopicPartition, target: Replicas) -> bool:
        """Returns whether it was taken."""
        self._allowed[name].append(target)
        return self._ask(name, target)

    def cancel(self, name: TopicPartition) -> None:
        self._ask(name, None)

    def _ask(self, name: TopicPartition, target: Replicas | None) -> bool:
        try:
            with BlockingAdmin(self._bootstrap, self._asking) as admin:
                return admin.alter_reassignments({name: target})[name] is None
        except (DlogError, OSError):
            return False

    def judge(self, patience_seconds: float) -> list[Finding]:
        """Call it when all is healed; waits for the ends of moves, and moves all back."""
        if not self._allowed:
            return []
        with BlockingAdmin(self._bootstrap) as admin:
            found = _await_end(admin, patience_seconds)
            if found:
                return found
            held = _find_held(admin)
            found = find_wrong(held, self._allowed)
            first = {name: targets[0] for name, targets in self._allowed.items()}
            back = {name: first[name] for name in first if held.get(name) != first[name]}
            outcomes = admin.alter_reassignments(dict(back)) if back else {}
            found += [
                Finding("move stuck", f"{name} cannot be moved back: {error}")
                for name, error in sorted(outcomes.items())
                if error is not None
            ]
            found += _await_end(admin, patience_seconds)
            return found or find_wrong(_find_held(admin), {name: [first[name]] for name in first})


def _await_end(admin: BlockingAdmin, patience_seconds: float) -> list[Finding]:
    deadline = time.monotonic() + patience_seconds
    while left := admin.list_reassignments():
        if time.monotonic() > deadline:
            return [Finding("move stuck", f"{name}: {move}") for name, move in sorted(left.items())]
        time.sleep(LOOK_SECONDS)
    return []


def _find_held(admin: BlockingAdmin) -> dict[TopicPartition, Replicas]:
    return {
        TopicPartition(topic.name, each.index): tuple(each.replicas)
        for topic in admin.list_topics(with_internal=True)
        for each in topic.partitions
    }


def find_wrong(
    held: Mapping[TopicPartition, Replicas], allowed: Mapping[TopicPartition, Sequence[Replicas]]
) -> list[Finding]:
    return [
        Finding("move went wrong", f"{name} has {held.get(name)}, asked for were {targets}")
        for name, targets in sorted(allowed.items())
        if not any(is_allowed(name, held.get(name, ()), target, len(targets[0])) for target in targets)
    ]


def is_allowed(name: TopicPartition, held: Replicas, target: Replicas, grown: int) -> bool:
    """Returns whether a partition that was asked to be on `target` may be on `held`."""
    if name.topic in INTERNAL_TOPICS and len(held) <= grown:
        return held[: len(target)] == target
    return held == target
