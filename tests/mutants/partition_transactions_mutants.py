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
        "broker/handlers/write_txn_markers.py",
        "            partition.verifications.end(*producer, has_bumped_epoch=has_bumped_epoch)\n",
        "            pass\n",
        f"{H}/test_write_txn_markers.py",
    ),
    Mutant(
        "a marker of version 2 ends what was confirmed in its own epoch",
        "replication/verifications.py",
        "        last_epoch = marker_epoch - 1 if has_bumped_epoch else marker_epoch\n",
        "        last_epoch = marker_epoch\n",
        f"{R}/test_verifications.py {H}/test_write_txn_markers.py",
    ),
    Mutant(
        "a marker that the coordinator of groups refuses ends what was confirmed",
        "broker/handlers/write_txn_markers.py",
        "        if not result.error_code:  # it stands in the log; what does not is refused by now\n",
        "        if topic:\n",
        f"{H}/test_txn_offset_commit.py",
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
        "what was confirmed in an earlier leader epoch fails the transaction",
        "broker/handlers/_verification.py",
        "        return partition.is_leader and epoch != partition.leader_epoch\n",
        "        return partition.is_leader and epoch > partition.leader_epoch\n",
        f"{H}/test_produce_transactions.py {H}/test_txn_offset_commit.py",
    ),
    Mutant(
        "in another leader epoch a batch overtakes one that was refused",
        "replication/replica.py",
        "                self.verifications.forget_confirmed()\n",
        "                self.verifications.clear()\n",
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
