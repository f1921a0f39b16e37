"""A program that consumes, transforms and produces in transactions; it may be killed at any point.

    python -m tests.system.transactions.transforming KIND BOOTSTRAP INPUT OUTPUT GROUP ID COUNT PER

Each record of the one partition of INPUT becomes one record in each of the two partitions of OUTPUT.  Records
are transformed PER at a time, and their offset is committed with them.  ID is transactional; KIND is of
`tests.reliability.programs.transactions.kinds`, and transforming_kafkajs.js is the same for KafkaJS.
For each transaction a line comes out.

    exit code 0    all COUNT records are transformed
    exit code 3    another instance with the same transactional id has begun: this one is fenced
"""

import logging
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from tests.reliability.history import Place, Seen
from tests.reliability.programs.transactions.client import Writer
from tests.reliability.programs.transactions.kinds import kind_of

FENCED = 3
SUFFIXES = (":a", ":b")
PATIENCE_SECONDS = 120.0
AGAIN_SECONDS = 0.1

T = TypeVar("T")


class Transformer:
    def __init__(
        self, kind: str, bootstrap: str, source: str, target: str, group: str, transactional_id: str
    ) -> None:
        self._kind = kind_of(kind)
        self._bootstrap = bootstrap
        self._source, self._target = Place(source, 0), target
        self._group, self._transactional_id = group, transactional_id
        self._reader = self._until_done(lambda: self._kind.read(bootstrap, group))
        self._ahead: deque[Seen] = deque()
        """What was read, and is not transformed yet."""
        self._writer = self._take_over()

    def run(self, count: int, per: int) -> None:
        position = self._rewind()
        while position < count:
            try:
                position = self._transform(position, min(per, count - position))
            except self._kind.errors as error:
                print("aborted", repr(error), flush=True)
                self._abort(error)
                position = self._rewind()
            else:
                print(position, flush=True)

    def _until_done(self, call: Callable[[], T]) -> T:
        """Calls again while brokers fail over."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return call()
            except self._kind.errors:
                if time.monotonic() > deadline:
                    raise
                time.sleep(AGAIN_SECONDS)

    def _take_over(self) -> Writer:
        """Ends what an earlier instance left open; only then are offsets looked at."""
        return self._until_done(lambda: self._kind.write(self._bootstrap, self._transactional_id))

    def _abort(self, error: BaseException) -> None:
        """Ends the transaction, or leaves that to another producer.  Who is fenced hears it from the abort at
        the latest, and takes the id from nobody."""
        self._end_if_fenced(error)
        try:
            self._writer.abort()
        except self._kind.errors as refusal:
            self._end_if_fenced(refusal)
            self._writer.leave()
            self._writer = self._take_over()

    def _end_if_fenced(self, error: BaseException) -> None:
        if self._kind.is_fenced(error):
            print("fenced", repr(error), flush=True)
            sys.exit(FENCED)

    def _rewind(self) -> int:
        """Goes to the committed offset, and returns it."""
        position = self._until_done(lambda: self._reader.committed(self._source))
        self._ahead.clear()
        self._until_done(lambda: self._reader.seek(self._source, position))
        return position

    def _transform(self, position: int, wanted: int) -> int:
        while len(self._ahead) < wanted:
            self._ahead += self._reader.poll()
        seen = [self._ahead.popleft() for _ in range(wanted)]
        expected = list(range(position, position + wanted))
        assert [each.offset for each in seen] == expected, "a record is missing, or comes again"
        self._writer.begin()
        for each in seen:
            for partition, suffix in enumerate(SUFFIXES):
                self._writer.send(Place(self._target, partition), each.value + suffix)
        self._writer.send_offset(self._group, self._source, position + wanted)
        self._writer.commit()
        return position + wanted


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # that brokers are gone now and then is why this program is run
    *_names, _count, _per = sys.argv[1:]
    Transformer(*_names).run(int(_count), int(_per))
