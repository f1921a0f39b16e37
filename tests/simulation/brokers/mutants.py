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
    """The name of a checker, or of several with slashes between them: which is first is chance."""


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
        "        if not self.is_stored:\n            return None\n",
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
        Runs(1, 4, "leaders", "committed by the ISR"),
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
        Runs(1, 8, "leaders", "leader from ISR or ELR"),
    ),
    BrokersMutant(
        "a process that was replaced goes on leading",
        "broker/replicas/partitions.py",
        "        return state.leader == self._settings.node_id and self.is_registered(self.image)\n",
        "        return state.leader == self._settings.node_id\n",
        Runs(1, 1, "twins", "one leader"),
    ),
    BrokersMutant(
        "a diverging log is not truncated",
        "replication/following.py",
        "        self._truncate(target, now_ms)\n        # An epoch",
        "        # An epoch",
        Runs(1, 8, "leaders", "progress"),
    ),
    BrokersMutant(
        "a follower truncates to its high watermark",
        "replication/replica.py",
        "        self._set_role(leader_epoch, partition_epoch, leader_id, replicas, isr)\n"
        "        if not self.is_stored:",
        "        self.log.truncate_to(self.log.high_watermark, 0)\n"
        "        self._set_role(leader_epoch, partition_epoch, leader_id, replicas, isr)\n"
        "        if not self.is_stored:",
        Runs(1, 2, "leaders", "committed by the ISR / the ISR has what is committed"),
    ),
    BrokersMutant(
        "a log that diverges is truncated to its high watermark",
        "replication/following.py",
        "        target, is_done = find_truncation_offset(self.log, leader_end)\n",
        "        target, is_done = self.log.high_watermark, True\n",
        Runs(13, 1, "leaders", "the ISR has what is committed"),
    ),
    BrokersMutant(
        "records above the high watermark are served",
        "replication/partition.py",
        "bound = log.last_stable_offset if committed_only else log.high_watermark",
        "bound = log.last_stable_offset if committed_only else log.end_offset",
        Runs(1, 4, "leaders", "client history"),
    ),
    BrokersMutant(
        "a follower is believed by claim",
        "broker/handlers/fetch.py",
        "    epoch = authorize_replica(services, replica_id, context)\n",
        "    epoch = -1 if state is None else state.replica_epoch\n",
        Runs(1, 8, "leaders", "committed by the ISR / the ISR has what is committed"),
    ),
    BrokersMutant(
        "records are acknowledged before the leader itself has synced them",
        "replication/replica.py",
        "if view.advance(log.flushed_end_offset if log.config.flush_on_commit else log.end_offset):",
        "if view.advance(log.end_offset):",
        Runs(1, 1, "leaders", "committed by the ISR"),
    ),
    BrokersMutant(
        "the log start is not carried to followers",
        "replication/following.py",
        "        if start > log.start_offset:\n",
        "        if start > log.end_offset:\n",
        Runs(1, 4, "leaders", "progress / client history"),
    ),
    BrokersMutant(
        "a deletion of records is acknowledged before the followers have made it",
        "broker/handlers/delete_records.py",
        "codes = [code] * len(deleted) if code else await _wait_for_replicas(services, request, deleted)",
        "codes = [code] * len(deleted)",
        Runs(2, 1, "deletions", "client history"),
    ),
    BrokersMutant(
        "the window in which a retry is recognised is zero",
        "storage/producers.py",
        "        if batch.first_sequence == first and batch.last_sequence == last:",
        "        if batch.first_sequence == first and batch.last_sequence == last and not state.batches:",
        Runs(2, 1, "leaders", "client history"),
    ),
    BrokersMutant(
        "a new leader tells a latest offset before it knows what is committed",
        "replication/offsets.py",
        "    is_behind = isolation is not None and epoch_start_offset > log.high_watermark\n",
        "    is_behind = False\n",
        Runs(1, 4, "leaders", "client history"),
    ),
    BrokersMutant(
        "producers are forgotten by a truncation",
        "storage/log.py",
        "        self.producers = self.restore_producers_at(end_offset)\n",
        "        self.producers = type(self.producers)()\n",
        Runs(1, 8, "leaders", "same producers"),
    ),
    BrokersMutant(
        "what a truncation has removed is remembered of producers",
        "storage/log.py",
        "        self.producers = self.restore_producers_at(end_offset)\n",
        "",
        Runs(1, 8, "leaders", "same producers"),
    ),
    BrokersMutant(
        "old replicas of a move are removed before the target is in sync",
        "controller/reassignments.py",
        "if not partition.is_moving or not set(target) <= set(isr):",
        "if not partition.is_moving:",
        Runs(1, 1, "moves", "copies while moving"),
    ),
    BrokersMutant(
        "who is to be removed by a move is forgotten",
        "controller/image.py",
        "        removing=now(record.removing_replicas, partition.removing),\n",
        "        removing=(),\n",
        Runs(1, 2, "moves", "moves arrive / copies while moving"),
    ),
]
