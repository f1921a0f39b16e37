"""Bugs of moves: replicas in the wrong place, and throttles that hold up whom they must not."""

from tests.mutants.harness import Mutant

B = "tests/unit/broker"
LEADING = f"{B}/handlers/test_fetch_throttled.py"
FOLLOWING = f"{B}/replicas/test_throttled_fetches.py"
QUOTAS = f"{B}/quotas/test_replication_quotas.py"
GROWTH = "tests/unit/controller/moves/test_internal_topics.py"
PLACEMENT = "tests/unit/controller/test_placement.py"

MUTANTS = [
    Mutant(
        "two replicas on one host, while another has room",
        "controller/placement.py",
        "        return self._hosts[location], 0 if",
        "        return 0, 0 if",
        PLACEMENT,
    ),
    Mutant(
        "two replicas on one host: what a broker says of its machine is not looked at",
        "controller/placement.py",
        "        return Location(self.rack, self.host or str(self.broker_id))",
        "        return Location(self.rack, str(self.broker_id))",
        PLACEMENT,
    ),
    Mutant(
        "two replicas on one host: a broker that is drained leaves its replica to a neighbour of another",
        "cli/cluster/draining.py",
        "        others = [each for each in held if each != drained]",
        "        others = [each for each in held if each == drained]",
        "tests/unit/cli/cluster/test_draining.py",
    ),
    Mutant(
        "a broker tells its host only when it starts: none is known after an upgrade",
        "broker/cluster/lifecycle.py",
        "            or known.host == self._registration.host\n",
        "",
        f"{B}/cluster/test_lifecycle_host.py",
    ),
    Mutant(
        "a throttle starves the ISR: the leader holds back a member of it",
        "replication/isr.py",
        "        if broker_id in self.isr or (self",
        "        if (self",
        LEADING,
    ),
    Mutant(
        "a throttle starves the ISR: a member of it does not fetch",
        "broker/replicas/replica_fetcher.py",
        "            and self._fetchers.node_id not in partition.isr\n",
        "",
        FOLLOWING,
    ),
    Mutant(
        "a throttle starves the ISR: who joins it waits until its throttle is over",
        "broker/replicas/replica_fetcher.py",
        "            if not self._is_throttled(key, partition):  # it has joined the ISR\n",
        "            if partition.is_leader:\n",
        FOLLOWING,
    ),
    Mutant(
        "internal topics grow in a storm: all partitions at once",
        "controller/moves/internal_topics.py",
        "key=_count_replicas)[:PARTITIONS_AT_ONCE]",
        "key=_count_replicas)",
        GROWTH,
    ),
    Mutant(
        "internal topics grow while somebody moves them by hand",
        "controller/moves/internal_topics.py",
        "    if any(each.partition.is_moving for each in placed):\n        return []\n",
        "",
        GROWTH,
    ),
    Mutant(
        "internal topics grow onto a broker that takes no part",
        "controller/moves/internal_topics.py",
        "        if broker.is_active\n",
        "",
        GROWTH,
    ),
    Mutant(
        "the next batch of internal topics is forgotten: nobody looks when one has arrived",
        "controller/moves/internal_topics.py",
        "            or (isinstance(each, PartitionChanged) and each.adding_replicas is not None)\n",
        "",
        GROWTH,
    ),
    Mutant(
        "a leader over its throttle sends all the same",
        "broker/handlers/_fetch_reading.py",
        "min(limit_bytes, allowance), at_least_one, services)",
        "limit_bytes, True, services)",
        LEADING,
    ),
    Mutant(
        "a throttle forgets what was too much",
        "broker/quotas/replication_quotas.py",
        "now_ms + excess_ms + QUANTUM_MS",
        "now_ms + QUANTUM_MS",
        QUOTAS,
    ),
]
