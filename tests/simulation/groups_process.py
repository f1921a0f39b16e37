"""A process that is a member of a simulated group: what it does one after the other, and its connections.

What a process does is one *strand* or several, each a generator with a connection of its own: it yields what
it asks of the coordinator, or how long it sleeps, and goes on with the answer.  So a pause is an answer that
is held back, and a crash a generator that is dropped.

A connection keeps its order; when it breaks, what was under way on it and not read yet is lost, and nobody
knows what became of the rest.
"""

import random
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, NamedTuple

from distributedlog.groups.requests import (
    ConsumerHeartbeatReply,
    FetchOffsetsReply,
    FetchOffsetsRequest,
    JoinReply,
    Reply,
    Request,
    SyncReply,
)
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.ports.executor import Outcome

if TYPE_CHECKING:
    from tests.simulation.groups_cluster import GroupsCluster
    from tests.simulation.groups_host import GroupsHost

ANSWER_US_MAX = 6_000_000
READ_US = 40_000
SILENCE = ErrorCode.NETWORK_EXCEPTION
"""The connection broke, or no answer came in time."""


class Sleep(NamedTuple):
    us: int


class Heard(NamedTuple):
    """An answer."""

    code: ErrorCode
    reply: Reply = None


Life = Generator[Request | Sleep, Heard, None]


class Strand:
    def __init__(self, process: "SimProcess", live: Callable[[], Life]) -> None:
        self._process = process
        self._live = live
        self._life: Life | None = None
        self._lives = 0
        self.held_up_us = 0
        """How much longer than others' what it sends is under way."""
        self.deaf_until_us = 0
        """Until then its connection breaks before each answer."""
        self._held: list[tuple[int, Heard]] = []
        self._asked = 0
        self._broker: GroupsHost | None = None
        self._arrives_us = 0

    def start(self) -> None:
        self.stop()
        self._life = self._live()
        self._go(self._lives, Heard(ErrorCode.NONE), first=True)

    def stop(self) -> None:
        """Its connection is closed, too."""
        self._lives += 1
        self._asked += 1
        if self._life is not None:
            self._life.close()
            self._life = None

    def resume(self) -> None:
        held, self._held = self._held, []
        for lives, heard in held:
            self._go(lives, heard)

    def _go(self, lives: int, heard: Heard, *, first: bool = False) -> None:
        process, life = self._process, self._life
        if not process.is_alive or life is None or lives != self._lives:
            return
        if process.paused:
            self._held.append((lives, heard))
            return
        try:
            wanted = next(life) if first else life.send(heard)
        except StopIteration:
            process.crash()
            return
        if isinstance(wanted, Sleep):
            process.cluster.loop.call_after(wanted.us, self._go, self._lives, Heard(ErrorCode.NONE))
        else:
            self._ask(wanted)

    # --- the wire ------------------------------------------------------------------------------

    def _ask(self, request: Request) -> None:
        process, cluster = self._process, self._process.cluster
        self._asked += 1
        number = self._asked
        if self._broker is None:
            self._broker = cluster.coordinator_for(process)
        broker = self._broker
        cluster.loop.call_after(ANSWER_US_MAX, self._silence, number)
        if cluster.is_lost():
            return
        # One after the other: what is sent later arrives later.
        delay_us = cluster.delay_us() + self.held_up_us
        self._arrives_us = max(self._arrives_us, cluster.loop.now_us + delay_us) + 1

        def answered(outcome: Outcome[Reply]) -> None:
            if cluster.now_us < self.deaf_until_us:
                cluster.loop.call_after(cluster.delay_us(), self._silence, number)
            elif not cluster.is_lost():
                cluster.loop.call_after(cluster.delay_us(), self._answered, number, request, outcome)

        def arrived() -> None:
            if number == self._asked:  # else the connection is gone, and what was on it
                broker.submit(process.group, request, answered)

        cluster.loop.call_at(self._arrives_us, arrived)

    def _silence(self, number: int) -> None:
        if number == self._asked:
            self._asked += 1
            self._broker = None
            self._go(self._lives, Heard(SILENCE))

    def _answered(self, number: int, request: Request, outcome: Outcome[Reply]) -> None:
        if number != self._asked:
            return
        self._asked += 1
        heard = _heard(outcome)
        cluster = self._process.cluster
        cluster.trace.add(
            cluster.loop.now_us,
            type(request).__name__,
            self._process.name,
            f"{heard.code.name} {_spell(heard.reply)}",
        )
        if heard.code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._broker = None
        self._go(self._lives, heard)


