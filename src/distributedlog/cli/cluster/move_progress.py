"""How far moves have come: bytes that new replicas lack, how fast that becomes less, and how long it takes.

    left    of each new replica: what the largest replica of its partition has more than it
    rate    by how much that became less, over the last RATE_SECONDS; what is written meanwhile is left, too
    time    left divided by rate

It is what the brokers say of their directories (DescribeLogDirs): one that is down says nothing, and its
replicas count as empty.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final

from distributedlog.cli.output import show_seconds, show_size
from distributedlog.client.admin.admin import Admin, Reassignment
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition

RATE_SECONDS: Final = 15.0
NODES_NONE: Final[Mapping[TopicPartition, int]] = {}

Moves = Mapping[TopicPartition, Reassignment]
Sizes = Mapping[int, Mapping[TopicPartition, int]]
"""Bytes of replicas, by broker."""


def find_left(moves: Moves, sizes: Sizes) -> dict[TopicPartition, int]:
    """Returns how many bytes the new replicas of each partition lack."""
    return {name: sum(_lacking(name, move, sizes)) for name, move in moves.items()}


def _lacking(name: TopicPartition, move: Reassignment, sizes: Sizes) -> Iterator[int]:
    whole = max((held[name] for held in sizes.values() if name in held), default=0)
    for each in move.adding:
        yield whole - sizes.get(each, NODES_NONE).get(name, 0)


class MoveRate:
    """How fast what is left becomes less."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, left_bytes: int, now: float) -> None:
        self._seen.append((now, left_bytes))
        while len(self._seen) > 2 and self._seen[1][0] <= now - RATE_SECONDS:
            self._seen.popleft()

    @property
    def per_second(self) -> float | None:
        """None: it is not known yet."""
        (since, first), (until, last) = self._seen[0], self._seen[-1]
        return max(0.0, (first - last) / (until - since)) if until > since else None

    def spell(self, count: int) -> str:
        """`count` moves are under way."""
        left_bytes = self._seen[-1][1]
        rate = self.per_second
        text = f"{count} moves under way, {show_size(left_bytes)} left"
        if rate is not None:
            text += f", {show_size(round(rate))} in a second"
        if rate:
            text += f": {show_seconds(left_bytes / rate)}"
        return text


async def find_sizes(admin: Admin, moves: Moves) -> Sizes:
    brokers = {each for move in moves.values() for each in move.replicas}
    living = {each.node_id for each in (await admin.describe_cluster()).brokers.values()}
    answers = await admin.describe_log_dirs(brokers & living, list(moves))
    return {
        broker: {
            name: replica.size_bytes
            for directory in directories
            for name, replica in directory.replicas.items()
        }
        for broker, directories in answers.items()
        if not isinstance(directories, DlogError)
    }
