"""Bugs worth seeding into replication, each caught by simulated runs of whole brokers whose seeds are kept.

Those that take one exact story rather than chance are in tests/mutants.
"""

from typing import NamedTuple


class Runs(NamedTuple):
    """Runs of which one shows the bug, and what it breaks."""

    first_seed: int
    seeds: int
    flavour: str
    breaks: str


class BrokersMutant(NamedTuple):
    name: str
    file: str
    old: str
    new: str
    caught_by: Runs


MUTANTS = [
    BrokersMutant(
        "a follower fetches on before it has synced",
        "replication/following.py",
        "        if self.committable_end_offset < log.end_offset:\n            return None\n",
        "",
        Runs(1, 1, "calm", "committed by the ISR"),
    ),
    BrokersMutant(
        "records are acknowledged before the whole ISR has them",
        "replication/isr.py",
        "in self._counted:\n            if follower.log_end_offset < high_watermark:",
        "in self._counted[:1]:\n            if follower.log_end_offset < high_watermark:",
        Runs(1, 1, "calm", "committed by the ISR"),
    ),
    BrokersMutant(
        "an ISR member that never fetched counts as if it had everything",
        "replication/isr.py",
        "            if follower.log_end_offset < high_watermark:",
        "            if UNKNOWN_OFFSET < follower.log_end_offset < high_watermark:",
        Runs(4, 1, "leaders", "committed by the ISR"),
    ),
    BrokersMutant(
        "the minimum of replicas in sync is not checked",
        "replication/isr.py",
        "        self.is_under_min_isr = len(self.isr) < wanted\n",
        "        self.is_under_min_isr = False\n",
        Runs(1, 1, "leaders", "min ISR"),
    ),
    BrokersMutant(
        "a leader is elected outside the ISR",
        "controller/elections.py",
        "    leader = _clean_leader(partition, target_isr or elr, may, election)\n",
        "    leader = _clean_leader(partition, partition.replicas, may, election)\n",
        Runs(1, 1, "leaders", "leader from ISR or ELR"),
    ),
    BrokersMutant(
        "a process that was replaced goes on leading",
        "broker/replicas/partitions.py",
        "        return state.leader == self._settings.node_id and self.is_registered(self.image)\n",
        "        return state.leader == self._settings.node_id\n",
        Runs(4, 1, "mixed", "one leader"),
    ),
    BrokersMutant(
        "a diverging log is not truncated",
        "replication/following.py",
        "        self._truncate(target, now_ms)\n        # An epoch",
        "        # An epoch",
        Runs(3, 1, "leaders", "progress"),
    ),
]
