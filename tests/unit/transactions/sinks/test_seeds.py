"""A query of many batches, played from a seed: attempts fail, drivers and coordinators die at any moment.

Each batch has rows that its input says, as Spark's do, so a batch that is played again writes the same rows.
Whatever happens: no row is seen of a batch that is not committed, none of an attempt that lost, and in the
end each row once.
"""

from dataclasses import dataclass, field
from random import Random

import pytest

from distributedlog.model.errors import DlogError
from distributedlog.statemachine import Producer
from distributedlog.transactions.sinks.requests import SinkDecided, SinkEnded, SinkSkipped
from distributedlog.transactions.transaction import PREPARED
from tests.unit.transactions.sinks.stage import P0, P1, QUERY, TIMEOUT_MS, SinkStage

BATCHES = 6


@dataclass
class Driver:
    """What a driver, its winners and the attempts that lost have under way, or still do when it is dead."""

    token: int
    batch_id: int
    losers: list[Producer] = field(default_factory=list)
    winners: list[Producer] = field(default_factory=list)
    is_whole: bool = False
    """Every task has a winner: the batch may be ended."""


class Play:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.stage = SinkStage()
        self.token = 0
        self.drivers: list[Driver] = []

    def rows(self, batch_id: int) -> list[str]:
        return [f"{batch_id}.{at}" for at in range(3)]

    def run(self) -> None:
        batch_id = 0
        while batch_id < BATCHES:
            if self.play_batch(batch_id):
                batch_id += 1
            self.check()
        while self.stage.sent:
            self.stage.write_markers()
        expected = [row for each in range(BATCHES) for row in self.rows(each)]
        assert self.stage.visible == sorted(expected)
        assert not any(leader.open for leader in self.stage.leaders.values())

    def check(self) -> None:
        found = self.stage.machine.sinks.states.get(QUERY)
        committed = -1 if found is None else found.known.committed_batch_id
        seen = self.stage.visible
        assert len(seen) == len(set(seen)), "a row is there twice"
        assert all(int(row.split(".")[0]) <= committed for row in seen), "a row of no committed batch"

    def disturb(self) -> None:
        """Something that may happen at any moment."""
        stage, chance = self.stage, self.random.random()
        if chance < 0.1:
            stage.take_over()
        elif chance < 0.25 and stage.sent:
            stage.write_marker(stage.sent.pop(self.random.randrange(len(stage.sent))))
        elif chance < 0.35:
            driver = self.random.choice(self.drivers)
            for each in driver.losers:
                stage.produce(each, self.random.choice((P0, P1)), f"{driver.batch_id}.late")
            if driver.is_whole:
                stage.end_batch(driver.token, driver.batch_id, *driver.winners)
            if driver is not self.drivers[-1]:
                stage.abort_batch(driver.token)
        elif chance < 0.4:
            stage.advance(self.random.choice((1, TIMEOUT_MS)))

    def play_batch(self, batch_id: int) -> bool:
        """One try of a batch; whether it is committed."""
        self.token += 1
        driver = Driver(self.token, batch_id)
        self.drivers.append(driver)
        for at, row in enumerate(self.rows(batch_id)):
            attempts = self.random.choice((1, 1, 2, 3))
            for attempt in range(attempts):
                self.disturb()
                try:
                    found = self.join(batch_id, f"{at}-{attempt}")
                except DlogError:
                    return False
                if found is None:
                    return True
                if self.stage.produce(found, self.random.choice((P0, P1)), row) is not None:
                    return False
                (driver.winners if attempt == attempts - 1 else driver.losers).append(found)
        driver.is_whole = True
        self.disturb()
        if self.random.random() < 0.15:
            return False  # the driver dies before it ends the batch
        reply = self.stage.end_batch(self.token, batch_id, *driver.winners)
        while isinstance(reply, SinkDecided):
            if self.random.random() < 0.15:
                return False  # it dies before it hears the answer: the batch is played again, and skipped
            self.disturb()
            if self.stage.sent:
                self.stage.write_markers()
            reply = self.stage.end_batch(self.token, batch_id, *driver.winners)
        return isinstance(reply, SinkEnded)

    def join(self, batch_id: int, attempt_id: str) -> Producer | None:
        while True:
            reply = self.stage.join(self.token, batch_id, attempt_id)
            if isinstance(reply, SinkSkipped):
                return None
            state = self.stage.query.state
            if isinstance(reply, DlogError) and state not in PREPARED:
                raise reply
            if state in PREPARED:
                self.stage.write_markers()
                continue
            return self.stage.joined(self.token, batch_id, attempt_id)


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_rows_are_seen_once_whatever_happens(first: int) -> None:
    for seed in range(first, first + 20):
        try:
            Play(seed).run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
