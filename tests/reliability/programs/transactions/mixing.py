"""A mixer: BOOTSTRAP TOPIC PARTITIONS ROLE.KIND.

It writes to partitions of the input that it draws, a few records to each, and reads others meanwhile.
"""

import sys

from tests.reliability.history import Place
from tests.reliability.programs.transactions.topics import output_of
from tests.reliability.programs.transactions.worker import Worker

READ_SHARE, MOVE_SHARE = 0.5, 0.1


class Mixer(Worker):
    def __init__(self, bootstrap: str, topic: str, partitions: int, name: str) -> None:
        super().__init__(bootstrap, topic, partitions, name)
        self._positions = {
            Place(each, at): 0 for each in (topic, output_of(topic)) for at in range(partitions)
        }
        self._place = Place(topic, 0)

    def started(self) -> None:
        self._move()

    def _move(self) -> None:
        """Reads another partition, from where it has read to."""
        self._place = self.chance.choice(list(self._positions))
        self.seek(self._place, self._positions[self._place])

    def work(self) -> bool:
        if self.chance.random() < MOVE_SHARE:
            self._move()
        for number in range(self.chance.choice((1, 2, 2, 3))):
            place = Place(self.topic, self.chance.randrange(self.partitions))
            for each in range(self.chance.choice((1, 1, 3))):
                self.send(place, f"{self.transaction}.{number}.{each}")
            if self.chance.random() < READ_SHARE:
                for seen in self.read(self._place):
                    self._positions[self._place] = seen.offset + 1
        return True

    def ended(self, *, is_committed: bool) -> None:
        """It goes on reading either way."""


if __name__ == "__main__":
    _bootstrap, _topic, _partitions, _name = sys.argv[1:]
    Mixer(_bootstrap, _topic, int(_partitions), _name).run()
