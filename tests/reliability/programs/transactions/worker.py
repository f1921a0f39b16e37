"""One transaction after the other, and what happens to clients in the middle of one.

    aborts        it changes its mind
    gives up      it says nothing any more, and another producer takes its transactional id
    is a zombie   the same, but it comes back after its successor has begun and goes on: it must be refused

What is told to the journal before a commit is asked for is final: that transaction failed, whoever says what.
Of a commit that ends in an error nobody knows; the next producer of this id finds it decided.
"""

import logging
import random
import sys
import time
from abc import ABC, abstractmethod

from tests.reliability.history import Outcome, Place, Seen
from tests.reliability.journal import Journal
from tests.reliability.programs.calm import IS_CALM, note_error
from tests.reliability.programs.stopping import stopping
from tests.reliability.programs.transactions.client import IS_CARELESS, Writer
from tests.reliability.programs.transactions.kinds import kind_of
from tests.reliability.programs.transactions.topics import group_of

PAUSE_SECONDS = 0.15
AGAIN_SECONDS = 0.3
ABORT_SHARE, GIVE_UP_SHARE, ZOMBIE_SHARE = 0.1, 0.04, 0.04


class Worker(ABC):
    def __init__(self, bootstrap: str, topic: str, partitions: int, name: str) -> None:
        logging.disable(logging.CRITICAL)  # that brokers are gone now and then is why this program is run
        self.name, self.topic, self.partitions = name, topic, partitions
        self.chance = random.Random(name)
        self.group = group_of(topic)
        self._bootstrap = bootstrap
        self._kind = kind_of(name.split(".")[1])
        self._reader = self._kind.read(bootstrap, self.group)
        self._writer: Writer | None = None
        self._journal, self._stop = Journal(name), stopping()
        self._count, self._seat = 0, 0
        self._sent: list[str] = []
        self.transaction = ""

    def run(self) -> None:
        while not self._stop.is_set():
            if self._writer is not None or self._begin_anew():
                self._transact()
            self._stop.wait(PAUSE_SECONDS)
        if self._writer is not None and not IS_CARELESS:
            self._writer.leave()

    @abstractmethod
    def started(self) -> None:
        """It has the transactional id."""

    @abstractmethod
    def work(self) -> bool:
        """What a transaction consists of; whether there was anything to do."""

    @abstractmethod
    def ended(self, *, is_committed: bool) -> None:
        """The transaction is over, and its outcome is known."""

    # --- for those who work --------------------------------------------------------------------

    @property
    def writer(self) -> Writer:
        assert self._writer is not None
        return self._writer

    def send(self, place: Place, value: str, writer: Writer | None = None) -> None:
        self._journal.send(place, value, self.transaction)
        self._sent.append(value)
        (writer or self.writer).send(place, value)

    def seek(self, place: Place, offset: int) -> None:
        self._seat += 1
        self._reader.seek(place, offset)

    def committed(self, place: Place) -> int:
        """What the group has committed there."""
        invoked_ns = time.monotonic_ns()
        offset = self._reader.committed(place)
        self._journal.told(place, self.group, offset, invoked_ns)
        return offset

    def read(self, place: Place) -> list[Seen]:
        """What comes next in the partition that was sought."""
        invoked_ns = time.monotonic_ns()
        seen = self._reader.poll()
        if seen:
            self._journal.poll(place, self._seat, seen, invoked_ns, self.transaction)
        return seen

    # --- one transaction -----------------------------------------------------------------------

    def _begin_anew(self) -> bool:
        """Takes the transactional id over from whoever had it."""
        try:
            self._writer = self._kind.write(self._bootstrap, self.name.replace("+", ""))
            self.started()
        except self._kind.errors as error:
            note_error(error)
            self._leave()
            self._stop.wait(AGAIN_SECONDS)
        return self._writer is not None

    def _leave(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.leave()

    def _transact(self) -> None:
        self._count += 1
        self.transaction, self._sent = f"{self.name}-{self._count}", []
        try:
            self.writer.begin()
            has_worked = self.work()
        except self._kind.errors as error:
            note_error(error)
            self._told(Outcome.FAIL)
            self._leave()
            return
        if IS_CARELESS and self._stop.is_set():
            self._told(Outcome.FAIL)
            return
        self._end(has_worked=has_worked)

    def _end(self, *, has_worked: bool) -> None:
        drawn = self.chance.random() if has_worked and not IS_CALM else 1.0
        if drawn < ZOMBIE_SHARE:
            self._come_back()
        elif drawn < ZOMBIE_SHARE + GIVE_UP_SHARE:
            self._told(Outcome.FAIL)
            self._leave()
        elif not has_worked or drawn < ZOMBIE_SHARE + GIVE_UP_SHARE + ABORT_SHARE:
            self._told(Outcome.FAIL)
            self._finish(is_commit=False)
        else:
            self._finish(is_commit=True)

    def _finish(self, *, is_commit: bool) -> None:
        try:
            if is_commit:
                self.writer.commit()
            else:
                self.writer.abort()
        except self._kind.errors as error:
            note_error(error)
            if is_commit:
                self._told(Outcome.UNKNOWN)
            self._leave()
            return
        if is_commit:
            self._told(Outcome.OK)
        self.ended(is_committed=is_commit)

    def _come_back(self) -> None:
        """Goes on with a transaction that was aborted when the successor took the transactional id."""
        zombie, self._writer = self.writer, None
        transaction = self.transaction
        if self._begin_anew():
            self.transaction = transaction
            try:
                self.send(Place(self.topic, 0), f"{transaction}.late", zombie)
                zombie.send_offset(self.group, Place(self.topic, self.partitions - 1), 1)
            except self._kind.errors:
                pass  # it is fenced already
            try:
                zombie.commit()
            except self._kind.errors:
                self._told(Outcome.FAIL)
            else:
                self._told(Outcome.FAIL)
                sys.exit(f"{transaction} was committed by a producer that had a successor")
        else:
            self._told(Outcome.FAIL)
        zombie.leave()

    def _told(self, outcome: Outcome) -> None:
        self._journal.ended(self.transaction, outcome)
        for value in self._sent:
            self._journal.sent(value, outcome)
        self._sent = []
