"""Bugs worth seeding into sinks, each caught by simulated runs of whole brokers whose seeds are kept.

The seeds are among those that `test_sinks` runs without a bug.
"""

from tests.simulation.brokers.mutants import BrokersMutant, Runs

MACHINE = "transactions/sinks/machine.py"

MUTANTS = [
    BrokersMutant(
        "an attempt that lost is committed",
        MACHINE,
        "            Producer(producer_id, lease.epoch) in winners,\n",
        "            is_commit,\n",
        Runs(1, 1, "", "undecided row"),
    ),
    BrokersMutant(
        "an attempt joins a batch that is committed",
        MACHINE,
        "        if request.batch_id == found.committed_batch_id:\n",
        "        if request.batch_id < 0:\n",
        Runs(1, 1, "", "replay is skipped / batch = f(batch)"),
    ),
    BrokersMutant(
        "what comes late begins in a log although its batch is over",
        "broker/handlers/_verification.py",
        "            if code is ErrorCode.NONE:\n",
        "            if code >= ErrorCode.NONE:\n",
        Runs(1, 1, "", "visible after commit / hanging LSO / undecided row"),
    ),
    BrokersMutant(
        "a batch is complete before its last marker",
        MACHINE,
        "        if state.open_count > 1:\n",
        "        if state.open_count > 99:\n",
        Runs(1, 1, "", "visible after commit / hanging LSO"),
    ),
    BrokersMutant(
        "the next coordinator does not write the markers of what was decided",
        MACHINE,
        "            if state.query.state in PREPARED:\n",
        "            if state.query.state in COMPLETE:\n",
        Runs(1, 2, "", "hanging LSO"),
    ),
    BrokersMutant(
        "an end that is sent again is taken for another one",
        MACHINE,
        "        if found.state in DECIDED:\n            if winners",
        "        if found.state in PREPARED:\n            if winners",
        Runs(1, 2, "", "a repeated end answers the same"),
    ),
]
