"""Bugs of the Python client: order and sequences through retries, transactions that end wrongly."""

from tests.mutants.harness import Mutant

C = "tests/unit/client"

MUTANTS = [
    Mutant(
        "a batch goes out before one that came back",
        "client/accumulator.py",
        "            and queue.batches[0].order is None\n",
        "",
        f"{C}/test_in_flight.py -k came_back",
    ),
    Mutant(
        "a batch that may be there leaves its sequences to the next one",
        "client/accumulator.py",
        "        if batch.is_doubtful or batch.attempts > 1 or queue.is_followed(batch):\n",
        "        if queue.is_followed(batch):\n",
        f"{C}/test_in_flight.py -k given_up",
    ),
    Mutant(
        "what a leader refused that was one no more leaves its sequences to the next one",
        "client/accumulator.py",
        "        if batch.is_doubtful or batch.attempts > 1 or queue.is_followed(batch):\n",
        "        if batch.is_doubtful or queue.is_followed(batch):\n",
        f"{C}/test_in_flight.py -k one_no_more",
    ),
    Mutant(
        "the second batch of a producer goes out before the first is acknowledged",
        "client/accumulator.py",
        "            and queue.known_id == self.identity.producer_id\n",
        "",
        f"{C}/test_in_flight.py -k overtaken",
    ),
    Mutant(
        "an epoch begins while the last one is under way",
        "client/accumulator.py",
        "            and queue.under_way[0].identity == self.identity\n",
        "",
        f"{C}/test_in_flight.py -k begins_an_epoch",
    ),
    Mutant(
        "a transaction in which something failed is committed",
        "client/transactions/state.py",
        "        if self.state is State.ABORTABLE and commits:\n",
        "        if self.state is State.DEAD and commits:\n",
        f"{C}/transactions/test_state.py",
    ),
]
