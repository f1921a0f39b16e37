"""Kafka's own transactional producer, which uses `transaction.version` 2, and its tool for transactions."""

import asyncio
import re
import subprocess
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from tests.jvm.tools import CONSOLE_CONSUMER, FEATURES, PRODUCER_PERF, TOPICS, TRANSACTIONS, KafkaTools
from tests.system.transactions.sink_driver import driving

COUNT = 2_000
DUMP = "kafka.tools.DumpLogSegments"
TIMEOUT_S = 60.0


def test_the_cluster_has_version_2(tools: KafkaTools) -> None:
    found = tools.run(FEATURES, "describe")
    assert re.search(r"transaction\.version\s.*FinalizedVersionLevel: 2", found)


def test_transactions_of_the_java_client_are_committed_one_after_the_other(
    tools: KafkaTools, broker: dict[str, Any]
) -> None:
    tools.run(TOPICS, "--create", "--topic", "java", "--partitions", 3)
    said = tools.run(
        PRODUCER_PERF, "--topic", "java", "--num-records", COUNT, "--record-size", 100, "--throughput", 400,
        "--transactional-id", "perf", "--transaction-duration-ms", 100,
    )  # fmt: skip
    assert f"{COUNT} records sent" in said
    read = tools.run(
        CONSOLE_CONSUMER, "--topic", "java", "--from-beginning", "--isolation-level", "read_committed",
        "--max-messages", COUNT, "--timeout-ms", 60_000,
    )  # fmt: skip
    assert len(read.splitlines()) == COUNT
    listed = tools.run(TRANSACTIONS, "list")
    found = re.search(r"perf\S*\s+\d+\s+(\d+)\s+(\w+)", listed)
    assert found is not None, listed
    assert found[2] == "CompleteCommit"
    described = tools.run(TRANSACTIONS, "describe", "--transactional-id", "perf")
    epoch = re.search(r"\d+\s+perf\s+\d+\s+(\d+)\s+CompleteCommit", described)
    assert epoch is not None, described
    assert int(epoch[1]) > 5, "each has an epoch of its own"


def test_a_transaction_that_is_open_is_seen_and_found_when_it_hangs(
    tools: KafkaTools, broker: dict[str, Any]
) -> None:
    tools.run(TOPICS, "--create", "--topic", "open", "--partitions", 1)
    producer = Producer({"bootstrap.servers": broker["client"], "transactional.id": "open", "log_level": 0})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("open", b"x")
    producer.flush(TIMEOUT_S)
    described = tools.run(TRANSACTIONS, "describe", "--transactional-id", "open")
    assert re.search(r"Ongoing\s.*\sopen-0", described), described
    of_partition = tools.run(TRANSACTIONS, "describe-producers", "--topic", "open", "--partition", 0)
    assert re.search(r"^\d+\s+0\s.*\s0\s*$", of_partition, re.MULTILINE), "it began at offset 0"
    hanging = tools.run(TRANSACTIONS, "find-hanging", "--topic", "open", "--max-transaction-timeout", 0)
    assert "open" not in hanging, "its coordinator knows it"
    producer.commit_transaction(TIMEOUT_S)


def test_two_java_producers_with_one_id_fence_each_other(tools: KafkaTools) -> None:
    tools.run(TOPICS, "--create", "--topic", "fenced", "--partitions", 1)
    arguments = (
        "--topic", "fenced", "--num-records", 10_000_000, "--record-size", 100, "--throughput", 50,
        "--transactional-id", "fenced", "--transaction-duration-ms", 200,
    )  # fmt: skip
    first = tools.start(PRODUCER_PERF, *arguments)
    try:
        wait_for_commits(tools)
        tools.run(
            PRODUCER_PERF, "--topic", "fenced", "--num-records", 50, "--record-size", 100, "--throughput", 50,
            "--transactional-id", "fenced", "--transaction-duration-ms", 200,
        )  # fmt: skip
        assert first.wait(TIMEOUT_S) != 0, "the first is fenced, and ends"
    finally:
        if first.poll() is None:
            first.kill()
            first.wait()


def wait_for_commits(tools: KafkaTools) -> None:
    """Returns when the first transactions can be read."""
    try:
        tools.run(
            CONSOLE_CONSUMER, "--topic", "fenced", "--from-beginning", "--isolation-level", "read_committed",
            "--max-messages", 1, "--timeout-ms", 60_000,
        )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        raise AssertionError("the first producer commits nothing") from late


def test_what_sinks_write_down_is_passed_over_by_kafkas_tools(
    tools: KafkaTools, broker: dict[str, Any]
) -> None:
    """Its dump tool says that it skips them, its formatter leaves them out, and its list shows the query."""
    tools.run(TOPICS, "--create", "--topic", "sunk", "--partitions", 1)

    async def write() -> None:
        async with driving(broker["client"], "query", "sunk") as driver:
            token = await driver.sink.token()
            winner = await driver.attempt(token, 0, "0-0", {0: ["a", "b"]})
            await driver.attempt(token, 0, "0-1", {0: ["a", "b"]})
            await driver.end(token, 0, winner)

    asyncio.run(write())
    read = tools.run(
        CONSOLE_CONSUMER, "--topic", "sunk", "--from-beginning", "--isolation-level", "read_committed",
        "--max-messages", 2, "--timeout-ms", 60_000,
    )  # fmt: skip
    assert read.split() == ["a", "b"]
    listed = tools.run(TRANSACTIONS, "list")
    assert re.search(r"dlog\.sink/query\s+\d+\s+-1\s+CompleteCommit", listed), listed
    assert "CompleteCommit" in tools.run(TRANSACTIONS, "describe", "--transactional-id", "dlog.sink/query")
    (log,) = [
        each
        for each in Path(broker["data_dir"]).glob("__transaction_state-*/*.log")
        if b"query" in each.read_bytes()
    ]
    dumped = tools.run_alone(DUMP, "--transaction-log-decoder", "--print-data-log", "--files", log)
    assert dumped.count("Unknown record type") >= 8, dumped
    assert "Exception" not in dumped
    formatted = tools.try_to(
        CONSOLE_CONSUMER, "--topic", "__transaction_state", "--from-beginning", "--timeout-ms", 10_000,
        "--formatter", "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter",
    )  # fmt: skip
    assert "query" not in formatted.out
    assert "Processed a total of" in formatted.err
