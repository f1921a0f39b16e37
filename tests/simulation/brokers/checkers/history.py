"""What clients saw: the checks of `tests/reliability`, and what only a simulation can tell.

Nothing acknowledged is lost, doubled or reordered; nobody reads a record that is later gone, or reads
beyond the end of a log; what a client is told of the latest offset or of a group's does not go back; deleted
records stay deleted.

A client that knows of no newer leader may be answered by one that has been replaced: such answers are
compared only with what was known in its leader epoch.
"""

from typing import TYPE_CHECKING

from tests.reliability.checker import ALWAYS, IDEMPOTENT, check, describe
from tests.reliability.history import LATEST, History, Outcome, Place, Poll, Position, Seen, Send
from tests.simulation.brokers.checkers import BrokersChecker

if TYPE_CHECKING:
    from tests.simulation.brokers.cluster import BrokersCluster

ORDERED = {"non-monotonic send": ALWAYS["non-monotonic send"]}
"""What was never acknowledged may arrive whenever it likes."""
CHECKS = {
    name: looked_for
    for name, looked_for in {**ALWAYS, **IDEMPOTENT}.items()
    if name not in ("stale end", "two owners", *ORDERED)
}


def _acknowledged_only(history: History) -> History:
    return History(sends=list(history.acknowledged()), polls=history.polls, final=history.final)


class ClientHistory(BrokersChecker):
    name = "client history"

    def __init__(self, cluster: "BrokersCluster") -> None:
        super().__init__(cluster)
        self.history = History()
        self._starts: dict[Place, int] = {}
        self._deleted: dict[Place, tuple[int, int]] = {}
        """Below which offset records were deleted, and the leader epoch in which that was acknowledged."""
        self._acknowledged_us: dict[Place, int] = {}

    # --- what clients tell ---------------------------------------------------------------------

    def sent(
        self,
        process: str,
        place: Place,
        values: list[str],
        began_us: int,
        outcome: Outcome,
        offset: int | None,
    ) -> None:
        now_us = self.cluster.now_us
        self.cluster.trace.add(
            now_us, f"sent {values[0]}+{len(values)} to {place}", process, (outcome, offset)
        )
        if outcome is Outcome.OK:
            self._acknowledged_us[place] = now_us
        for number, value in enumerate(values):
            at = None if offset is None else offset + number
            self.history.sends.append(
                Send(process, place, value, began_us * 1000, now_us * 1000, outcome, at)
            )

    def polled(
        self, process: str, place: Place, seat: int, seen: tuple[Seen, ...], began_us: int, epoch: int
    ) -> None:
        self.cluster.trace.add(
            self.cluster.now_us, f"read {place}", process, (seen[0].offset, "to", seen[-1].offset)
        )
        self._check_deleted(process, place, seen[0].offset, epoch)
        committed = self.cluster.observer.identical.committed_end(place)
        if seen[-1].offset >= committed:
            self.fail(f"{process} reads offset {seen[-1].offset} of {place}; {committed} is committed")
        poll = Poll(process, place, seat, seen, began_us * 1000, self.cluster.now_us * 1000)
        self.history.polls.append(poll)

    def told_latest(self, process: str, place: Place, offset: int, epoch: int, began_us: int) -> None:
        committed = self.cluster.observer.identical.committed_before(place, epoch)
        if offset < committed:
            self.fail(
                f"{process} is told in epoch {epoch} that {place} ends at {offset}; {committed} was "
                "committed before"
            )
        told = Position(process, place, LATEST, offset, began_us * 1000, self.cluster.now_us * 1000)
        self.history.positions.append(told)

    def told_committed(self, process: str, place: Place, group: str, offset: int, began_us: int) -> None:
        told = Position(process, place, group, offset, began_us * 1000, self.cluster.now_us * 1000)
        self.history.positions.append(told)

    def deleted(self, place: Place, offset: int, epoch: int) -> None:
        if place in self._starts:
            return  # it races with the final read
        before, epoch_before = self._deleted.get(place, (0, -1))
        self._deleted[place] = max(offset, before), max(epoch, epoch_before)

    def out_of_range(self, process: str, place: Place, offset: int, start: int, epoch: int) -> None:
        if start <= offset:
            self.fail(f"{process} has read {place} to {offset}, and that is behind the log's end in {epoch}")

    def strange_sequence(self, process: str, place: Place, code: str, values: list[str]) -> None:
        self.fail(f"{process} is refused {values} in {place}: {code}, and all before was acknowledged")

    def _check_deleted(self, process: str, place: Place, offset: int, epoch: int) -> None:
        start, deleted_in = self._deleted.get(place, (0, -1))
        if offset < start and epoch > deleted_in:
            self.fail(f"{process} reads offset {offset} of {place}, of which all below {start} was deleted")

    # --- the end -------------------------------------------------------------------------------

    def begin_final(self, place: Place, start: int) -> None:
        self._starts[place] = start
        self.history.final[place] = []

    def read_finally(self, place: Place, seen: tuple[Seen, ...]) -> None:
        self.history.final[place] += seen

    def acknowledged_since(self, time_us: int) -> set[Place]:
        return {place for place, at_us in self._acknowledged_us.items() if at_us > time_us}

    def finish(self) -> None:
        """A place that nobody could read in the end waits for an operator (`progress` has looked): what was
        sent and read there is not judged."""
        for place, (offset, _) in self._deleted.items():
            if place in self._starts and self._starts[place] < offset:
                self.fail(f"{place} begins at {self._starts[place]}; all below {offset} was deleted")
        history = self.history
        history.sends = [
            send._replace(outcome=Outcome.UNKNOWN) if self._is_deleted(send) else send
            for send in history.sends
            if send.place in self._starts
        ]
        history.polls = [poll for poll in history.polls if poll.place in self._starts]
        findings = check(history, CHECKS)
        findings += check(_acknowledged_only(history), ORDERED)
        if findings:
            self.fail(describe(findings))

    def _is_deleted(self, send: Send) -> bool:
        return (
            send.outcome is Outcome.OK and send.offset is not None and send.offset < self._starts[send.place]
        )
