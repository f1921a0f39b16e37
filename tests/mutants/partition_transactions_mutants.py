"""Bugs that transactions have had, somewhere: each must be caught by the tests named with it."""

from tests.mutants.harness import Mutant

R = "tests/unit/replication"

MUTANTS = [
    Mutant(
        "a transaction begins in a log though its coordinator knows nothing of it",
        "replication/partition.py",
        "        if not is_known and self.log.producers.check(header, origin=origin) is None:\n",
        "        if not is_known and producer_id < 0:\n",
        f"{R}/test_partition_transactions.py",
    ),
    Mutant(
        "what was confirmed before a marker counts behind it",
        "replication/verifications.py",
        "        self._by_producer.pop(producer_id, None)\n",
        "        return None\n",
        f"{R}/test_partition_transactions.py {R}/test_verifications.py",
    ),
    Mutant(
        "a marker of an earlier coordinator is taken",
        "storage/producers.py",
        "        if marker.coordinator_epoch < state.coordinator_epoch:\n",
        "        if marker.coordinator_epoch < 0:\n",
        f"{R}/test_partition_transactions.py",
    ),
    Mutant(
        "a late marker ends the next transaction",
        "storage/producers.py",
        "            if has_bumped_epoch:\n",
        "            if has_bumped_epoch and producer_id < 0:\n",
        f"{R}/test_partition_transactions.py",
    ),
    Mutant(
        "a new leader does not know the transactions that it took as a follower",
        "storage/log.py",
        "        if len(headers) > 1 or headers[0].producer_id >= 0:\n",
        "        if len(headers) == 1 and headers[0].producer_id >= 0:\n",
        f"{R}/test_partition_transactions.py",
    ),
]
