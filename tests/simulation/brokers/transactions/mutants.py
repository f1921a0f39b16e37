"""Bugs worth seeding into transactions, each caught by simulated runs of whole brokers whose seeds are kept.

The seeds are among those that `test_transactions` runs without a bug.
"""

from tests.simulation.brokers.mutants import BrokersMutant, Runs

MUTANTS = [
    BrokersMutant(
        "a transaction that the coordinator does not confirm begins in a log",
        "broker/handlers/_verification.py",
        "            if code is ErrorCode.NONE:\n",
        "            if code >= ErrorCode.NONE:\n",
        Runs(1, 1, "", "hanging LSO"),
    ),
    BrokersMutant(
        "a marker that was refused counts as written",
        "broker/coordination/marker_sender.py",
        "                again.append(partition)\n",
        "                job.left.discard(partition)\n",
        Runs(3, 1, "", "torn transaction"),
    ),
    BrokersMutant(
        "readers are not told what was aborted",
        "replication/partition.py",
        "aborted = log.find_aborted_transactions(offset, min(bound, self._segment_end(base_offset)))\n",
        "aborted = []\n",
        Runs(5, 1, "", "aborted read"),
    ),
    BrokersMutant(
        "a late end is that of the next transaction",
        "transactions/transaction.py",
        "    if producer.producer_epoch != known.producer_epoch or producer.producer_epoch == EPOCH_MAX:\n",
        "    if producer.producer_epoch > known.producer_epoch or producer.producer_epoch == EPOCH_MAX:\n",
        Runs(1, 1, "", "aborted read / lost write"),
    ),
    BrokersMutant(
        "the next coordinator does not write the markers of what was decided",
        "transactions/machine.py",
        "            if found.state in PREPARED:\n                effects.append",
        "            if found.state in COMPLETE:\n                effects.append",
        Runs(1, 1, "", "hanging LSO"),
    ),
    BrokersMutant(
        "an end at version 2 keeps the epoch",
        "transactions/transaction.py",
        "producer_epoch=transaction.producer_epoch + 1)",
        "producer_epoch=transaction.producer_epoch)",
        Runs(1, 1, "", "transactional history"),
    ),
    BrokersMutant(
        "a marker that is sent again aborts",
        "broker/coordination/marker_sender.py",
        "        transaction_result=markers.is_commit,\n",
        "        transaction_result=markers.is_commit and not part.is_retry,\n",
        Runs(4, 1, "", "torn transaction"),
    ),
    BrokersMutant(
        "readers of what is committed read beyond the last stable offset",
        "replication/partition.py",
        "        bound = log.last_stable_offset if committed_only else log.high_watermark\n",
        "        bound = log.high_watermark\n",
        Runs(1, 1, "", "own uncommitted read"),
    ),
    BrokersMutant(
        "an open transaction does not hold back the last stable offset",
        "storage/log_reads.py",
        "        return max(min(unstable, self.high_watermark), self.start_offset)\n",
        "        return self.high_watermark\n",
        Runs(6, 2, "", "circular flow"),
    ),
    BrokersMutant(
        "that an aborted transaction is complete is not noted",
        "broker/coordination/transaction_coordinators.py",
        "        self.submit(request, self._clock.monotonic_ms() + NOTE_TIMEOUT_MS, noted)\n",
        "        if markers.is_commit:\n"
        "            self.submit(request, self._clock.monotonic_ms() + NOTE_TIMEOUT_MS, noted)\n",
        Runs(2, 1, "", "stuck producer"),
    ),
    BrokersMutant(
        "offsets of an aborted transaction count",
        "statemachine/pending.py",
        "        if not end.is_commit:\n            return ()\n",
        "",
        Runs(1, 1, "", "output = f(input)"),
    ),
    BrokersMutant(
        "a marker that comes again ends the verification of the next transaction",
        "replication/verifications.py",
        "        last_epoch = marker_epoch - 1 if has_bumped_epoch else marker_epoch\n",
        "        last_epoch = marker_epoch\n",
        Runs(4, 1, "", "transactional history"),
    ),
]
