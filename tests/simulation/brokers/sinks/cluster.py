"""A whole cluster in virtual time that sinks of Spark write to; the rest is that of `transactions.cluster`.

What is checked besides: `ledger`.
"""

from tests.simulation.brokers.sinks.clients import SinkClients
from tests.simulation.brokers.sinks.history import SinkHistory
from tests.simulation.brokers.sinks.ledger import Ledger
from tests.simulation.brokers.transactions.cluster import TransactionsCluster


class SinksCluster(TransactionsCluster):
    clients_side: SinkClients
    history: SinkHistory

    def _make_brokers_clients(self, seed: int) -> SinkClients:
        return SinkClients(self, seed)

    def _make_checkers(self) -> None:
        super()._make_checkers()
        self.history = SinkHistory(self)
        self.ledger = Ledger(self)
