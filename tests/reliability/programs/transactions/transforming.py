"""A transformer: BOOTSTRAP TOPIC PARTITIONS ROLE.KIND.PARTITION.

It reads its partition of the input; for each record it writes one to the output, and commits its offset in
the same transaction.  Where it goes on after an error is what the group has committed.
"""

import sys

from tests.reliability.history import Place
from tests.reliability.programs.transactions.topics import output_of
from tests.reliability.programs.transactions.worker import Worker


class Transformer(Worker):
    def __init__(self, bootstrap: str, topic: str, partitions: int, name: str) -> None:
        super().__init__(bootstrap, topic, partitions, name)
        self._source = Place(topic, int(name.split(".")[2]))
        self._committed = self._position = 0

    def started(self) -> None:
        self._rewind(self.committed(self._source))

    def _rewind(self, offset: int) -> None:
        self._committed = self._position = offset
        self.seek(self._source, offset)

    def work(self) -> bool:
        seen = self.read(self._source)
        for each in seen:
            place = Place(output_of(self.topic), self.chance.randrange(self.partitions))
            self.send(place, f"{self.transaction}:{each.value}")
        if seen:
            self._position = seen[-1].offset + 1
            self.writer.send_offset(self.group, self._source, self._position)
        return bool(seen)

    def ended(self, *, is_committed: bool) -> None:
        if is_committed:
            self._committed = self._position
        elif self._position != self._committed:
            self._rewind(self._committed)


if __name__ == "__main__":
    _bootstrap, _topic, _partitions, _name = sys.argv[1:]
    Transformer(_bootstrap, _topic, int(_partitions), _name).run()
