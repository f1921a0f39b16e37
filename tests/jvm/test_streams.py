"""Kafka Streams' exactly_once_v2: a word count that is killed in the middle, and stopped, and started again.

Caches are off, so that each word that is counted is one record of the output: of each word the counts 1, 2,
3 … come out, each once and in order.  One that was lost leaves a hole; one
that was made twice stands there twice.
"""

import subprocess
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.jvm.streams import compile_word_count
from tests.jvm.tools import TOPICS, KafkaTools

INPUT, OUTPUT = "lines", "counts"
PARTITIONS = 3
WORDS = tuple(f"word-{number}" for number in range(20))
LINES, WORDS_PER_LINE = 600, 5
EACH = LINES * WORDS_PER_LINE // len(WORDS)
TIMEOUT_S = 180.0


class Output:
    """All that is committed in the output, read as it comes."""

    def __init__(self, bootstrap: str) -> None:
        self.counts: dict[str, list[int]] = defaultdict(list)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reading-counts",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(OUTPUT, at, 0) for at in range(PARTITIONS)])

    @property
    def total(self) -> int:
        return sum(map(len, self.counts.values()))

    def read_until(self, total: int, program: "subprocess.Popen[str]") -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while self.total < total:
            assert time.monotonic() < deadline, f"only {self.total} of {total} counts have come"
            assert program.poll() is None, "the word count has ended"
            self._take(0.5)

    def read_rest(self) -> None:
        """Takes in what would be too many."""
        while self._take(1.0):
            pass
        self._consumer.close()

    def _take(self, seconds: float) -> int:
        messages = self._consumer.consume(1000, seconds)
        for message in messages:
            error, key, value = message.error(), message.key(), message.value()
            assert error is None or error.code() == KafkaError._PARTITION_EOF, error
            assert key is not None
            assert value is not None
            self.counts[key.decode()].append(int(value))
        return len(messages)


def send_lines(bootstrap: str, first: int, end: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
    for line in range(first, end):
        words = (WORDS[(line * WORDS_PER_LINE + at) % len(WORDS)] for at in range(WORDS_PER_LINE))
        producer.produce(INPUT, " ".join(words), partition=line % PARTITIONS)
    assert producer.flush(TIMEOUT_S) == 0


@pytest.mark.timeout(600)
def test_words_are_counted_exactly_once_though_the_program_is_killed(
    tools: KafkaTools, broker: dict[str, Any], tmp_path: Path
) -> None:
    classpath = compile_word_count(tmp_path)
    for topic in (INPUT, OUTPUT):
        tools.run(TOPICS, "--create", "--topic", topic, "--partitions", PARTITIONS)
    bootstrap, total = broker["client"], LINES * WORDS_PER_LINE
    output = Output(bootstrap)

    def start() -> "subprocess.Popen[str]":
        with (tmp_path / "said.txt").open("ab") as said:
            return subprocess.Popen(
                ["java", "-Xmx256m", "-cp", classpath, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                 "WordCount", bootstrap, INPUT, OUTPUT, str(tmp_path / "state")],
                stdin=subprocess.PIPE, stdout=said, stderr=said, text=True,
            )  # fmt: skip

    program = start()
    try:
        send_lines(bootstrap, 0, LINES // 3)
        output.read_until(total // 6, program)
        program.kill()  # in the middle: a third is sent, and half of that has come out
        program.communicate()
        send_lines(bootstrap, LINES // 3, 2 * LINES // 3)
        program = start()
        output.read_until(total // 2, program)
        program.communicate(timeout=TIMEOUT_S)  # and once in good order
        assert program.returncode == 0, (tmp_path / "said.txt").read_text()
        send_lines(bootstrap, 2 * LINES // 3, LINES)
        program = start()
        output.read_until(total, program)
    finally:
        program.kill()
        program.communicate()
    output.read_rest()
    assert output.counts == {word: list(range(1, EACH + 1)) for word in WORDS}
