"""A whole cluster in virtual time whose clients work in transactions; the rest is that of `brokers.cluster`.

Besides what is checked there: nobody sees part of a transaction, or anything of one that was aborted, or that
is not committed yet; transactions depend on each other in one direction; every last stable offset moves on
within the transaction timeout once all has healed, and every transactional id commits something; and what
transformers have written is the function of what they have read, each record once.
"""

import random
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from unittest import mock

from distributedlog.broker.coordination import marker_sender
from distributedlog.controller.configs import ControllerConfig
from distributedlog.controller.features import TRANSACTION_LEVEL_EPOCHS
from distributedlog.model.cluster_settings import (
    OFFSETS_TOPIC_PARTITIONS,
    OFFSETS_TOPIC_REPLICATION_FACTOR,
    TRANSACTIONS_TOPIC_MIN_ISR,
    TRANSACTIONS_TOPIC_PARTITIONS,
    TRANSACTIONS_TOPIC_REPLICATION_FACTOR,
)
from tests.simulation.brokers.cluster import BrokersCluster
from tests.simulation.brokers.transactions.checkers.history import TransactionHistory
from tests.simulation.brokers.transactions.checkers.stable_offsets import StableOffsets
from tests.simulation.brokers.transactions.checkers.stuck_producers import StuckProducers
from tests.simulation.brokers.transactions.clients import TransactionClients
from tests.simulation.brokers.transactions.late_markers import LateMarkerSender
from tests.simulation.control_cluster import SECOND_US, Report
from tests.simulation.control_faults import ControlFaults

SETTINGS = {
    TRANSACTIONS_TOPIC_PARTITIONS: "2",
    TRANSACTIONS_TOPIC_REPLICATION_FACTOR: "3",
    TRANSACTIONS_TOPIC_MIN_ISR: "2",
    OFFSETS_TOPIC_PARTITIONS: "1",
    OFFSETS_TOPIC_REPLICATION_FACTOR: "3",
}


class TransactionsCluster(BrokersCluster):
    healed_us = 14 * SECOND_US
    read_us = 7 * SECOND_US
    clients_side: TransactionClients
    history: TransactionHistory

    def __init__(self, seed: int, nodes: int | None = None, flavour: str | None = None) -> None:
        super().__init__(seed, nodes, flavour)
        self._markers_chance = random.Random(f"markers {seed}")

    def _find_faults(self) -> tuple[Mapping[str, int], type[ControlFaults]]:
        from tests.simulation.brokers.transactions.faults import FLAVOURS, TransactionFaults

        return FLAVOURS, TransactionFaults

    def _make_brokers_clients(self, seed: int) -> TransactionClients:
        return TransactionClients(self, seed)

    def _make_checkers(self) -> None:
        super()._make_checkers()
        self.history = TransactionHistory(self)
        self.stuck_producers = StuckProducers(self)
        self.observer.checkers += [StableOffsets(self), self.stuck_producers]

    def controller_config(self, node_id: int) -> ControllerConfig:
        config = super().controller_config(node_id)
        return replace(
            config,
            bootstrap_transaction_level=TRANSACTION_LEVEL_EPOCHS,
            cluster_settings={**config.cluster_settings, **SETTINGS},
        )

    def run(self, seconds: int) -> Report:
        sender = partial(LateMarkerSender, self._markers_chance, lambda: self.stuck_producers.is_awaiting)
        with mock.patch.object(marker_sender, "MarkerSender", sender):
            return super().run(seconds)
