"""What the batches of a query consist of: the same, however often a batch is played.

A row is written as `QUERY|BATCH|TASK|NUMBER#ATTEMPT`: before the mark what it is, behind it who wrote it.
"""

import random
from typing import Final, NamedTuple

from tests.reliability.history import Place

TASKS_MAX: Final = 3
EMPTY_SHARE: Final = 0.15
"""How many tasks have no row."""


class Batch(NamedTuple):
    query_id: str
    number: int

    def __str__(self) -> str:
        return f"{self.query_id}|{self.number}"


class Piece(NamedTuple):
    """The rows that a task writes with one request."""

    place: Place
    rows: tuple[str, ...]


def tasks_of(seed: int, batch: Batch, places: list[Place]) -> list[list[Piece]]:
    """Returns what each task of a batch writes; a task may have nothing to write."""
    chance = random.Random(f"rows of {batch} in {seed}")
    return [_pieces_of(chance, f"{batch}|{task}", places) for task in range(chance.randint(1, TASKS_MAX))]


def _pieces_of(chance: random.Random, task: str, places: list[Place]) -> list[Piece]:
    if chance.random() < EMPTY_SHARE:
        return []
    count, pieces = 0, []
    for _ in range(chance.randint(1, 3)):
        rows = tuple(f"{task}|{count + number}" for number in range(chance.choice((1, 1, 2, 4))))
        count += len(rows)
        pieces.append(Piece(chance.choice(places), rows))
    return pieces


def written_by(row: str, attempt: str) -> str:
    return f"{row}#{attempt}"


def row_of(value: str) -> str:
    return value.partition("#")[0]


def attempt_of(value: str) -> str:
    return value.partition("#")[2]


def batch_of(value: str) -> Batch:
    query_id, number, _ = value.split("|", 2)
    return Batch(query_id, int(number))
