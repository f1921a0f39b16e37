"""Bugs of a leader that acknowledges, serves or refuses wrongly; the tests named with each catch it."""

from tests.mutants.harness import Mutant

R = "tests/unit/replication"
B = "tests/unit/broker"

MUTANTS = [
    Mutant(
        "what is not synced counts as committed",
        "replication/partition.py",
        "if view.advance(log.flushed_end_offset if log.config.flush_on_commit else log.end_offset):",
        "if view.advance(log.end_offset):",
        f"{R}/test_partition.py",
    ),
    Mutant(
        "the ISR is not waited for",
        "replication/isr.py",
        "            if follower.position < mark:\n",
        "            if follower.position > mark:\n",
        f"{R}/test_isr.py",
    ),
    Mutant(
        "too small an ISR commits",
        "replication/isr.py",
        "        if self.is_short:\n            return False\n",
        "",
        f"{R}/test_isr.py",
    ),
    Mutant(
        "acks=all is taken without enough replicas",
        "replication/partition.py",
        "        if required_acks == ACKS_ALL and view.is_short:\n",
        "        if required_acks == ACKS_ALL and view.is_short and now_ms < 0:\n",
        f"{R}/test_partition.py",
    ),
    Mutant(
        "records above the high watermark are served",
        "replication/partition.py",
        "bound = log.last_stable_offset if committed_only else log.high_watermark",
        "bound = log.last_stable_offset if committed_only else log.end_offset",
        f"{R}/test_partition.py",
    ),
    Mutant(
        "open transactions are served to those who want committed ones",
        "replication/partition.py",
        "bound = log.last_stable_offset if committed_only else log.high_watermark",
        "bound = log.high_watermark",
        f"{R}/test_partition.py",
    ),
    Mutant(
        "the leader epoch of a fetch is ignored",
        "replication/partition.py",
        "if view is None or UNCHECKED != current_leader_epoch != self.leader_epoch:",
        "if view is None:",
        f"{R}/test_partition.py",
    ),
    Mutant(
        "a parked acks=all is answered well although the leadership was lost",
        "replication/partition.py",
        "return ErrorCode.NOT_LEADER_OR_FOLLOWER if self.failure is None else ErrorCode.KAFKA_STORAGE_ERROR",
        "return ErrorCode.NONE",
        f"{R}/test_partition.py {B}/test_delayed.py",
    ),
    Mutant(
        "a fetch of an earlier life of a follower counts",
        "replication/isr.py",
        "if follower is None or UNKNOWN_EPOCH < broker_epoch < follower.broker_epoch:",
        "if follower is None:",
        f"{R}/test_isr.py",
    ),
    Mutant(
        "the answer comes before our own image shows the change",
        "broker/forwarding.py",
        "        if not self._until_visible:\n",
        "        if True:\n",
        f"{B}/test_forwarding.py",
    ),
    Mutant(
        "an address with many connections makes all others wait for all of them",
        "broker/turns.py",
        "        elif now_ms >= self._ends_ms and host in self._begun:\n",
        "        elif now_ms < 0:\n",
        f"{B}/test_turns.py {B}/test_connection_fairness.py",
    ),
    Mutant(
        "a reader that stopped is kept for all that it took before",
        "broker/connection.py",
        "                self._blocked_since_ms + limits.stalled_ms_max,\n",
        "                self._blocked_since_ms + limits.stalled_ms_max * 1000,\n",
        f"{B}/test_connection_fairness.py",
    ),
    Mutant(
        "made-up producers are remembered without end",
        "broker/upkeep.py",
        "        if total <= PRODUCERS_PER_LOG_MAX:\n",
        "        if total >= 0:\n",
        f"{B}/test_upkeep.py",
    ),
    Mutant(
        "a bomb is opened as far as it goes",
        "storage/append.py",
        "            limits = _limits_of_opened(config, limits)\n",
        "            pass\n",
        "tests/unit/storage/test_append.py",
    ),
]
