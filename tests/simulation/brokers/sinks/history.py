"""What was written and read, with attempts for transactions: the checks of transactions, and the ledger's."""

from typing import TYPE_CHECKING

from tests.reliability.checker import check, describe
from tests.reliability.history import Place, Seen
from tests.simulation.brokers.sinks.clients import TOPICS_OF
from tests.simulation.brokers.transactions.checkers.history import CHECKS, TransactionHistory
from tests.simulation.checkers import InvariantError

if TYPE_CHECKING:
    from tests.simulation.brokers.sinks.cluster import SinksCluster


class SinkHistory(TransactionHistory):
    name = "history of sinks"
    cluster: "SinksCluster"

    def polled(
        self, process: str, place: Place, seat: int, seen: tuple[Seen, ...], began_us: int, epoch: int
    ) -> None:
        self.cluster.ledger.saw(process, place, seen)
        super().polled(process, place, seat, seen, began_us, epoch)

    def acknowledged_since(self, time_us: int) -> set[Place]:
        """Returns all partitions that a query may write to of which a batch was committed."""
        written = super().acknowledged_since(time_us)
        by_query = [set(self.cluster.clients_side.places_of(query_id)) for query_id in TOPICS_OF]
        return set().union(*(places for places in by_query if places & written))

    def finish(self) -> None:
        self.cluster.ledger.check_batches(self.history.final)
        findings = check(self.history, CHECKS)
        if findings:
            raise InvariantError(findings[0].name, describe(findings))