class SimProcess:
    """A process of a member of any protocol; each has its own strands."""

    def __init__(self, cluster: "GroupsCluster", number: int, group: str, instance: str | None) -> None:
        self.cluster = cluster
        self.name = f"{group}/{number}"
        self.group = group
        self.instance = instance
        self.chance = random.Random(cluster.chance.getrandbits(64))
        self.member_id = ""
        self.is_working = False
        """It owns what it was assigned, and reads it."""
        self.is_alive = True
        self.is_fenced = False
        self.leaves = False
        self.paused = False
        self.acknowledged_us = -1
        """When a commit of its own was last acknowledged."""
        self.strands: tuple[Strand, ...] = ()

    @property
    def owner(self) -> str:
        """Whom partitions belong to: a static member stays the same over restarts."""
        return self.name if self.instance is None else f"{self.group}/{self.instance}"

    def start(self) -> None:
        self.strands[0].start()

    def crash(self) -> None:
        """It is gone, and says nothing."""
        self.is_alive = self.is_working = False
        for strand in self.strands:
            strand.stop()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        for strand in self.strands:
            strand.resume()


def _heard(outcome: Outcome[Reply]) -> Heard:
    if outcome.error is not None:
        assert isinstance(outcome.error, DlogError), outcome.error
        return Heard(outcome.error.code)
    reply = outcome.value()
    code = reply.error if isinstance(reply, JoinReply | SyncReply) else ErrorCode.NONE
    return Heard(code, reply)


def _spell(reply: Reply | None) -> str:
    """Spells a reply the same in every process: a set's own order depends on the seed of Python's hashes."""
    if isinstance(reply, ConsumerHeartbeatReply) and reply.assignment is not None:
        partitions = " ".join(f"{each.topic_id}-{each.partition}" for each in sorted(reply.assignment))
        return f"{reply._replace(assignment=None)} assigned {partitions}".rstrip()
    return str(reply)


class Readers:
    """Somebody who asks every broker all the time where the groups stand, as administrators do.

    A member hardly ever asks a broker that is no coordinator any more at the very moment when it matters.  A
    broker may refuse; what it answers must not be from the past.
    """

    def __init__(self, cluster: "GroupsCluster", seed: int) -> None:
        self._cluster = cluster
        self._chance = random.Random(seed)
        self.answered = 0

    def start(self) -> None:
        for host in self._cluster.hosts.values():
            self._read_later(host)

    def _read_later(self, host: "GroupsHost") -> None:
        self._cluster.loop.call_after(self._chance.randrange(READ_US), self._read, host)

    def _read(self, host: "GroupsHost") -> None:
        cluster, group = self._cluster, self._chance.choice(self._cluster.groups)
        before = cluster.acknowledged_until_now(group)

        def told(outcome: Outcome[Reply]) -> None:
            if outcome.error is not None:
                return
            reply = outcome.value()
            assert isinstance(reply, FetchOffsetsReply)
            self.answered += 1
            found = {each.partition: each.offset for each in reply.offsets}
            for checker in cluster.checkers:
                checker.on_probe(host.broker_id, group, found, before)

        if host.is_up:
            host.submit(group, FetchOffsetsRequest(group, None), told)
        self._read_later(host)
