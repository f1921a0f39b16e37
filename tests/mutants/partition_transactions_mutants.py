"""Bugs that transactions have had, somewhere: each must be caught by the tests named with it."""

from tests.mutants.harness import Mutant

R = "tests/unit/replication"
H = "tests/unit/broker/handlers"

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
        "        if has_producers and (len(headers) > 1 or headers[0].producer_id >= 0):\n",
        "        if len(headers) == 1 and headers[0].producer_id >= 0:\n",
        f"{R}/test_partition_transactions.py",
    ),
    Mutant(
        "the next batch of a classic client overtakes one that was refused",
        "broker/handlers/produce.py",
        "                    _keep_order(partition, header)\n",
        "                    pass\n",
        f"{H}/test_produce_transactions.py",
    ),
    Mutant(
        "a produce appends before the coordinator has answered",
        "broker/handlers/produce.py",
        "            if is_new and not partition.has_open_transaction(*producer):\n",
        "            if is_new and producer.producer_id < 0:\n",
        f"{H}/test_produce_transactions.py",
    ),
    Mutant(
        "a partition that the coordinator did not confirm is taken for confirmed",
        "broker/handlers/_verification.py",
        "            if code is ErrorCode.NONE:\n",
        "            if code >= ErrorCode.NONE:\n",
        f"{H}/test_produce_transactions.py",
    ),
    Mutant(
        "an offset that a transaction may commit is shown as stable",
        "groups/offset_manager.py",
        "        unstable = frozenset(each for each in named if turn.is_unstable(group_id, each))\n",
        "        unstable = frozenset()\n",
        "tests/unit/groups/test_offsets_in_transactions.py",
    ),
    Mutant(
        "offsets of an open transaction are committed at once",
        "groups/offset_manager.py",
        "        turn.transaction = request.producer\n",
        "",
        "tests/unit/groups/test_offsets_in_transactions.py",
    ),
    Mutant(
        "a member of another generation commits in a transaction",
        "groups/offset_manager.py",
        "            group.check_member(request.member_id, request.instance_id, request.generation)\n",
        "            pass\n",
        "tests/unit/groups/test_offsets_in_transactions.py",
    ),
    Mutant(
        "offsets expire though a transaction of their group is open",
        "groups/offset_manager.py",
        "            if group_id not in in_transactions and not self._expire_group(group_id, turn):\n",
        "            if not self._expire_group(group_id, turn):\n",
        "tests/unit/groups/test_offsets_in_transactions.py",
    ),
    Mutant(
        "anybody writes markers",
        "broker/handlers/write_txn_markers.py",
        "    elif not is_loopback(context.client_host):\n",
        "    elif not context.client_host:\n",
        f"{H}/test_write_txn_markers.py",
    ),
    Mutant(
        "the markers of offsets go past the coordinator of their groups",
        "broker/handlers/write_txn_markers.py",
        "        elif topic == OFFSETS_TOPIC:\n",
        "        elif not topic:\n",
        f"{H}/test_txn_offset_commit.py",
    ),
]
