"""A whole cluster in virtual time from one seed: brokers with their logs, controllers, clients, faults,
checkers.

`BrokersCluster(seed).run(seconds)` either returns what it did or raises `InvariantError`; the trace says
the rest.  Each of three machines is a controller and a broker, sometimes there is a fourth that is only a
broker. Producers, consumers and an administrator speak Kafka's protocol to them over streams (`streams`).
Faults strike until some seconds before the end; then all heals, and a fresh client reads everything.

The control side, and what is checked of it, is that of `control_cluster`.
"""

import logging
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING

from distributedlog.controller.configs import ControllerConfig
from distributedlog.controller.features import GROUP_LEVEL_CONSUMER, LEVEL_MAX
from distributedlog.model.cluster_settings import (
    BROKER_SESSION_TIMEOUT,
    MIN_INSYNC_REPLICAS,
    OFFSETS_TOPIC_PARTITIONS,
    OFFSETS_TOPIC_REPLICATION_FACTOR,
)
from tests.simulation.brokers.checkers import BrokersChecker
from tests.simulation.brokers.checkers.copies_while_moving import CopiesWhileMoving
from tests.simulation.brokers.checkers.history import ClientHistory
from tests.simulation.brokers.clients import Clients
from tests.simulation.brokers.garbage import collector_resting
from tests.simulation.brokers.host import BrokerHost
from tests.simulation.brokers.movers import MOVES
from tests.simulation.brokers.observer import Observer
from tests.simulation.brokers.process_loop import ProcessLoop
from tests.simulation.brokers.streams import StreamNetwork
from tests.simulation.checkers import InvariantError
from tests.simulation.control_cluster import SECOND_US, SESSION_TIMEOUT_MS, ControlCluster, Report
from tests.simulation.control_faults import ControlFaults

if TYPE_CHECKING:
    from tests.simulation.brokers.faults import BrokersFaults

HEALED_US = 12 * SECOND_US
"""How long the cluster has to get whole again, and everything to be read."""
READ_US = 4 * SECOND_US
"""How long before the end everything is read."""
LOOK_US = 500_000
PARTITIONS = 2
REPLICAS = 3


class BrokersCluster(ControlCluster):
    hosts: dict[int, BrokerHost]  # type: ignore[assignment]
    twin: BrokerHost
    healed_us = HEALED_US
    read_us = READ_US
    faults: "BrokersFaults"

    def __init__(self, seed: int, nodes: int | None = None, flavour: str | None = None) -> None:
        chance = random.Random(f"brokers {seed}")
        self.node_settings = _draw_settings(chance)
        extra = chance.choice((0, 0, 0, 1))
        self._extra_brokers = 1 if flavour == MOVES else extra
        self.ended_loops: list[ProcessLoop] = []
        self.failure: InvariantError | None = None
        """What a checker has found, if anything."""
        self._streams_seed = chance.getrandbits(64)
        super().__init__(seed, nodes or 3, flavour)
        self.level = LEVEL_MAX
        self.clients_side = self._make_brokers_clients(chance.getrandbits(64))

    def _find_faults(self) -> tuple[Mapping[str, int], type[ControlFaults]]:
        from tests.simulation.brokers.replication_faults import FLAVOURS, ReplicationFaults

        return FLAVOURS, ReplicationFaults

    def _make_brokers_clients(self, seed: int) -> Clients:
        return Clients(self, seed)

    def _make_clients(self) -> None:
        """None of those that only the control side has."""
        self.clients, self.leaders = [], []

    def _make_checkers(self) -> None:
        super()._make_checkers()
        self.checkers.append(CopiesWhileMoving(self))
        self.convergence.are_operations_due = False
        self.streams = StreamNetwork(self.loop, self.network, random.Random(self._streams_seed))
        self.observer = Observer(self)
        self.brokers_checkers: list[BrokersChecker] = self.observer.checkers
        self.history = ClientHistory(self)

    def _make_hosts(self, brokers: int) -> None:
        super()._make_hosts(len(self.voters) + self._extra_brokers)

    def _make_host(self, node_id: int, broker_id: int | None = None) -> BrokerHost:
        drift_ppm = self._draw_drift_ppm()
        return BrokerHost(self, node_id, self.chance.getrandbits(64), drift_ppm, broker_id)

    def controller_config(self, node_id: int) -> ControllerConfig:
        return ControllerConfig(
            controller_id=node_id,
            cluster_id=self.cluster_id,
            bootstrap_level=self.level,
            bootstrap_group_level=GROUP_LEVEL_CONSUMER,
            cluster_settings={
                BROKER_SESSION_TIMEOUT: str(SESSION_TIMEOUT_MS),
                MIN_INSYNC_REPLICAS: "2",
                OFFSETS_TOPIC_PARTITIONS: "2",
                OFFSETS_TOPIC_REPLICATION_FACTOR: str(REPLICAS),
            },
            leader_balance_interval_ms=5_000,
        )

    # --- a run ---------------------------------------------------------------------------------

    def run(self, seconds: int) -> Report:
        level_before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            with collector_resting():
                return self._run(seconds)
        finally:
            logging.disable(level_before)
            self._end_loops()

    def _run(self, seconds: int) -> Report:
        end_us = seconds * SECOND_US
        for host in self.hosts.values():
            host.start()
        self.clients_side.start()
        self.faults.begin()
        self._look()
        events = self.loop.run_until(max(end_us - self.healed_us, 0))
        self.faults.heal()
        self.convergence.healed()
        self.observer.healed()
        events += self.loop.run_until(end_us - self.read_us)
        self.clients_side.read_everything()
        events += self.loop.run_until(end_us)
        self._finish()
        return Report(
            self.seed,
            self.flavour,
            len(self.hosts),
            events,
            self.network.sent + 2 * self.wire.calls + self.streams.segments,
            self.observer.committed_batches,
            self.clients_side.operations,
            self.steps[-1].term if self.steps else 0,
        )

    def _look(self) -> None:
        self._check_failure()
        self.observer.look()
        self.loop.call_after(LOOK_US, self._look)

    def _check_failure(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _finish(self) -> None:
        self._check_failure()
        self.clients_side.finish()
        self.observer.finish()
        self.history.finish()
        super()._finish()

    def _end_loops(self) -> None:
        living = [host.data.loop for host in (*self.hosts.values(), self.twin) if host.data is not None]
        for loop in (*self.ended_loops, *living, self.clients_side.loop):
            loop.end_tasks()


def _draw_settings(chance: random.Random) -> dict[str, str]:
    return {
        "replica.lag.time.max.ms": str(chance.choice((1_000, 2_000, 4_000))),
        "replica.fetch.wait.max.ms": str(chance.choice((300, 500, 1_000))),
        "replica.socket.timeout.ms": "2000",
        "replica.fetch.max.bytes": str(chance.choice((1_024, 16_384, 1_048_576))),
        "request.timeout.ms": "4000",
        "group.initial.rebalance.delay.ms": "0",
        "log.segment.bytes": str(chance.choice((1_024, 4_096, 1_048_576))),
    }
