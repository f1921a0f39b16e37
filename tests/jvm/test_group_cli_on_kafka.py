"""`dlog group` on Apache Kafka itself: lag after its transactions, and groups of both protocols."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from distributedlog.cli.main import main
from distributedlog.cli.session import BOOTSTRAP_VARIABLE
from tests.bench.broker_kafka import Kafka, make_first_topic, make_topic

TOPIC = "transactions"
TIMEOUT_SECONDS = 60
ALONE = "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n"
Dlog = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A topic with 10 committed records, 5 aborted ones and 3 more, each transaction with its marker."""
    kafka = Kafka(Path(tmp_path_factory.mktemp("kafka")) / "node")
    with kafka._config.open("a") as config:
        config.write(ALONE)
    kafka.start()
    try:
        make_first_topic(kafka, "first")
        make_topic(kafka, TOPIC, 1)
        address = f"127.0.0.1:{kafka.port}"
        producer = Producer({"bootstrap.servers": address, "transactional.id": "writer", "log_level": 0})
        producer.init_transactions(TIMEOUT_SECONDS)
        for count, is_kept in ((10, True), (5, False), (3, True)):
            producer.begin_transaction()
            for _ in range(count):
                producer.produce(TOPIC, b"v", partition=0)
            assert producer.flush(TIMEOUT_SECONDS) == 0
            (producer.commit_transaction if is_kept else producer.abort_transaction)(TIMEOUT_SECONDS)
        del producer
        yield address
    finally:
        kafka.stop()


@pytest.fixture
def dlog(bootstrap: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Dlog:
    monkeypatch.setenv(BOOTSTRAP_VARIABLE, bootstrap)

    def run(*arguments: str, code: int = 0) -> list[dict[str, Any]]:
        capsys.readouterr()
        assert main(["group", *arguments, "-o", "json"]) == code
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


def stand(bootstrap: str, group: str, offset: int) -> None:
    """Until Kafka has made the topic of the groups, it is nobody's coordinator."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    for left in reversed(range(100)):
        try:
            consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
            break
        except KafkaException:
            assert left, "there is no coordinator"
            consumer.poll(0.2)
    consumer.close()


def test_lag_counts_what_a_reader_is_given_and_not_offsets(dlog: Dlog, bootstrap: str) -> None:
    stand(bootstrap, "reader", 0)

    def lag(*options: str) -> tuple[int, int, bool]:
        row, total = dlog("lag", "reader", *options)
        assert total["lag"] == row["lag"]
        return row["end"], row["lag"], row["lag_is_exact"]

    assert lag() == (21, 13, True)
    assert lag("--isolation", "read_uncommitted") == (21, 18, True)
    assert lag("--count-mib", "0") == (21, 21, False)
    (moved,) = dlog("seek", "reader", "--topic", TOPIC, "--shift", "4")
    assert (moved["before"], moved["after"]) == (0, 4)
    assert lag() == (21, 9, True), "from within a batch"
    assert dlog("delete", "reader", "--yes") == [{"type": "deleted", "group": "reader", "outcome": "deleted"}]
    dlog("describe", "reader", code=1)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_of_both_protocols_are_described_and_left_alone(
    dlog: Dlog, bootstrap: str, protocol: str
) -> None:
    group, given = f"of-{protocol}", list[TopicPartition]()
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol, "log_level": 0}
    )
    consumer.subscribe([TOPIC], on_assign=lambda _, partitions: given.extend(partitions))
    while not given:
        consumer.poll(0.1)
    described, member = dlog("describe", group)
    assert (described["state"], described["group_type"], described["members"]) == ("Stable", protocol, 1)
    assert member["partitions"] == [{"topic": TOPIC, "partition": 0}]
    dlog("seek", group, "--topic", TOPIC, "--begin", code=1)
    dlog("delete", group, "--yes", code=1)
    consumer.close()
    assert group in [row["group"] for row in dlog("list", "--state", "Empty", "--type", protocol)]
