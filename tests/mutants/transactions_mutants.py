"""Bugs that transaction coordinators have had, somewhere: each must be caught by the tests named with it."""

from tests.mutants.harness import Mutant

T = "tests/unit/transactions"

MUTANTS = [
    Mutant(
        "a producer whose transaction timed out is not fenced",
        "transactions/transaction.py",
        "        producer_epoch=min(transaction.producer_epoch + 1, EPOCH_MAX),\n",
        "        producer_epoch=transaction.producer_epoch,\n",
        f"{T}/test_machine.py",
    ),
    Mutant(
        "the next coordinator does not write the markers of what was decided",
        "transactions/machine.py",
        "            if found.state in PREPARED:\n                effects.append",
        "            if found.state in COMPLETE:\n                effects.append",
        f"{T}/test_machine.py {T}/test_replay.py",
    ),
    Mutant(
        "markers of an earlier transaction complete a later one",
        "transactions/machine.py",
        "        if found.producer != request.producer:\n",
        "        if found.producer is None:\n",
        f"{T}/test_machine.py",
    ),
    Mutant(
        "a partition that was never added is verified",
        "transactions/machine.py",
        "if partition in found.partitions else",
        "if found.producer_epoch >= 0 else",
        f"{T}/test_machine.py",
    ),
    Mutant(
        "an end at version 2 keeps the epoch",
        "transactions/transaction.py",
        "producer_epoch=transaction.producer_epoch + 1)",
        "producer_epoch=transaction.producer_epoch)",
        f"{T}/test_machine.py",
    ),
    Mutant(
        "a zombie aborts the transaction of the producer that replaced it",
        "transactions/producers.py",
        "    if expected is not None and expected != transaction.producer:\n",
        "    if expected is None and transaction.producer_epoch < 0:\n",
        f"{T}/test_machine.py",
    ),
    Mutant(
        "who coordinates no more goes on to send markers",
        "broker/coordination/transaction_coordinators.py",
        "        self._sender.cancel(jobs)\n",
        "        self._sender.cancel(())\n",
        "tests/unit/broker/coordination/test_transaction_coordinators.py",
    ),
    Mutant(
        "a marker that was refused counts as written",
        "broker/coordination/marker_sender.py",
        "                again.append(partition)\n",
        "                job.left.discard(partition)\n",
        "tests/unit/broker/coordination/test_marker_sender.py",
    ),
    Mutant(
        "markers wait for a leader that is frozen, and fenced by now",
        "broker/coordination/marker_sender.py",
        "            leader.disconnect()  # so what is in flight fails, and is tried again\n",
        "",
        "tests/unit/broker/coordination/test_marker_sender.py",
    ),
]
