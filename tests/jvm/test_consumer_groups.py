"""Consumer groups (KIP-848) with Kafka's own client and tools, beside librdkafka in one group."""

import json
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer

from tests.jvm.tools import CONSOLE_CONSUMER, CONSOLE_PRODUCER, GROUPS, TOPICS, KafkaTools

TOPIC, PARTITIONS, GROUP = "shared", 6, "both-kinds"
DUMP = "kafka.tools.DumpLogSegments"
TIMEOUT_SECONDS = 90.0


def poll_until_shared(consumer: Consumer, count: int) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while len(consumer.assignment()) != count:
        assert time.monotonic() < deadline, f"it has {consumer.assignment()}"
        consumer.poll(0.1)


def dumped(tools: KafkaTools, data_dir: str) -> list[dict[str, Any]]:
    """The records of the offsets topic, as Kafka's own tool reads them: those of this group."""
    found = []
    for log in sorted(Path(data_dir).glob("__consumer_offsets-*/*.log")):
        if not log.stat().st_size:
            continue
        lines = tools.run_alone(DUMP, "--offsets-decoder", "--files", log).splitlines()
        keys = [line.split(" key: ", 1)[1] for line in lines if GROUP in line and " key: " in line]
        found += [json.loads(key.split(" payload: ", 1)[0]) for key in keys]
    return found


def test_javas_client_and_librdkafka_share_a_group(tools: KafkaTools, broker: dict[str, Any]) -> None:
    tools.run(TOPICS, "--create", "--topic", TOPIC, "--partitions", PARTITIONS)
    tools.run(CONSOLE_PRODUCER, "--topic", TOPIC, sent="a\nb\nc\n")
    mine = Consumer(
        {
            "bootstrap.servers": broker["client"],
            "group.id": GROUP,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    mine.subscribe([TOPIC])
    poll_until_shared(mine, PARTITIONS)
    theirs = tools.start(
        CONSOLE_CONSUMER, "--topic", TOPIC, "--group", GROUP, "--command-property", "group.protocol=consumer"
    )
    try:
        poll_until_shared(mine, PARTITIONS // 2)
        members = tools.run(GROUPS, "--describe", "--group", GROUP, "--members", "--verbose")
        assert members.count(f"{TOPIC}:") >= 2
        assert "TARGET-ASSIGNMENT" in members
        state = tools.run(GROUPS, "--describe", "--group", GROUP, "--state")
        assert "Stable" in state or "Reconciling" in state
        assert "Consumer" in tools.run(GROUPS, "--list", "--type")
    finally:
        theirs.terminate()
        theirs.wait(TIMEOUT_SECONDS)
    poll_until_shared(mine, PARTITIONS)
    mine.close()
    kinds = {int(key["type"]) for key in dumped(tools, broker["data_dir"])}
    assert kinds >= {3, 5, 6, 7, 8}, "every kind of record is one of Kafka's"
