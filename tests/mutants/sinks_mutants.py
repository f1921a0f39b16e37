"""Bugs that would break an exactly-once sink: each must be caught by the tests named with it."""

from tests.mutants.harness import Mutant

MACHINE = "transactions/sinks/machine.py"
TESTS = "tests/unit/transactions/sinks/test_machine.py"
SPARK_TESTS = "-n 0 tests/spark/test_sink_once_task.py -k"

MUTANTS = [
    Mutant(
        "an attempt that lost is committed",
        MACHINE,
        "            Producer(producer_id, lease.epoch) in winners,\n",
        "            is_commit,\n",
        TESTS,
    ),
    Mutant(
        "an attempt joins a batch that is committed",
        MACHINE,
        "        if request.batch_id == found.committed_batch_id:\n",
        "        if request.batch_id < 0:\n",
        TESTS,
    ),
    Mutant(
        "a partition is added to a batch that is decided",
        MACHINE,
        "        if not is_held or state.known.state is not TransactionState.ONGOING:\n",
        "        if not is_held:\n",
        TESTS,
    ),
    Mutant(
        "a batch is complete before its last marker",
        MACHINE,
        "        if state.open_count > 1:\n",
        "        if state.open_count > 99:\n",
        TESTS,
    ),
    Mutant(
        "an end that is sent again is applied twice",
        MACHINE,
        "            return Result(SinkEnded() if is_complete else SinkDecided())\n",
        "            again = (SinkQueryRecord(request.query_id, found),)\n"
        "            markers = _markers(request.query_id, state, found, context)\n"
        "            return Result(SinkEnded() if is_complete else SinkDecided(), again, markers)\n",
        TESTS,
    ),
    Mutant(
        "a task of Spark that is skipped leaves its input",
        "spark/sink/exactly_once.py",
        "                for _ in iterator:  # what is not read to its end fails its task\n"
        "                    pass\n",
        "",
        f"{SPARK_TESTS} played_again",
    ),
    Mutant(
        "a query of Spark is another one after each start",
        "spark/sink/attempts.py",
        'QUERY_PROPERTY: Final = "sql.streaming.queryId"\n',
        'QUERY_PROPERTY: Final = "sql.streaming.runId"\n',
        "tests/unit/spark/sink/test_attempts.py",
    ),
    Mutant(
        "a write of a pool in foreachBatch is taken for one without batches",
        "spark/sink/attempts.py",
        "    if _is_of_stream(task):\n",
        "    if False:\n",
        "tests/unit/spark/sink/test_attempts.py",
    ),
    Mutant(
        "heartbeats end when the coordinator is away for as long as a call takes",
        "client/sinks.py",
        "            await self.heartbeat(token, batch_id, patience_ms=patience_ms)\n",
        "            await self.heartbeat(token, batch_id)\n",
        "tests/unit/client/test_sinks.py -k outlast",
    ),
]
