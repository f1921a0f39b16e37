"""What transactional clients saw: the checks of `tests/reliability`, each under its own name, and that the
outputs are the function of the inputs.

torn transaction        part of a transaction was read and part never appears
aborted read            something of a transaction was read that was aborted, or given up
own uncommitted read    a transaction read what it had written itself
circular flow           transactions read from each other in a circle (G1c)
output = f(input)       of every committed record below the group's committed offset there is one output, and
                        there are no others
"""

from collections import Counter
from typing import TYPE_CHECKING, NoReturn

from tests.reliability.checker import ALWAYS, IDEMPOTENT, check, describe
from tests.reliability.history import Ended, Outcome, Place, Poll, Seen, Send
from tests.simulation.brokers.checkers.history import ClientHistory
from tests.simulation.brokers.transactions.workers import source_of
from tests.simulation.checkers import InvariantError

if TYPE_CHECKING:
    from tests.simulation.brokers.transactions.cluster import TransactionsCluster

FIRST = ("circular flow", "own uncommitted read", "torn transaction", "aborted read")
"""What says most of what went wrong is looked for first."""
CHECKS = {name: ALWAYS[name] for name in FIRST} | {
    name: looked_for
    for name, looked_for in {**ALWAYS, **IDEMPOTENT}.items()
    if name not in ("stale end", "two owners", "non-monotonic send")
}


class TransactionHistory(ClientHistory):
    name = "transactional history"
    cluster: "TransactionsCluster"

    def __init__(self, cluster: "TransactionsCluster") -> None:
        super().__init__(cluster)
        self._committed: dict[Place, int] = {}

    def transacted(
        self,
        process: str,
        transaction: str,
        sent: list[tuple[Place, list[str], int, int | None]],
        outcome: Outcome,
    ) -> None:
        """A transaction is over, as far as its client knows."""
        now_us = self.cluster.now_us
        self.cluster.trace.add(now_us, f"{transaction} ended", process, outcome)
        self.history.ended.append(Ended(transaction, outcome))
        for place, values, began_us, offset in sent:
            acknowledged = Outcome.UNKNOWN if offset is None else Outcome.OK
            if outcome is Outcome.OK:
                self._acknowledged_us[place] = now_us
            for number, value in enumerate(values):
                at = None if offset is None else offset + number
                self.history.sends.append(
                    Send(process, place, value, began_us * 1000, now_us * 1000, acknowledged, at, transaction)
                )

    def polled_in(
        self,
        process: str,
        place: Place,
        seat: int,
        seen: tuple[Seen, ...],
        began_us: int,
        epoch: int,
        transaction: str,
    ) -> None:
        """A transaction has read something."""
        self.polled(process, place, seat, seen, began_us, epoch)
        poll: Poll = self.history.polls[-1]
        self.history.polls[-1] = poll._replace(transaction=transaction)

    def unconfirmed_write(self, process: str, place: Place, values: list[str]) -> None:
        """A producer whose partitions are added by its records was told that this one was not.  Who ends its
        transaction raises its epoch: then it is fenced."""
        self.fail(f"{process} is refused {values} in {place}: INVALID_TXN_STATE, in its own epoch")

    def committed(self, place: Place, offset: int) -> None:
        """The group has, at the end, committed all below an offset."""
        self._committed[place] = offset

    def acknowledged_since(self, time_us: int) -> set[Place]:
        """Returns all partitions of a topic in one of which something was committed."""
        topics = {place.topic for place in super().acknowledged_since(time_us)}
        return {place for place in self.cluster.clients_side.places if place.topic in topics}

    def finish(self) -> None:
        findings = check(self.history, CHECKS)
        if findings:
            raise InvariantError(findings[0].name, describe(findings))
        self._check_output()

    def _check_output(self) -> None:
        final = self.history.final
        made = Counter(
            source_of(seen.value)
            for place in self.cluster.clients_side.outputs
            for seen in final.get(place, ())
        )
        expected = Counter(
            seen.value
            for place, offset in self._committed.items()
            for seen in final[place]
            if seen.offset < offset
        )
        missing, extra = expected - made, made - expected
        if missing or extra:
            self._fail_output(
                f"{len(missing)} records that the group has passed have no output ({sorted(missing)[:3]}), "
                f"and {len(extra)} outputs are too many ({sorted(extra)[:3]}); committed: {self._committed}"
            )

    def _fail_output(self, text: str) -> NoReturn:
        raise InvariantError("output = f(input)", text)
